"""Checks before the first stage runs, which need more than the config: machine, workspace, labels, splits, targets."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.config import STAGES, MAGNNConfig, MiniBatchConfig, PlateauSchedule
from gnnflow.config.checks import problems_of
from gnnflow.config.own_code import own_function
from gnnflow.config.partition_section import PARTITIONERS
from gnnflow.config.stage_keys import own_encoders
from gnnflow.config.train_section import GlobalBatchConfig, is_hybrid, needs_ranks
from gnnflow.graph.errors import ConfigError, GnnflowError, LayerError, TableError, TrainingError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.labels import LABEL_KINDS, check_class_weight, check_loss, check_metric, selection_metrics
from gnnflow.graph.splits import SPLITS, check_splits, too_few_targets
from gnnflow.graph.train_labels import check_train_labels
from gnnflow.ingest.encodings import sections_of
from gnnflow.ingest.preview import Errors
from gnnflow.ingest.preview_rows import count_labels
from gnnflow.ingest.targets import DrawnSplit, EdgeTargets
from gnnflow.neighbors.own import load_function
from gnnflow.sampling import priorities
from gnnflow.stages.bad_rows import check_bad_rows
from gnnflow.stages.model_size import check_trained_size
from gnnflow.stages.start import check_start
from gnnflow.stages.table_errors import errors_of_tables, preview_of
from gnnflow.stages.train import check_log, model_inputs
from gnnflow.storage.filesystem import join
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import committed, facts_if_committed, read_manifest
from gnnflow.storage.user_tables import schema_of
from gnnflow.storage.writing import remove_file, write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import Config
    from gnnflow.graph.labels import LabelKind
    from gnnflow.ingest.preview import Preview
    from gnnflow.ingest.tables import EdgeTable, NodeTable
    from gnnflow.ingest.text import SourceTable
    from gnnflow.stages.resolve import ResolvedRun

_PROBE = b"gnnflow tests that it can write here\n"


def check_run(run: ResolvedRun, stages: Sequence[str] | None = None) -> None:
    """Raise one GnnflowError for everything that would stop a remaining stage and is known already.

    stages: those that are about to run, by default all of the run.
    """
    if errors := errors_of_run(run, stages):
        raise joined(errors)


def errors_of_run(
    run: ResolvedRun, stages: Sequence[str] | None = None, *, preview: Preview | None = None
) -> list[GnnflowError]:
    """Return the errors that remaining stages would raise much later. stages: as for `check_run`.

    preview: a sample of the tables, which else is read here where ingest is left to do. Built-in layers run on every
    execution, as the contract suite shows. So torch is loaded only for custom layers and for the model of train.start,
    and not if nothing is left to do.
    """
    missing, config = _missing(run, stages or run.stages), run.config
    errors = Errors()
    if preview is None and "ingest" in missing:
        preview = preview_of(config, states=run.states)
    for error in () if preview is None else errors_of_tables(preview, config):
        errors.add(error)
    of_rows = None if errors.found else preview
    for check in (
        partial(_check_own_code, config, missing),
        partial(_check_devices, config, missing),
        partial(_check_training, config, missing),
        partial(_check_graph, run, missing, preview),
        partial(_check_train_rows, missing, of_rows),
        partial(_check_partitioner, config, missing),
        partial(_check_bad_rows, run),
    ):
        errors.attempt(check)
    if not errors.found:  # it writes there
        errors.attempt(partial(_check_workspace, run.workspace.uri, missing))
    return list(errors.found.values())


def joined(errors: Sequence[GnnflowError]) -> GnnflowError:
    """Return one error for one or several; of several its kind is the first one's."""
    if len(errors) == 1:
        return errors[0]
    lines = [f"{len(errors)} things would stop this run:", *map(str, errors)]
    return type(errors[0])("\n  ".join(lines))


def _check_own_code(config: Config, missing: Sequence[str]) -> None:
    own = {name for stage in missing for name in STAGES[stage].own_code(config)}
    if config.model.kind in own:
        _check_own_layer(config)
    if config.train.loss.kind in own:
        from gnnflow.train.losses import load_loss

        load_loss(config.train.loss.kind)
    if config.neighbors.kind in own:
        load_function(config.neighbors.kind)
    for encoder in own & {*own_encoders(config)}:
        own_function(encoder, where="graph.columns", raises=ConfigError)


