"""Checks of labels, splits and targets before training: by the tables' columns, then by the graph store.

Before ingest no rows are read. After it GraphFlat has not cost anything yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gnnflow.config import MAGNNConfig, MiniBatchConfig, PlateauSchedule
from gnnflow.config.train_section import is_hybrid
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.labels import LABEL_KINDS, check_class_weight, check_loss, check_metric
from gnnflow.graph.splits import SPLITS, check_splits, too_few_targets
from gnnflow.graph.train_labels import check_train_labels
from gnnflow.stages.model_size import check_trained_size
from gnnflow.storage.user_tables import schema_of

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.graph.facts import GraphFacts
    from gnnflow.graph.labels import LabelKind
    from gnnflow.ingest.text import SourceTable


@dataclass(frozen=True)
class _Known:
    """What is known of targets. None: not yet, because a table is text whose columns are known once all of it was read.

    row_width: columns of the rows that the first layer reads.
    """

    label_kind: LabelKind | None
    has_split: bool
    row_width: int | None


def check_labels(config: Config, facts: GraphFacts | None) -> None:
    """Raise TrainingError where the tables hold no labels or splits, or labels that metric or loss do not fit.

    facts: of the graph store, None where it is not there yet.
    """
    from gnnflow.ingest.schema import node_table

    check_held_out(config)
    if config.task.kind == "link":
        _check_choices(config, "link")
        return
    known = _known_targets(config) if facts is None else _known_of_store(config, facts)
    if known.row_width is not None and isinstance(config.model, MAGNNConfig):
        config.model.check_turned(known.row_width)
    table = node_table(config.graph, config.graph.target_type)
    if known.label_kind is not None and not LABEL_KINDS[known.label_kind].has_labels:
        named = config.graph.label
        has = "null" if named is None else f"{table} has no label column {named!r}"
        other = ", set graph.target to the type that is labelled" if config.graph.schema.is_typed else ""
        raise TrainingError(
            f"{has}, so nothing can be trained",
            where="graph.label",
            fix=f"Name the column{other}, or run the stages that need no labels: ingest, select, flat, "
            "and score with a published model.",
        )
    # what a table of edges that are targets lacks was said when its columns were read
    if not known.has_split and config.task.kind == "node":
        raise TrainingError(
            f"{table} has no split column {config.graph.split!r}, so no node is marked as train",
            where="graph.split",
            fix="Name the column, write one that says train, valid, test or null, or set task.split to {kind: random}.",
        )
    if known.label_kind is not None:
        _check_choices(config, known.label_kind)


def check_held_out(config: Config) -> None:
    """Raise TrainingError where the split holds out no target to choose the best epoch by."""
    split = config.task.split
    if split.kind == "none":
        raise TrainingError(
            "none holds no edges out, so nothing can be trained",
            where="task.split.kind",
            fix="Set it to random, time or column, or score with a published model: gnnflow score.",
        )
    if split.kind != "column" and split.valid == 0 and (config.task.kind == "link" or config.graph.label is not None):
        raise TrainingError(
            "0 is not allowed: the best epoch is chosen by the targets of valid",
            where="task.split.valid",
            fix="Set it to more than 0, or score with a published model: gnnflow score.",
        )


def check_targets(config: Config, facts: GraphFacts, *, trains: bool) -> None:
    """Raise TrainingError where a graph store has too few targets to train on, or all of them have one label.

    And LayerError where its columns make the model larger than this machine. trains: training is about to run. Else
    GraphFlat alone is, which may have no targets at all.
    """
    filled = [split for split in SPLITS if facts.splits.get(split)]
    if not (trains or filled):
        return
    if trains:
        check_train_labels(facts)
    train, outputs = config.train, facts.num_classes if config.task.kind == "node" else config.task.width
    check_trained_size(config, features=1 if facts.types else facts.features.width, outputs=outputs)
    check_splits(filled, patience=train.patience, on_plateau=isinstance(train.schedule, PlateauSchedule))
    if isinstance(train, MiniBatchConfig) and not train.elastic and not is_hybrid(train):
        targets = facts.splits["train"]
        # batches are halved until every rank has as many, and one of one target cannot be
        if targets < train.workers or (train.batch_size == 1 and targets % train.workers):
            raise too_few_targets(targets, train.workers)


def _check_choices(config: Config, kind: LabelKind) -> None:
    """Raise TrainingError for a metric, a loss or weights of classes that labels of a kind do not have."""
    check_metric(config.train.metric, kind)
    if config.publish.metric is not None:
        check_metric(config.publish.metric, kind, where="publish.metric")
    check_loss(config.train.loss.kind, kind)
    check_class_weight(config.train.class_weight, kind)


def _known_of_store(config: Config, facts: GraphFacts) -> _Known:
    """Return what the graph store says of targets."""
    width = _rows_of(config, facts.features.width, is_sparse=facts.features.kind == "sparse")
    return _Known(facts.label_kind, bool(facts.splits.get("train")), width)


def _known_targets(config: Config) -> _Known:
    """Return what the tables' schemas say of targets."""
    from gnnflow.ingest.schema import NodeSchema
    from gnnflow.ingest.tables import sources_of, tables_of
    from gnnflow.ingest.targets import DrawnSplit, EdgeTargets

    graph = config.graph
    targets = EdgeTargets.of(config.task, graph, seed=config.seed)
    drawn = DrawnSplit.of(config.task, seed=config.seed)
    nodes, edges = sources_of(graph, targets=targets)
    if any(chunk.text_columns for table in (*nodes, *edges) for chunk in table.chunks):
        return _known_of_text(nodes[graph.target_type], config, is_drawn=drawn is not None)
    labelled = tables_of(nodes, edges, graph, targets=targets, drawn=drawn).labelled.schema
    found = _Known(labelled.label_kind, labelled.has_split, None)
    if not isinstance(labelled, NodeSchema):
        return found
    width = _rows_of(config, labelled.feature_width, is_sparse=labelled.sparse is not None)
    return replace(found, row_width=width)


def _known_of_text(table: SourceTable, config: Config, *, is_drawn: bool) -> _Known:
    """Return what the names of a node table's columns say, where tables are text."""
    if config.task.kind != "node" or not table.chunks:
        return _Known(None, has_split=True, row_width=None)
    names = schema_of(table.chunks[0]).names
    kind: LabelKind | None = None if config.graph.label_column in names else "none"
    return _Known(kind, is_drawn or config.graph.split in names, None)


def _rows_of(config: Config, features: int, *, is_sparse: bool) -> int:
    """Return how wide the rows are that the first layer reads: those of an encoder, or the features themselves."""
    if config.graph.schema.is_typed:
        return config.model.row_width
    return config.model.hidden if is_sparse or config.model.encoder == "linear" else features
