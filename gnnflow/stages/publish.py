"""Publish: a completed run becomes a version, and replaces the champion if it is at least as good.

Both are scored on the same targets: the test split of the current run. So a champion trained on last month's graph is
judged on today's graph. If the champion cannot read that (other features, more hops than were cut), nothing can be
compared, and `publish.incomparable` decides: `keep` by default, since a model without a comparison is not known to be
better. A model of earlier tables than the champion's (`publish.date`) is not compared, since the targets that judge it
are as old. A version that a person rolled back or rejected is never promoted here again. With `publish.approval` a
version that would be promoted waits as the candidate, and a person promotes it, one of `publish.approvers` where some
are named. The stage leaves no artifact: the registry is its output, and running it twice changes nothing.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gnnflow import registry
from gnnflow.config.moments import read_moment
from gnnflow.graph.errors import RegistryError, StorageError
from gnnflow.graph.labels import metric_text
from gnnflow.graph.run_facts import InferFacts, TrainFacts
from gnnflow.registry.mlflow import log_version
from gnnflow.registry.versions import CONFIG
from gnnflow.stages.base import StageResult
from gnnflow.stages.champion import Comparison, compare
from gnnflow.stages.entry import perform
from gnnflow.storage.filesystem import exists
from gnnflow.storage.workspace import same_run

if TYPE_CHECKING:
    from gnnflow.registry import Aliases, Version
    from gnnflow.stages.base import StageContext

_MIDNIGHT = "T00:00:00+00:00"


@dataclass(frozen=True, kw_only=True)
class PublishResult(StageResult):
    """The result of publishing.

    version is this run's, in_service the champion's afterwards; promoted: they are the same. awaits_approval: it would
    be promoted, and a person decides. seen: the moves of its aliases that the decision was made with, a number that
    `registry.promote` takes. candidate and champion are the scores of both on the current test split, with
    names such as `test.accuracy`; champion is empty without a comparison. predictions: of this run. mlflow_run: "" if
    nothing was logged.
    """

    name: str
    version: int
    uri: str
    promoted: bool
    reason: str
    metric: str
    in_service: int | None
    run: str
    predictions: str
    candidate: dict[str, float] = field(default_factory=dict)
    champion: dict[str, float] = field(default_factory=dict)
    mlflow_run: str = ""
    awaits_approval: bool = False
    seen: int = 0

    def summary(self) -> dict[str, Any]:
        """Return plain values, for `--json`."""
        return asdict(self)


def run(context: StageContext) -> PublishResult:
    """Register the config's completed run, and promote it if it is at least as good as the champion.

    The version records the git revision of the config's folder, or the variable GNNFLOW_REVISION if that is not a
    checkout (an image, an object store). Raises StorageError if a stage has not run, RegistryError if the run has no
    parity certificate, or the metric is not defined for the test labels.
    """
    begin = time.monotonic()
    context.progress.stage_started("publish")
    result = _publish(context, begin)
    context.progress.message(f"{result.name} version {result.version}: {result.reason}")
    context.progress.stage_finished("publish", result.seconds, reused=False)
    return result


def is_quick(context: StageContext) -> bool:
    """Return whether the run's version is in service already, so that nothing needs to be copied or compared."""
    config = context.config
    name = config.publish.name or config.name
    champion = registry.read_aliases(config.workspace, name).champion
    if champion is None or not exists(context.run.record):
        return False
    if registry.read_approvers(config.workspace, name) != config.publish.approvers:
        return False
    try:
        return same_run(registry.read_version(config.workspace, name, champion).run, context.run.uri)
    except StorageError:
        return False  # publishing repairs a version's damaged files, or reports them


def _publish(context: StageContext, begin: float) -> PublishResult:
    config = context.config
    name = config.publish.name or config.name
    run = _completed_run(context)
    _check_certificate(context)
    revision = registry.git_revision(context.config_uri) or os.environ.get("GNNFLOW_REVISION") or None
    version = registry.register(config.workspace, run, name=name, revision=revision)
    registry.keep_approvers(config.workspace, name, config.publish.approvers)
    verdict, aliases = _decide(context, version)
    mlflow_run = _mirror(context, version)
    return PublishResult(
        stage="publish",
        seconds=time.monotonic() - begin,
        name=name,
        version=version.version,
        uri=version.uri,
        promoted=aliases.champion == version.version,
        reason=verdict.reason,
        metric=_metric(context),
        in_service=aliases.champion,
        run=version.run,
        predictions=version.predictions,
        candidate=verdict.comparison.candidate
        or {key: value for key, value in version.metrics.items() if key.startswith("test.")},
        champion=verdict.comparison.champion,
        mlflow_run=mlflow_run,
        awaits_approval=verdict.awaits,
        seen=verdict.seen,
    )


def _check_certificate(context: StageContext) -> None:
    if context.artifact("infer").facts(InferFacts).parity.compared == "nothing":
        raise RegistryError(
            "this run has no parity certificate: no target was scored again by the k-hop path",
            where="infer.parity_samples",
            fix="Set it to 1 or more (the default is 256), with targets to score, and run again; training is reused.",
        )


def _mirror(context: StageContext, version: Version) -> str:
    """Log the version to MLflow, if its address is set. A failure is only reported: the registry is what counts."""
    tracking_uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    if not tracking_uri:
        return ""
    try:
        return log_version(version, tracking_uri=tracking_uri)
    except RegistryError as error:
        context.progress.message(f"published, but not logged to MLflow: {error}")
        return ""