def _check_training(config: Config, missing: Sequence[str]) -> None:
    if "train" in missing:
        check_log(config)
        _check_scratch(config)
        outputs = config.graph.classes_given if config.task.kind == "node" else config.task.width
        check_trained_size(config, outputs=outputs or 1)


def check_label_metric(config: Config, labelled: NodeTable | EdgeTable) -> None:
    """Raise TableError for a metric that the labels do not define, before ingest computes anything."""
    metric, kind = config.train.metric, labelled.schema.label_kind
    if not labelled.schema.has_labels or metric in selection_metrics(kind):
        return
    label, choices = labelled.config.label_column, " or ".join(selection_metrics(kind))
    if kind == "regression":
        found = f"column {label!r} holds floats, numbers to predict, and train.metric is {metric}, a metric of classes"
        fix = f"For classes set graph.classes: distinct; for numbers set train.metric: {choices}."
    else:
        found, fix = f"{metric} is not defined for {kind} labels", f"Set train.metric: {choices}."
    raise TableError(found, where=labelled.uri, fix=fix)


def check_store(run: ResolvedRun) -> None:
    """Raise the errors that `check_run` could not know before there was a graph store."""
    _check_graph(run, _missing(run, run.stages))
    _check_bad_rows(run)


def _check_graph(run: ResolvedRun, missing: Sequence[str], preview: Preview | None = None) -> None:
    """Check the graph store, or else the tables, for the stages that are missing."""
    if preview is not None and preview.read is None:
        return  # the tables have errors, which are told
    trains = "train" in missing
    sampled = None if preview is None else preview.read
    if trains and sampled is not None and run.config.graph.classes == "whole":
        check_label_metric(run.config, sampled.labelled)
    if sampled is not None and not any(table.schema.has_weight for table in sampled.edges):
        priorities(np.zeros(0, np.uint64), kind=run.config.neighbors.sampling.kind, seed=run.config.seed)
    if not trains and ("flat" not in missing or run.config.flat.targets == "all"):
        return
    facts = facts_if_committed(run.artifact(run.store_stage), GraphFacts)
    if trains:
        check_labels(_as_known(run), facts)
        _check_partitions(run.config)
        _check_start(run)
    if facts is not None:
        check_targets(run.config, facts, trains=trains)


def _as_known(run: ResolvedRun) -> Config:
    """Return the config with the kinds of columns that the model of graph.scaled_as knows."""
    return run.config.model_copy(update={"graph": sections_of(run.states, run.config.graph)})


def _check_train_rows(missing: Sequence[str], preview: Preview | None) -> None:
    """Raise TrainingError where a sample that holds all targets shows that a model learns nothing from them."""
    counted = None if preview is None or "train" not in missing else count_labels(preview)
    if counted is not None:
        check_train_labels(counted)


def _check_bad_rows(run: ResolvedRun) -> None:
    """Raise GuardError if ingest, under a more tolerant config, set aside more rows than this config allows."""
    ingested = run.artifact("ingest")
    if run.config.graph.on_bad_rows == "quarantine" and (facts := facts_if_committed(ingested, GraphFacts)) is not None:
        check_bad_rows(facts.tables, run.config.graph, ingested)


def _check_partitioner(config: Config, missing: Sequence[str]) -> None:
    """Raise ConfigError if the library of the partitioner is not installed here; clusters elsewhere are not checked."""
    kind = config.partition.kind
    if "partition" not in missing:
        return
    if kind in PARTITIONERS and config.cluster.kind != "address" and find_spec(PARTITIONERS[kind]) is None:
        raise ConfigError(
            f"{kind} is not allowed here: {PARTITIONERS[kind]} is not installed",
            where="partition.kind",
            fix=f"Install it: pip install 'gnnflow[{kind}]'. ldg needs no library.",
        )


def _check_partitions(config: Config) -> None:
    """Raise ConfigError if the number of partitions, which follows from the tables, conflicts with other keys."""
    said = [error.context or {} for error in problems_of(config)]
    if said:
        raise joined([ConfigError(each["text"], where=each["key"], fix=each["fix"]) for each in said])


