"""Checks of labels, splits and targets: by the columns of the tables before ingest, by the graph store after it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gnnflow.config import DirectNeighbors, MAGNNConfig, MiniBatchConfig, PlateauSchedule
from gnnflow.config.decide_section import check_decide
from gnnflow.config.task_section import decide_of
from gnnflow.config.train_section import is_hybrid
from gnnflow.graph.errors import TableError, TrainingError
from gnnflow.graph.labels import (
    AUTO,
    LABEL_KINDS,
    check_class_weight,
    check_loss,
    check_metric,
    selection_metrics,
)
from gnnflow.graph.splits import SPLITS, check_splits, too_few_targets
from gnnflow.graph.train_labels import check_train_labels
from gnnflow.ingest.preview_tables import Errors
from gnnflow.ingest.preview_targets import count_labels
from gnnflow.ingest.run import refuse_empty_edge_splits, refuse_empty_splits
from gnnflow.ingest.schema import NodeSchema, node_table
from gnnflow.ingest.targets import DrawnSplit, EdgeTargets
from gnnflow.stages.model_size import check_trained_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gnnflow.config import Config
    from gnnflow.graph.errors import GnnflowError
    from gnnflow.graph.facts import GraphFacts
    from gnnflow.graph.labels import LabelKind
    from gnnflow.graph.schema import GraphSchema
    from gnnflow.ingest.preview import Preview
    from gnnflow.ingest.tables import EdgeTable, NodeTable, Tables


@dataclass(frozen=True)
class _Targets:
    """Facts about targets; None if still unknown: text must be read as a whole first.

    row_width: columns of the rows that the first layer reads. columns: of the labelled table.
    """

    label_kind: LabelKind | None
    has_split: bool
    row_width: int | None
    columns: tuple[str, ...] = ()


def check_labels(config: Config, *, facts: GraphFacts | None, preview: Preview | None) -> None:
    """Raise TrainingError if the tables hold no labels or splits, or the metric or loss does not fit the labels.

    facts: of the graph store; None before ingest, when a sample of the tables says what is known.
    """
    check_held_out(config)
    if facts is not None:
        _check_filled(config, facts)
    if config.task.kind == "link":
        _check_choices(config, "link")
        return
    if facts is None:
        assert preview is not None, "the tables are sampled where there is no graph store"
        known = _targets_of_tables(config, preview)
    else:
        known = _targets_of_store(config, facts)
    if known.row_width is not None and isinstance(config.model, MAGNNConfig):
        config.model.check_rotated_width(known.row_width)
    table = node_table(config.graph, config.graph.target_type)
    if known.label_kind is not None and not LABEL_KINDS[known.label_kind].has_labels:
        own = config.graph.of_targets(edges=config.task.kind != "node")
        has = "null" if own.label is None else f"{table} has no label column {own.label_column!r}"
        other = ", set graph.target to the type that is labelled" if config.graph.schema.is_typed else ""
        name = f"Name one of its columns ({', '.join(known.columns)})" if known.columns else "Name the column"
        raise TrainingError(
            f"{has}, so nothing can be trained",
            where="graph.label",
            fix=f"{name}{other}, or run the stages that need no labels: ingest, select, flat, "
            "and score with a published model.",
        )
    # a table of target edges without these columns was refused when its schema was read
    if not known.has_split and config.task.kind == "node":
        raise no_split(config)
    if known.label_kind is not None:
        _check_choices(config, known.label_kind)


def _check_filled(config: Config, facts: GraphFacts) -> None:
    """Raise TableError where a split lacks targets: ingest asks for none where the store is made to be scored."""
    if not any(facts.splits.get(split) for split in SPLITS):
        return  # there may be no labels or no column of splits, which is told otherwise
    graph, targets = config.graph, EdgeTargets.of(config.task, config.graph, seed=config.seed)
    if targets is None:
        where, column = [*graph.node_tables.values()][graph.target_type], graph.of_targets(edges=False).split_column
        drawn = DrawnSplit.of(config.task, seed=config.seed)
        refuse_empty_splits(facts.splits, column, drawn, where=where)
    else:
        refuse_empty_edge_splits(facts.splits, targets, where=graph.edge_tables[graph.target_edges])


def no_split(config: Config) -> TrainingError:
    """Return the error of a table of targets without the column of splits."""
    table, column = (
        node_table(config.graph, config.graph.target_type),
        config.graph.of_targets(edges=False).split_column,
    )
    return TrainingError(
        f"{table} has no split column {column!r} that marks nodes as train",
        where="graph.split",
        fix="Name the column, write one that says train, valid, test or null, or set task.split to {kind: random}. "
        "Without graph.split and task.split a missing split is drawn.",
    )


def check_held_out(config: Config) -> None:
    """Raise TrainingError if the split holds out no target to choose the best epoch by."""
    split = config.task.split
    if split.kind == "none":
        raise TrainingError(
            "none holds no edges out, so nothing can be trained",
            where="task.split.kind",
            fix="Set it to random, time or column, or score with a published model: gnnflow score.",
        )
    holds_none = getattr(split, "valid", None) == 0
    if holds_none and (config.task.kind == "link" or config.graph.label is not None):
        raise TrainingError(
            "0 is not allowed: the best epoch is chosen by the targets of valid",
            where="task.split.valid",
            fix="Set it to more than 0, or score with a published model: gnnflow score.",
        )


def check_targets(config: Config, facts: GraphFacts, *, trains: bool) -> None:
    """Raise TrainingError if a graph store has too few targets to train on, or only one label.

    Raises LayerError if its columns make the model larger than this machine. trains: False if only GraphFlat is about
    to run, which needs no targets.
    """
    filled = [split for split in SPLITS if facts.splits.get(split)]
    if not (trains or filled):
        return
    if trains:
        check_train_labels(facts)
        check_decide(decide_of(config.task), facts.label_kind, facts.num_classes, class_names=facts.class_names)
    train, outputs = config.train, facts.num_classes if config.task.kind == "node" else config.task.width
    check_trained_size(config, features=1 if facts.types else facts.features.width, outputs=outputs)
    check_splits(filled, patience=train.patience or 0, on_plateau=isinstance(train.schedule, PlateauSchedule))
    if isinstance(train, MiniBatchConfig) and not train.elastic and not is_hybrid(train):
        targets = facts.splits["train"]
        # batches are halved until all ranks have equally many; a batch of one target cannot be halved
        if targets < train.workers or (train.batch_size == 1 and targets % train.workers):
            raise too_few_targets(targets, train.workers)


def _check_choices(config: Config, kind: LabelKind) -> None:
    """Raise TrainingError for a metric, a loss or class weights that a kind of labels does not support."""
    for check in _choice_checks(config, kind):
        check()


def _choice_checks(config: Config, kind: LabelKind) -> Iterator[Callable[[], None]]:
    """Yield a check for each key of a metric, a loss or class weights."""
    yield partial(check_metric, config.train.metric, kind)
    if config.publish.metric is not None:
        yield partial(_check_published, config, config.publish.metric, kind)
    yield partial(check_loss, config.train.loss.kind, kind)
    yield partial(check_class_weight, config.train.class_weight, kind)


def _check_published(config: Config, metric: str, kind: LabelKind) -> None:
    """Raise TrainingError for a `publish.metric` that labels or `task.decide` do not define."""
    if metric != "cost":
        check_metric(metric, kind, where="publish.metric")
    elif decide_of(config.task).kind != "cost":
        raise TrainingError(
            "cost is of mistakes, and task.decide gives them no costs",
            where="publish.metric",
            fix="Set task.decide: {kind: cost, miss: 50}, or another metric.",
        )


def choice_errors(config: Config, preview: Preview) -> list[GnnflowError]:
    """Return the error of each key that a kind of labels does not support, where a sample shows their kind."""
    kind = "link" if config.task.kind == "link" else None if preview.read is None else _label_kind(preview)
    if kind is None or kind == "none":
        return []
    errors = Errors()
    for check in _choice_checks(config, kind):
        errors.attempt(check)
    errors.attempt(partial(_check_sampled_decide, config, kind, preview))
    return list(errors.found.values())


def _check_sampled_decide(config: Config, kind: LabelKind, preview: Preview) -> None:
    """Raise TrainingError where a sample shows labels that the rule of decisions does not fit."""
    counted = count_labels(preview)
    # classes that occur; fewer than two, or numbers with gaps, have other messages
    held = 0 if counted is None else sum(map(bool, counted.class_counts))
    names = None if counted is None or held <= counted.largest else counted.class_names
    classes = config.graph.num_classes or max(held, len(names or ()), 2)
    check_decide(decide_of(config.task), kind, classes, class_names=names)


def _targets_of_store(config: Config, facts: GraphFacts) -> _Targets:
    """Return the facts about targets that the graph store holds."""
    width = _row_width(config, facts.features.width, is_sparse=facts.features.kind == "sparse")
    return _Targets(facts.label_kind, bool(facts.splits.get("train")), width)


def _targets_of_tables(config: Config, preview: Preview) -> _Targets:
    """Return the facts about targets that follow from a sample of the tables.

    The labels of a text table have a kind once all of its rows are read.
    """
    sampled = preview.labelled
    assert preview.read is not None, "tables that show no types are not asked"
    assert sampled is not None, "a table whose labels cannot be read is not asked"
    labelled = preview.read.labelled
    schema, kind = labelled.schema, _label_kind(preview)
    if kind is None or not isinstance(schema, NodeSchema) or any(part.section is not None for part in schema.features):
        return _Targets(
            kind, schema.has_split, None, tuple(sampled.names)
        )  # the width of columns to fit is not known yet
    width = _row_width(config, schema.stored_width, is_sparse=schema.is_sparse)
    return _Targets(kind, schema.has_split, width, tuple(sampled.names))


def _label_kind(preview: Preview) -> LabelKind | None:
    """Return the kind of the labels, None where only later rows of text show it."""
    assert preview.read is not None, "tables that show no types are not asked"
    labelled = preview.read.labelled
    samples = [table.sample for table in preview.tables if table.source.uri == labelled.uri]
    is_whole = all(sample.is_whole for sample in samples) or not any(each.text_columns for each in labelled.chunks)
    return labelled.schema.label_kind if is_whole or not labelled.schema.has_labels else None


def _row_width(config: Config, features: int, *, is_sparse: bool) -> int:
    """Return the width of the rows that the first layer reads: of an encoder, or of the features."""
    if config.graph.schema.is_typed:
        return config.model.row_width
    return config.model.hidden if is_sparse or config.model.encoder == "linear" else features


def check_label_metric(config: Config, labelled: NodeTable | EdgeTable) -> None:
    """Raise TableError for a metric that the labels do not define, before ingest computes anything."""
    metric, kind = config.train.metric, labelled.schema.label_kind
    if not labelled.schema.has_labels or metric in (AUTO, *selection_metrics(kind)):
        return
    label, choices = labelled.config.label_column, " or ".join(selection_metrics(kind))
    if kind == "regression":
        found = f"column {label!r} holds floats, numbers to predict, and train.metric is {metric}, a metric of classes"
        fix = f"For classes set graph.classes: distinct; for numbers set train.metric: {choices}."
    else:
        found, fix = f"{metric} is not defined for {kind} labels", f"Set train.metric: {choices}."
    raise TableError(found, where=labelled.uri, fix=fix)


def alike_nodes(config: Config, tables: Tables) -> list[str]:
    """Return a sentence for each type of targets whose nodes a model can tell apart by their degrees alone.

    Such a type has no features, and no edge brings its nodes any within the model's layers.
    """
    schema = config.graph.schema
    if not schema.is_typed or not isinstance(config.neighbors, DirectNeighbors):
        return []
    informed = {
        number for number, table in enumerate(tables.nodes) if table.schema.has_features or table.schema.embeddings
    }
    bring = {number for number in range(schema.num_relations) if tables.table_of(number).schema.attributes}
    return alike_types(schema, config.graph.target_types, config.model.layers, informed=informed, bring=bring)


def alike_types(
    schema: GraphSchema, targets: Sequence[int], layers: int, *, informed: set[int], bring: set[int]
) -> list[str]:
    """Return the sentences of `alike_nodes`. informed: types with features; bring: relations with attributes."""
    joined = list(zip(schema.source_types, schema.target_types, strict=True))
    known = informed | {joined[number][1] for number in bring}
    found = []
    for target in targets:
        name = schema.types[target]
        if _reached(target, joined, layers) & known:
            continue
        both = joined + [(end, source) for source, end in joined]
        can_be = bool(_reached(target, both, layers) & informed)
        fix = "Set graph.reverse_edges: true" if can_be else f"Give {name} a table with features"
        found.append(
            f"{name}: its nodes have no features, and no edge into them brings any, so a model tells them apart by "
            f"their degrees alone. {fix}."
        )
    return found


def _reached(node_type: int, relations: Sequence[tuple[int, int]], steps: int) -> set[int]:
    """Return the types whose nodes a node of a type reads in so many steps. relations: their source and target."""
    found = {node_type}
    for _ in range(steps):
        found |= {source for source, target in relations if target in found}
    return found
