"""Score: the model in service scores the current graph.

If the champion is the version of this config's run, GraphInfer has scored everything already, and these predictions are
returned. Otherwise the champion's weights and sampling score today's graph store, under the same parity certificate as
any run; a missing store is made first, and it needs no labels. After a rollback the restored model scores.

Where the tables have labels the scores are judged by them, and they are compared with the scores before: the model's
list of scorings (`registry/scores.py`) keeps both.

Nothing trains here, so tables need no train or valid targets, and no edge is held out: if the config's run hides edges
from its model (links, and labels of edges that carry no messages), the tables are ingested once more with every edge,
even for the run's version.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gnnflow import registry
from gnnflow.config import STAGES, Config, config_from_dict
from gnnflow.config.task_section import NoSplit
from gnnflow.graph.encodings import are_encoded, encode_alike
from gnnflow.graph.errors import ConfigError, RegistryError, StorageError
from gnnflow.graph.facts import GraphFacts, SelectFacts
from gnnflow.graph.run_facts import InferFacts
from gnnflow.ingest.targets import EdgeTargets
from gnnflow.registry.versions import CONFIG
from gnnflow.stages.base import StageResult
from gnnflow.stages.champion import make_inputs, make_store, other_code, scaled_for
from gnnflow.stages.guards import check_scored
from gnnflow.stages.infer import Learned, score_graph
from gnnflow.stages.resolve import resolve_again
from gnnflow.stages.running import do_once
from gnnflow.stages.score_judging import is_judged, judge
from gnnflow.stages.score_report import page_of
from gnnflow.storage.filesystem import exists, join
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import committed, fingerprint_of
from gnnflow.storage.run_folder import PREDICTIONS, check_run
from gnnflow.storage.workspace import same_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.registry import Signature, Version
    from gnnflow.stages.base import Artifact, ArtifactResult, StageContext
    from gnnflow.stages.score_drift import ScoreDrift
    from gnnflow.stages.score_figures import Figures


@dataclass(frozen=True, kw_only=True)
class ScoreResult(StageResult):
    """Predictions of the model in service, for every target of the current graph.

    reads: the graph store, the selected neighbours and the version's folder. figures: of the predictions; drift: from
    the ones before, None where there are none. report: a page of both.
    """

    reads: tuple[str, ...]
    name: str
    version: int
    predictions: str
    rows: int
    figures: Figures
    drift: ScoreDrift | None = None
    report: str = ""

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the predictions where the tables have labels; else empty."""
        return self.figures.metrics

    def lines(self) -> Iterator[str]:
        """Yield the figures and the drift, as sentences for a person."""
        yield from self.figures.lines()
        if self.drift is not None:
            yield from self.drift.lines()
            yield self.drift.verdict(self.figures.headline)

    def summary(self) -> dict[str, Any]:
        """Return the version that scored, and the folder of its predictions."""
        scored = {"name": self.name, "version": self.version, "predictions": self.predictions, "rows_out": self.rows}
        drift = None if self.drift is None else self.drift.as_document()
        judged = {"metrics": self.metrics, "drift": drift, "report": self.report}
        return {**super().summary(), **scored, **judged, "reads": list(self.reads)}


def run(context: StageContext) -> ScoreResult:
    """Return the champion's predictions.

    Raises RegistryError if nothing is in service, or the champion cannot read this graph; ConfigError if the config
    turns the certificate off; GuardError if tables or predictions changed more than it allows.
    """
    begin = time.monotonic()
    context = to_score(context)
    config = context.config
    if not config.infer.parity_samples:
        raise ConfigError(
            "0 would score without a parity certificate",
            where="infer.parity_samples",
            fix="Set it to 1 or more (the default is 256): what a published model scores must be certified.",
        )
    name, version = in_service(config)
    if version is None:
        raise not_published(name)
    result = partial(ScoreResult, stage="score", name=name, version=version.version)
    if _is_of_this_run(context, version):
        check_run(version.run)
        rows = context.artifact("infer").manifest.rows_out
        theirs, reused, folder = context, True, version.run
    else:
        scored = _score(context, name, version)
        theirs, reused, folder = _theirs(context, version), scored.reused, scored.artifact
        rows = scored.manifest.rows_out
    stored = theirs.artifact(theirs.run.store_stage)
    judged = judge(context, version, folder, store=GraphStore.of(stored.uri, stored.manifest))
    return result(
        seconds=time.monotonic() - begin,
        reused=reused,
        reads=_reads(theirs, version),
        predictions=join(folder, PREDICTIONS),
        rows=rows,
        figures=judged.figures,
        drift=judged.drift,
        report=page_of(judged.record, version),
    )


