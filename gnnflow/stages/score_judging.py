"""Judges the predictions of a scoring, compares them with earlier ones, and keeps both in the list of scorings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnflow.config.task_section import decide_of
from gnnflow.graph.errors import StorageError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.labels import AUTO, LABEL_KINDS, choose_metric
from gnnflow.registry.scores import read_scores, record_score
from gnnflow.registry.versions import CONFIG
from gnnflow.stages.guards import column_drifts
from gnnflow.stages.score_drift import ScoreDrift, drift_between
from gnnflow.stages.score_figures import Figures, Model, figures_of
from gnnflow.stages.score_guards import check_drift
from gnnflow.stages.trained_targets import trained_targets, training_store
from gnnflow.storage.filesystem import exists, join
from gnnflow.storage.run_folder import metric_of
from gnnflow.storage.workspace import RUN

if TYPE_CHECKING:
    from gnnflow.registry import ScoreRecord, Version
    from gnnflow.stages.base import StageContext


@dataclass(frozen=True)
class Judged:
    """The figures of a scoring, their drift (None where nothing was scored before), and the record of both."""

    figures: Figures
    drift: ScoreDrift | None
    record: ScoreRecord


def judge(context: StageContext, version: Version, folder: str, *, graph: GraphFacts) -> Judged:
    """Return the figures of a version's predictions and their drift, and add them to the model's list of scorings.

    The scoring before is the last one of other predictions. Without one it is the version's run. Raises GuardError, and
    adds nothing, if they differ more than the config allows. graph: of the store that was scored.
    """
    workspace, name = context.config.workspace, version.name
    records = read_scores(workspace, name)
    last = next(records, None)
    if last is not None and _is_of(last, version, folder):  # asked for again
        found, drift = Figures.read(last.figures), ScoreDrift.read(last.drift) if last.drift else None
        check_drift(context.config, found, drift, folder=folder)
        return Judged(found, drift, last)
    model = _model_of(context, version, is_judged=graph.labelled > 0)
    found, drift = figures_of(folder, model), None
    earlier = [each for each in (last, *records) if each is not None and each.folder != folder]
    if earlier:
        by = "" if earlier[0].version == version.version else f" by version {earlier[0].version}"
        drift = drift_between(found, Figures.read(earlier[0].figures), against=f"the scores of {earlier[0].at}{by}")
    elif folder != version.run and exists(join(version.run, RUN)):
        of_run = figures_of(version.run, model)
        drift = drift_between(found, of_run, against=f"the predictions of version {version.version}'s own run")
    if drift is not None and (stored := training_store(version)) is not None:
        drift = drift.with_columns(column_drifts(graph, stored.facts(GraphFacts))[0])
    check_drift(context.config, found, drift, folder=folder)  # a scoring that is stopped is no one's reference
    tables = context.config.graph.model_dump(mode="json")
    record = record_score(
        workspace,
        name,
        version=version.version,
        folder=folder,
        tables={side: tables[side] for side in ("nodes", "edges")},
        figures=found.as_document(),
        drift={} if drift is None else drift.as_document(),
    )
    return Judged(found, drift, record)


def is_judged(context: StageContext, version: Version, folder: str) -> bool:
    """Return whether a version's predictions are the last of the model's list of scorings, so that none are read."""
    last = next(read_scores(context.config.workspace, version.name), None)
    return last is not None and _is_of(last, version, folder)


def _is_of(record: ScoreRecord, version: Version, folder: str) -> bool:
    return (record.folder, record.version) == (folder, version.version)


def _model_of(context: StageContext, version: Version, *, is_judged: bool) -> Model:
    """Return the properties of a version. is_judged: whether tables have labels, so that learned targets matter."""
    from gnnflow.layers.saved import read_decision
    from gnnflow.train.decisions import Deciding

    kind = version.signature.learned
    try:
        headline = metric_of({"config": json.loads(version.read(CONFIG)), "artifacts": version.artifacts})
    except StorageError:  # the artifact of its training, which knows what auto stood for, may be deleted
        headline = choose_metric(AUTO, kind)
    decision = read_decision(version.uri, read=version.read)
    deciding = Deciding.of(decide_of(context.config.task), decision)
    trained = trained_targets(version) if is_judged and LABEL_KINDS[kind].has_labels else None
    return Model(kind, version.class_names, headline, deciding, trained)
