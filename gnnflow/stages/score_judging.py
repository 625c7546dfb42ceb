"""Judges the predictions of a scoring, compares them with earlier ones, and keeps both in the list of scorings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnflow.config.decide_section import stored_decide
from gnnflow.graph.errors import StorageError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.labels import AUTO, LABEL_KINDS, choose_metric
from gnnflow.registry.scores import read_scores, record_score
from gnnflow.registry.versions import CONFIG
from gnnflow.stages.guards import column_drifts
from gnnflow.stages.score_drift import ScoreDrift, drift_from
from gnnflow.stages.score_figures import Figures, Model, figures_of
from gnnflow.stages.score_guards import check_drift
from gnnflow.stages.trained_targets import trained_targets, training_store
from gnnflow.storage.filesystem import exists, join
from gnnflow.storage.run_folder import metric_of
from gnnflow.storage.workspace import RUN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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

    The scoring before is the last one of other predictions. Without one it is the version's run. Metrics are compared
    with the last of these that have them. Raises GuardError, and adds nothing, if they differ more than the config
    allows. graph: of the store that was scored.
    """
    workspace, name = context.config.workspace, version.name
    records = read_scores(workspace, name)
    last = next(records, None)
    if last is not None and (last.folder, last.version) == (folder, version.version):  # asked for again
        found, drift = Figures.read(last.figures), ScoreDrift.read(last.drift) if last.drift else None
        check_drift(context.config, found, drift, folder=folder)
        return Judged(found, drift, last)
    model = _model_of(version, is_judged=graph.labelled > 0)
    found = figures_of(folder, model)
    earlier = (each for each in (last, *records) if each is not None and each.folder != folder)
    drift = drift_from(found, _earlier(version, model, earlier, folder=folder))
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


def _earlier(
    version: Version, model: Model, records: Iterable[ScoreRecord], *, folder: str
) -> Iterator[tuple[Figures, str]]:
    """Yield earlier figures of a model with their names: of its scorings, the last one first, then of the run."""
    for each in records:
        by = "" if each.version == version.version else f" by version {each.version}"
        yield Figures.read(each.figures), f"the scores of {each.at}{by}"
    if folder != version.run and exists(join(version.run, RUN)):
        yield figures_of(version.run, model), f"the predictions of version {version.version}'s own run"


def _model_of(version: Version, *, is_judged: bool) -> Model:
    """Return the properties of a version. is_judged: whether tables have labels, so that learned targets matter."""
    from gnnflow.layers.saved import read_decision
    from gnnflow.train.decisions import Deciding

    kind, config = version.signature.learned, json.loads(version.read(CONFIG))
    try:
        headline = metric_of({"config": config, "artifacts": version.artifacts})
    except StorageError:  # the artifact of its training, which knows what auto stood for, may be deleted
        headline = choose_metric(AUTO, kind)
    decision = read_decision(version.uri, read=version.read)
    deciding = Deciding.of(stored_decide(config), decision)
    trained = trained_targets(version) if is_judged and LABEL_KINDS[kind].has_labels else None
    return Model(kind, version.class_names, headline, deciding, trained)