def is_quick(context: StageContext) -> bool:
    """Return whether the predictions of the model in service exist already, and are judged."""
    context = to_score(context)
    _, version = in_service(context.config)
    if version is None:
        return False
    if _is_of_this_run(context, version):
        return committed(context.run.artifact("infer")) and is_judged(context, version, version.run)
    if not (are_encoded(version.states) or committed(context.run.artifact(context.run.store_stage))):
        return False
    theirs = _theirs(context, version)
    scored = theirs.run.workspace.artifact("score", _fingerprint(theirs, version))
    are_there = committed(scored) and all(map(committed, _reads(theirs, version)[:-1]))
    return are_there and is_judged(context, version, scored)


def to_score(context: StageContext) -> StageContext:
    """Return the run of the same tables that nothing trains on: without held-out edges, and with any splits."""
    context = replace(context, run=replace(context.run, trains=False))
    task = context.config.task
    targets = EdgeTargets.of(task, context.config.graph, seed=context.config.seed)
    if targets is None or not targets.hide_edges:
        return context
    changed = {"split": NoSplit()} if task.kind == "link" else {"messages": True}
    # the start of training changes no score, and may be gone
    train = context.config.train.model_copy(update={"start": None})
    config = context.config.model_copy(update={"task": task.model_copy(update=changed), "train": train})
    return replace(context, run=resolve_again(context.run, config))


def in_service(config: Config) -> tuple[str, Version | None]:
    """Return the name that a config publishes under, and its version in service, if any."""
    name = config.publish.name or config.name
    champion = registry.read_aliases(config.workspace, name).champion
    return name, None if champion is None else registry.read_version(config.workspace, name, champion)


def not_published(name: str) -> RegistryError:
    """Return the error for a name without a version in service."""
    return RegistryError("no version is in service", where=name, fix="Run `gnnflow publish CONFIG` first.")


def _is_of_this_run(context: StageContext, version: Version) -> bool:
    return same_run(version.run, context.run.uri) and exists(context.run.record)


def _theirs(context: StageContext, version: Version) -> StageContext:
    """Return the run of today's tables with the version's sampling and scales."""
    config = _as_trained(scaled_for(context, version), version)
    return replace(context, run=resolve_again(context.run, config))


def _reads(context: StageContext, version: Version) -> tuple[str, ...]:
    run = context.run
    return run.artifact(run.store_stage), run.artifact("select"), version.uri


def _fingerprint(theirs: StageContext, version: Version) -> str:
    infer, run = STAGES["infer"], theirs.run
    assert infer.keys is not None
    inputs: dict[str, Any] = {stage: run.fingerprints[stage] for stage in (run.store_stage, "select")}
    # a repeated training may give other weights under the same config
    inputs |= {"train": version.fingerprints["train"], "trained": version.digests["train"]}
    if code := run.code_of("infer"):
        inputs["code"] = code
    return fingerprint_of("score", keys=infer.keys(theirs.config), inputs=inputs, format_version=infer.version)


@dataclass(frozen=True)
class Prepared:
    """The run of today's tables as a version reads them, whose store and neighbours are made, and its output."""

    context: StageContext
    learned: Learned