def _decide(context: StageContext, version: Version) -> tuple[_Verdict, Aliases]:
    """Judge the version and act on it; repeat if another champion came into service meanwhile."""
    workspace, name, number = context.config.workspace, version.name, version.version
    while True:
        before = registry.read_aliases(workspace, name)
        verdict = replace(_judge(context, version, before), seen=len(before.history))
        if verdict.promote and context.config.publish.approval:
            reason = f"waits for approval, would be {verdict.reason}"
            verdict = replace(verdict, reason=reason, promote=False, nominate=True, awaits=True)
        try:
            if verdict.promote:
                moved = registry.promote(
                    workspace,
                    name,
                    number,
                    reason=verdict.reason,
                    seen=verdict.seen,
                    compared=_compared_document(verdict),
                )
                return verdict, moved
        except registry.ChampionMovedError as error:
            context.progress.message(f"judging again: {error.problem}")
            continue
        if verdict.nominate:
            compared = _compared_document(verdict)
            return verdict, registry.nominate(workspace, name, number, reason=verdict.reason, compared=compared)
        return verdict, registry.read_aliases(workspace, name)


def _completed_run(context: StageContext) -> str:
    """Return the config's run; commit it if all its stages are done."""
    if not exists(context.run.record):
        for stage in context.run.stages:
            context.artifact(stage)
        perform(context, "run")
    return context.run.uri


def _metric(context: StageContext) -> str:
    trained = context.artifact("train").facts(TrainFacts)
    return context.config.publish.metric or trained.metric or context.config.train.metric


@dataclass(frozen=True)
class _Verdict:
    """The decision about a version, made against this champion, after so many moves of the aliases."""

    reason: str
    champion: int | None
    comparison: Comparison
    promote: bool = False
    nominate: bool = False
    awaits: bool = False
    seen: int = 0


def _judge(context: StageContext, version: Version, aliases: Aliases) -> _Verdict:
    """Decide whether a version replaces the champion."""
    nothing, champion = Comparison(_metric(context)), aliases.champion
    if champion == version.version:
        return _Verdict("it is in service already", champion, nothing)
    if rejection := aliases.rejection(version.version):
        stays = "nothing is in service" if champion is None else f"version {champion} stays"
        reason = f"{stays}: this one was {rejection['reason']} ({rejection['at'][:10]}); {_by_hand(version)}"
        return _Verdict(reason, champion, nothing)
    if champion is None:
        return _Verdict("promoted as the first version", champion, nothing, promote=True)
    if version.version in aliases.withdrawn:
        reason = f"version {champion} stays: this one was rolled back; {_by_hand(version)}"
        return _Verdict(reason, champion, nothing)
    if dates := _later_date(context, version, champion):
        ours, theirs = dates
        reason = f"version {champion} stays: its tables are of {theirs}, and this one's of {ours}; {_by_hand(version)}"
        return _Verdict(reason, champion, nothing)
    return _compared(context, version, champion)


def _later_date(context: StageContext, version: Version, champion: int) -> tuple[str, str] | None:
    """Return the dates of the tables of a version and of the champion, where the champion's is later."""
    ours, theirs = (
        json.loads(each.read(CONFIG))["publish"].get("date")
        for each in (version, registry.read_version(context.config.workspace, version.name, champion))
    )
    if not ours or not theirs or not _is_before(read_moment(ours), read_moment(theirs)):
        return None
    return ours.removesuffix(_MIDNIGHT), theirs.removesuffix(_MIDNIGHT)


def _is_before(one: datetime, other: datetime) -> bool:
    """Return whether a moment is before another one. Midnight stands for its day, which is not before its hours."""
    if datetime.min.time() in {one.time(), other.time()}:
        return one.date() < other.date()
    return one < other


def _compared(context: StageContext, version: Version, champion: int) -> _Verdict:
    found = compare(
        context,
        candidate=version,
        champion=registry.read_version(context.config.workspace, version.name, champion),
        metric=_metric(context),
    )
    if found.obstacle:
        why = f"version {champion} cannot be compared with it ({found.obstacle})"
        if context.config.publish.incomparable == "promote":
            return _Verdict(f"promoted: {why}, and publish.incomparable is promote", champion, found, promote=True)
        return _Verdict(f"version {champion} stays: {why}; {_by_hand(version)}", champion, found, nominate=True)
    ours, theirs = map(metric_text, found.values)
    figures = f"test.{found.metric} is {ours}, and {theirs} for version {champion} on the same targets{_noise(found)}"
    if found.candidate_holds:
        return _Verdict(f"promoted: {figures}", champion, found, promote=True)
    return _Verdict(f"version {champion} stays: {figures}", champion, found, nominate=True)


def _noise(found: Comparison) -> str:
    """Return how sure the difference is, as the end of a sentence; empty where it is not known."""
    if found.interval is None:
        return ""
    low, high = (f"{'+' if each > 0 else ''}{metric_text(each)}" for each in found.interval)
    verdict = "more than noise" if found.beyond_noise else "which may be noise"
    return f" (difference {low} to {high}: {verdict})"


def _compared_document(verdict: _Verdict) -> dict[str, Any] | None:
    """Return the comparison that decided, for the history of aliases; None where nothing was compared."""
    found = verdict.comparison
    if not found.champion:
        return None
    candidate, champion = found.values
    return {
        "metric": found.metric,
        "candidate": candidate,
        "champion": champion,
        "version": verdict.champion,
        "interval": None if found.interval is None else list(found.interval),
        "beyond_noise": found.beyond_noise,
    }


def _by_hand(version: Version) -> str:
    return f"`gnnflow models promote {version.name} {version.version}` promotes it anyway"