def _check_scratch(config: Config) -> None:
    """Raise TrainingError if training on this machine cannot write to the folder `train.scratch`."""
    train, elsewhere = config.train, config.cluster.kind == "address" and needs_ranks(config.train)
    folder = train.scratch if isinstance(train, GlobalBatchConfig) else None
    if folder is not None and not elsewhere and not (Path(folder).is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise TrainingError(
            f"{folder!r} is not a writable folder",
            where="train.scratch",
            fix="Name a folder of a local disk.",
        )


def _check_devices(config: Config, missing: Sequence[str]) -> None:
    """Raise ConfigError if a stage that computes on this machine needs a GPU, and there is none.

    The workers of a cluster elsewhere check their devices themselves, when they begin.
    """
    elsewhere = config.cluster.kind == "address"
    asked = {"train.device": config.train.device} if "train" in missing else {}
    if elsewhere and needs_ranks(config.train):
        asked = {}
    if "infer" in missing and not elsewhere and config.infer.device != "same":
        asked["infer.device"] = config.infer.device
    if "infer" in missing and not elsewhere and config.infer.device == "same":
        asked["train.device"] = config.train.device
    for key, name in asked.items():
        if name == "cuda":
            from gnnflow.kernels.device import check_device

            check_device(name, where=key)


def _missing(run: ResolvedRun, stages: Sequence[str]) -> list[str]:
    """Return the stages without artifacts. Raises the storage's error if the workspace cannot be read."""
    try:
        return [stage for stage in stages if not committed(run.artifact(stage))]
    except GnnflowError as error:
        problem = f"the workspace cannot be read: {error.problem}"
        raise type(error)(problem, where=run.workspace.uri, fix=error.fix) from error


def _check_start(run: ResolvedRun) -> None:
    """Check the model that training starts from.

    Its widths and relations are checked only after the stages that decide them.
    """
    if run.config.train.start is None:
        return
    store, selection = run.artifact(run.store_stage), run.artifact("select")
    facts = None
    if run.config.neighbors.kind == "direct" and committed(store):
        facts = GraphStore.of(store, read_manifest(store)).facts
    elif committed(store) and committed(selection):
        facts = GraphStore.of_run(store, selection).facts
    check_start(run.config, inputs=None if facts is None else model_inputs(facts, run.config.task))


def _check_workspace(uri: str, missing: Sequence[str]) -> None:
    """Write a file to the workspace and remove it again, if a stage is left to do. Raises the storage's error."""
    if not missing:
        return
    probe = join(uri, f".probe-{uuid.uuid4().hex}")
    try:
        write_atomic(probe, _PROBE)
        remove_file(probe)
    except GnnflowError as error:
        problem = f"the workspace cannot be written: {error.problem}"
        raise type(error)(problem, where=uri, fix=error.fix) from error


def _check_own_layer(config: Config) -> None:
    """Raise LayerError if a class cannot be loaded, or an execution of the run cannot run its layers."""
    from gnnflow.config import OwnLayerConfig
    from gnnflow.executions.table import check_model, executions_of
    from gnnflow.layers.kinds import load_layer_class
    from gnnflow.layers.model import ModelInputs, build_model
    from gnnflow.layers.pyg import EDGE_WIDTHS

    load_layer_class(config.model.kind)
    # The widths of the graph are not known before ingest; whether executions can run a layer does not depend on them.
    width, graph = config.model.hidden, config.graph
    attributes = max(len(graph.edge_features_of(relation)) for relation in graph.edge_tables)
    inputs = ModelInputs(feature_width=width, num_outputs=width, attribute_width=attributes)
    try:
        model = build_model(config.model, inputs)
    except LayerError as error:
        # Wrong arguments, and a convolution of PyG that cannot read edge attributes, fail with all widths.
        options = config.model.options if isinstance(config.model, OwnLayerConfig) else {}
        edgeless = config.model.kind.startswith("torch_geometric.") and not EDGE_WIDTHS & options.keys()
        if isinstance(error.__cause__, TypeError) or (edgeless and error.where == "model.kind"):
            raise
        return  # it may need other widths than these: the train stage builds it with the widths of the graph
    check_model(model, names=executions_of(config.train))


@dataclass(frozen=True)
class _Targets:
    """Facts about targets; None if still unknown: a text table must be read as a whole first.

    row_width: columns of the rows that the first layer reads. columns: of the table of node targets.
    """

    label_kind: LabelKind | None
    has_split: bool
    row_width: int | None
    columns: tuple[str, ...] = ()


def check_labels(config: Config, facts: GraphFacts | None) -> None:
    """Raise TrainingError if the tables hold no labels or splits, or the metric or loss does not fit the labels.

    facts: of the graph store; None before ingest, when no rows are read.
    """
    from gnnflow.ingest.schema import node_table

    check_held_out(config)
    if config.task.kind == "link":
        _check_choices(config, "link")
        return
    known = _targets_of_tables(config) if facts is None else _targets_of_store(config, facts)
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
        column = config.graph.of_targets(edges=False).split_column
        raise TrainingError(
            f"{table} has no split column {column!r}, so no node is marked as train",
            where="graph.split",
            fix="Name the column, write one that says train, valid, test or null, or set task.split to {kind: random}. "
            "Without graph.split and task.split a missing split is drawn.",
        )
    if known.label_kind is not None:
        _check_choices(config, known.label_kind)


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
    train, outputs = config.train, facts.num_classes if config.task.kind == "node" else config.task.width
    check_trained_size(config, features=1 if facts.types else facts.features.width, outputs=outputs)
    check_splits(filled, patience=train.patience, on_plateau=isinstance(train.schedule, PlateauSchedule))
    if isinstance(train, MiniBatchConfig) and not train.elastic and not is_hybrid(train):
        targets = facts.splits["train"]
        # batches are halved until all ranks have equally many; a batch of one target cannot be halved
        if targets < train.workers or (train.batch_size == 1 and targets % train.workers):
            raise too_few_targets(targets, train.workers)


def _check_choices(config: Config, kind: LabelKind) -> None:
    """Raise TrainingError for a metric, a loss or class weights that a kind of labels does not support."""
    check_metric(config.train.metric, kind)
    if config.publish.metric is not None:
        check_metric(config.publish.metric, kind, where="publish.metric")
    check_loss(config.train.loss.kind, kind)
    check_class_weight(config.train.class_weight, kind)


def _targets_of_store(config: Config, facts: GraphFacts) -> _Targets:
    """Return the facts about targets that the graph store holds."""
    width = _row_width(config, facts.features.width, is_sparse=facts.features.kind == "sparse")
    return _Targets(facts.label_kind, bool(facts.splits.get("train")), width)


def _targets_of_tables(config: Config) -> _Targets:
    """Return the facts about targets that follow from the schemas of the tables."""
    from gnnflow.ingest.schema import NodeSchema
    from gnnflow.ingest.tables import sources_of, tables_of

    graph = config.graph
    targets = EdgeTargets.of(config.task, graph, seed=config.seed)
    drawn = DrawnSplit.of(config.task, seed=config.seed)
    nodes, edges = sources_of(graph, targets=targets)
    if any(chunk.text_columns for table in (*nodes, *edges) for chunk in table.chunks):
        return _targets_of_text(nodes[graph.target_type], config, is_drawn=drawn is not None)
    labelled = tables_of(nodes, edges, graph, targets=targets, drawn=drawn).labelled.schema
    target = nodes[graph.target_type]
    columns = tuple(target.schema().names) if target.chunks else ()
    found = _Targets(labelled.label_kind, labelled.has_split, None, columns)
    if not isinstance(labelled, NodeSchema) or any(part.section is not None for part in labelled.features):
        return found  # the width of columns to fit is not known yet
    width = _row_width(config, labelled.feature_width, is_sparse=labelled.sparse is not None)
    return replace(found, row_width=width)


def _targets_of_text(table: SourceTable, config: Config, *, is_drawn: bool) -> _Targets:
    """Return the facts about targets that follow from the column names of a text table of nodes."""
    if config.task.kind != "node" or not table.chunks:
        return _Targets(None, has_split=True, row_width=None)
    names, own = schema_of(table.chunks[0]).names, config.graph.of_targets(edges=False)
    kind: LabelKind | None = None if own.label_column in names else "none"
    return _Targets(kind, is_drawn or own.split_column in names, None, tuple(names))


def _row_width(config: Config, features: int, *, is_sparse: bool) -> int:
    """Return the width of the rows that the first layer reads: of an encoder, or of the features."""
    if config.graph.schema.is_typed:
        return config.model.row_width
    return config.model.hidden if is_sparse or config.model.encoder == "linear" else features