def prepare(context: StageContext, name: str, version: Version) -> Prepared:
    """Make what a version reads of the current graph.

    Raises RegistryError if it cannot score this graph, GuardError if its tables changed more than the config allows.
    """
    if found := other_code(version):
        raise RegistryError(
            f"version {version.version} cannot score this graph: {'; '.join(found)}",
            where=name,
            fix="Give the stages the code of that time, or train and publish a version with today's code.",
        )
    stored = _store_as_encoded(context, version)
    graph = stored.facts(GraphFacts)
    # the relations that it aggregates are known only after the select stage
    signature = _named_signature(registry.signature_of(graph), graph, version)
    _check_fits(version, replace(signature, neighbors=version.signature.neighbors), name)
    check_scored(context, stored)
    theirs = _theirs(context, version)
    make_inputs(theirs, version)
    signature = registry.signature_of(graph, theirs.artifact("select").facts(SelectFacts))
    _check_fits(version, _named_signature(signature, graph, version), name)
    # a graph without labels does not tell their kind, but the version's signature does
    kind = version.signature.learned if graph.label_kind == "none" else graph.label_kind
    return Prepared(theirs, Learned(kind, version.class_names or graph.class_names))


def _score(context: StageContext, name: str, version: Version) -> ArtifactResult:
    """Score the current graph store with a version's weights, code, sampling and seed."""
    prepared = prepare(context, name, version)
    theirs = prepared.context
    inputs = {stage: theirs.artifact(stage) for stage in (theirs.run.store_stage, "select")}
    work = partial(score_graph, model=version.uri, learned=prepared.learned, trained=version.digests["train"])
    made = do_once(theirs, "score", work, fingerprint=_fingerprint(theirs, version), inputs=inputs)
    if made.facts(InferFacts).model != version.digests["train"]:  # its folder was put in this place
        raise StorageError(
            f"holds the scores of another model than version {version.version}",
            where=made.artifact,
            fix="Delete this folder and score again.",
        )
    return made


def _store_as_encoded(context: StageContext, version: Version) -> Artifact:
    """Return a graph store of today's tables with the version's encoded columns, which is made if missing.

    Where the version encodes columns the tables are read once, by its states.
    """
    if not are_encoded(version.states):
        make_store(context)
        stored = context.artifact(context.run.store_stage)
        if encode_alike(version.states, stored.facts(GraphFacts).states):
            return stored
    theirs = _theirs(context, version)
    make_store(theirs)
    return theirs.artifact(theirs.run.store_stage)


def _named_signature(signature: Signature, graph: GraphFacts, version: Version) -> Signature:
    """Return a graph's signature with the model's number of classes where these have names.

    Today's tables may hold labels of fewer classes, or of others: predictions are of the model's own.
    """
    alike = signature.label_kind == version.signature.label_kind and bool(version.class_names)
    if not alike or not (graph.class_names or not graph.labelled):
        return signature
    return replace(signature, num_classes=version.signature.num_classes)


def _check_fits(version: Version, graph: Signature, name: str) -> None:
    """Raise RegistryError if a version cannot score a graph, labelled or not."""
    if found := registry.misfits(version.signature, graph.labelled_as(version.signature)):
        raise RegistryError(
            f"version {version.version} cannot score this graph: {'; '.join(found)}",
            where=name,
            fix="Promote a version that was trained on it, or restore the columns.",
        )


def _as_trained(config: Config, version: Version) -> Config:
    """Return the config with the layers, the neighbours and the seed that the version was trained with.

    Raises RegistryError if these do not fit the config's tables.
    """
    from gnnflow.layers.saved import read_description

    # Read first: a version of an older format may hold keys that a config no longer has.
    model = read_description(version.uri, read=version.read).config
    held = json.loads(version.read(CONFIG))
    # Only the keys that decide its scores: others may not exist any more.
    trained = {"model": model.model_dump(mode="json"), **{key: held[key] for key in ("neighbors", "flat", "seed")}}
    # Partitions are balanced by the costs of its neighbours.
    trained["partition"] = held.get("partition", {"kind": "hash"})
    try:
        return config_from_dict({**config.model_dump(mode="json"), **trained})
    except ConfigError as error:
        raise RegistryError(
            f"version {version.version} cannot score this graph: as it was trained, {error.where}: {error.problem}",
            where=version.name,
            fix="Promote a version that was trained on it, or restore the tables.",
        ) from error
