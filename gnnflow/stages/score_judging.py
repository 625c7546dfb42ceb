"""Judges the predictions of a scoring, compares them with earlier ones, and keeps both in the list of scorings."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from gnnflow.config.decide_section import named_class, stored_decide
from gnnflow.graph.errors import StorageError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.labels import AUTO, LABEL_KINDS, choose_metric, names_of_classes
from gnnflow.registry.scores import read_scores, record_score
from gnnflow.registry.versions import CONFIG
from gnnflow.stages.column_drift import column_drifts
from gnnflow.stages.edge_drift import edge_drifts
from gnnflow.stages.score_drift import ScoreDrift, drift_from
from gnnflow.stages.score_figures import Figures, Model, figures_of
from gnnflow.stages.score_guards import check_drift
from gnnflow.stages.trained_targets import SeenValues, trained_targets, training_store, value_columns
from gnnflow.storage.filesystem import exists, join
from gnnflow.storage.manifest import read_facts, read_manifest
from gnnflow.storage.run_folder import metric_of, read_run
from gnnflow.storage.workspace import RUN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gnnflow.registry import ScoreRecord, Version
    from gnnflow.stages.base import StageContext
    from gnnflow.storage.graph_store import GraphStore


@dataclass(frozen=True)
class Judged:
    """The figures of a scoring, their drift (None where nothing was scored before), and the record of both."""

    figures: Figures
    drift: ScoreDrift | None
    record: ScoreRecord


def judge(context: StageContext, version: Version, folder: str, *, store: GraphStore) -> Judged:
    """Return the figures of a version's predictions and their drift, and add them to the model's list of scorings.

    The scoring before is the last one of other predictions. Without one it is the version's run. Metrics are compared
    with the last of these that have them. Raises GuardError, and adds nothing, if they differ more than the config
    allows. store: the one that was scored.
    """
    workspace, name = context.config.workspace, version.name
    records = read_scores(workspace, name)
    last = next(records, None)
    if last is not None and _is_of(last, version, folder):  # asked for again
        found, drift = Figures.read(last.figures), ScoreDrift.read(last.drift) if last.drift else None
        check_drift(context.config, found, drift, folder=folder)
        return Judged(found, drift, last)
    trained = training_store(version)
    values = () if trained is None else value_columns(store, trained)
    model = _model_of(version)
    if trained is not None and store.facts.labelled and LABEL_KINDS[model.kind].has_labels:
        model = replace(model, trained=trained_targets(trained, values))
    found = figures_of(folder, model, SeenValues(store, context.config.infer.targets, values))
    earlier = (each for each in (last, *records) if each is not None and each.folder != folder)
    figures = _of_scorings(version, earlier)
    if folder != version.run and exists(join(version.run, RUN)):
        figures = chain(figures, _of_run(version, model, trained, values))
    drift = drift_from(found, figures)
    if drift is not None and trained is not None:
        drifts, _ = column_drifts(*(_all_facts(each) for each in (store, trained)))
        of_edges, _ = edge_drifts(store, trained)
        drift = drift.with_columns({**drifts, **of_edges})
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


def _all_facts(store: GraphStore) -> GraphFacts:
    """Return the facts of a store with the distributions of columns, which it does not keep in memory."""
    return read_facts(store.artifact, read_manifest(store.artifact), GraphFacts)


def _of_scorings(version: Version, records: Iterable[ScoreRecord]) -> Iterator[tuple[Figures, str]]:
    """Yield the figures of a model's scorings with their names, the last one first."""
    for each in records:
        by = "" if each.version == version.version else f" by version {each.version}"
        yield Figures.read(each.figures), f"the scores of {each.at}{by}"


def _of_run(
    version: Version, model: Model, trained: GraphStore | None, values: tuple[str, ...]
) -> Iterator[tuple[Figures, str]]:
    """Yield the figures of the version's own run, which are computed where nothing else has what is asked for."""
    targets = read_run(version.run)["config"]["infer"]["targets"]
    seen = None if trained is None else SeenValues(trained, targets, values)
    yield figures_of(version.run, model, seen), f"the predictions of version {version.version}'s own run"


def _model_of(version: Version) -> Model:
    """Return the properties of a version, without the targets of its training."""
    from gnnflow.layers.saved import read_decision
    from gnnflow.train.decisions import Deciding

    kind, config = version.signature.learned, json.loads(version.read(CONFIG))
    decision = read_decision(version.uri, read=version.read)
    names, decide = names_of_classes(version.class_names, version.signature.num_classes), stored_decide(config)
    deciding = Deciding.of(decide, decision, names=names)
    named = None if named_class(decide) is None or deciding is None else deciding.positive
    try:
        headline = metric_of({"config": config, "artifacts": version.artifacts})
    except StorageError:  # the artifact of its training, which knows what auto stood for, may be deleted
        headline = choose_metric(AUTO, kind, named=named)
    return Model(kind, version.class_names, headline, deciding, metric_class="" if named is None else names[named])
