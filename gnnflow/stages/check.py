"""What can be said against a config before its first stage runs, beyond what its keys alone show."""

from __future__ import annotations

import os
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from gnnflow.config import STAGES, MAGNNConfig
from gnnflow.config.partition_section import PARTITIONERS
from gnnflow.config.train_section import GlobalBatchConfig, is_streamed, needs_ranks
from gnnflow.graph.errors import ConfigError, GnnflowError, LayerError, TrainingError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.labels import LABEL_KINDS, check_class_weight, check_loss, check_metric
from gnnflow.neighbors.own import load_function
from gnnflow.stages.bad_rows import check_bad_rows
from gnnflow.stages.curves import check_log
from gnnflow.stages.model_size import check_trained_size
from gnnflow.stages.start import check_start
from gnnflow.storage.filesystem import join
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import committed, read_facts, read_manifest
from gnnflow.storage.removal import remove_file
from gnnflow.storage.writing import write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import Config
    from gnnflow.graph.labels import LabelKind
    from gnnflow.stages.resolve import ResolvedRun

_PROBE = b"gnnflow asks whether it can write here\n"


def check_run(run: ResolvedRun, stages: Sequence[str] | None = None) -> None:
    """Raise the GnnflowError that a stage still to be done would raise hours from now for what is known already.

    stages: those that are about to run; by default all of the run's. Built-in layers run on every execution: the
    contract suite holds that. So torch is loaded for layers of one's own and for the model that train.start names, and
    not at all where nothing is left to do; tables are opened only where training is left to do and no graph store says
    what they hold.
    """
    missing = _missing(run, stages or run.stages)
    own = {name for stage in missing for name in STAGES[stage].own_code(run.config)}
    if run.config.model.kind in own:
        _check_own_layer(run.config)
    if run.config.train.loss.kind in own:
        from gnnflow.train.losses import load_loss

        load_loss(run.config.train.loss.kind)
    if run.config.neighbors.kind in own:
        load_function(run.config.neighbors.kind)
    _check_devices(run.config, missing)
    if "train" in missing:
        check_log(run.config)
        _check_scratch(run.config)
        outputs = run.config.graph.classes_given if run.config.task.kind == "node" else run.config.task.width
        check_trained_size(run.config, outputs=outputs or 1)
        _check_labels(run)
        _check_start(run)
    if "partition" in missing:
        _check_partitioner(run.config)
    if missing:
        _check_workspace(run.workspace.uri)
    _check_bad_rows(run)


def _check_bad_rows(run: ResolvedRun) -> None:
    """Raise GuardError where ingest, which another config allowed more, set more rows aside than this one allows."""
    ingested = run.artifact("ingest")
    if run.config.graph.on_bad_rows == "quarantine" and committed(ingested):
        tables = read_facts(ingested, read_manifest(ingested), GraphFacts).tables
        check_bad_rows(tables, run.config.graph, ingested)


def _check_partitioner(config: Config) -> None:
    """Raise ConfigError where the library that makes the partitions is missing on the machine that makes them."""
    kind = config.partition.kind
    if kind in PARTITIONERS and config.cluster.kind != "address" and find_spec(PARTITIONERS[kind]) is None:
        raise ConfigError(
            f"{kind} is not allowed here: {PARTITIONERS[kind]} is not installed",
            where="partition.kind",
            fix=f"Install it: pip install 'gnnflow[{kind}]'. ldg needs no library.",
        )


def _check_scratch(config: Config) -> None:
    """Raise TrainingError where training cannot file the graph in the folder that it is to be in on this machine."""
    train, elsewhere = config.train, config.cluster.kind == "address" and needs_ranks(config.train)
    folder = train.scratch if isinstance(train, GlobalBatchConfig) else None
    if folder is not None and not elsewhere and not (Path(folder).is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise TrainingError(
            f"{folder!r} is no folder that can be written to",
            where="train.scratch",
            fix="Name a folder of a local disk.",
        )


def _check_devices(config: Config, missing: Sequence[str]) -> None:
    """Raise ConfigError where a stage that computes on this machine is to use a card, and there is none.

    The workers of a cluster elsewhere say so themselves, when they begin.
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
    """Return the stages whose artifacts are not there. Raises the storage's error where that cannot be asked."""
    try:
        return [stage for stage in stages if not committed(run.artifact(stage))]
    except GnnflowError as error:
        problem = f"the workspace cannot be read: {error.problem}"
        raise type(error)(problem, where=run.workspace.uri, fix=error.fix) from error


def _check_labels(run: ResolvedRun) -> None:
    """Raise TrainingError where the tables hold no labels or splits, or labels that metric or loss do not fit."""
    from gnnflow.ingest.schema import node_table

    config = run.config
    if config.task.kind == "link":
        _check_choices(config, "link")
        return
    known = _known_of_tables(run)
    if known is None:
        return
    kind, has_split, rows = known
    if rows is not None and isinstance(config.model, MAGNNConfig):
        config.model.check_turned(rows)
    table = node_table(config.graph, config.graph.target_type)
    if not LABEL_KINDS[kind].has_labels:
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
    if not has_split and config.task.kind == "node":
        raise TrainingError(
            f"{table} has no split column {config.graph.split!r}, so no node is marked as train",
            where="graph.split",
            fix="Name the column, write one that says train, valid, test or null, or set task.split to {kind: random}.",
        )
    _check_choices(config, kind)


def _check_choices(config: Config, kind: LabelKind) -> None:
    """Raise TrainingError for a metric, a loss or weights of classes that labels of a kind do not have."""
    check_metric(config.train.metric, kind)
    if config.publish.metric is not None:
        check_metric(config.publish.metric, kind, where="publish.metric")
    check_loss(config.train.loss.kind, kind)
    check_class_weight(config.train.class_weight, kind)


def _check_start(run: ResolvedRun) -> None:
    """Raise what can be said against the model that training starts from.

    Its widths and relations where the graph store is there, and the selection that names the relations.
    """
    from gnnflow.stages.train import model_inputs

    if run.config.train.start is None:
        return
    store, selection = run.artifact(run.store_stage), run.artifact("select")
    facts = None
    if run.config.neighbors.kind == "direct" and committed(store):
        facts = GraphStore.of(store, read_manifest(store)).facts
    elif committed(store) and committed(selection):
        facts = GraphStore.of_run(store, selection).facts
    check_start(run.config, inputs=None if facts is None else model_inputs(facts, run.config.task))


def _known_of_tables(run: ResolvedRun) -> tuple[LabelKind, bool, int | None] | None:
    """Return the kind of label, whether there may be splits and how wide the rows are that the first layer reads.

    From the graph store, or the tables' schemas; a width of None is not known. None where a table is text: what its
    columns hold is known once all of it was read, and ingest says it then.
    """
    from gnnflow.ingest.schema import NodeSchema
    from gnnflow.ingest.tables import sources_of, tables_of
    from gnnflow.ingest.targets import DrawnSplit, EdgeTargets

    store, graph = run.artifact(run.store_stage), run.config.graph
    if committed(store):
        facts = read_facts(store, read_manifest(store), GraphFacts)
        return (
            facts.label_kind,
            True,
            _rows_of(run.config, facts.features.width, is_sparse=facts.features.kind == "sparse"),
        )
    targets = EdgeTargets.of(run.config.task, graph, seed=run.config.seed)
    nodes, edges = sources_of(graph, targets=targets)
    if any(chunk.text_columns for table in (*nodes, *edges) for chunk in table.chunks):
        return None
    drawn = DrawnSplit.of(run.config.task, seed=run.config.seed)
    labelled = tables_of(nodes, edges, graph, targets=targets, drawn=drawn).labelled.schema
    width = (
        _rows_of(run.config, labelled.feature_width, is_sparse=labelled.sparse is not None)
        if isinstance(labelled, NodeSchema)
        else None
    )
    return labelled.label_kind, labelled.has_split, width


def _rows_of(config: Config, features: int, *, is_sparse: bool) -> int:
    """Return how wide the rows are that the first layer reads: those of an encoder, or the features themselves."""
    if config.graph.schema.is_typed:
        return config.model.row_width
    return config.model.hidden if is_sparse or config.model.encoder == "linear" else features


def _check_workspace(uri: str) -> None:
    """Raise the storage's error where nothing can be written to the workspace: a file is written and removed again."""
    probe = join(uri, f".probe-{uuid.uuid4().hex}")
    try:
        write_atomic(probe, _PROBE)
        remove_file(probe)
    except GnnflowError as error:
        problem = f"the workspace cannot be written: {error.problem}"
        raise type(error)(problem, where=uri, fix=error.fix) from error


def _check_own_layer(config: Config) -> None:
    """Raise LayerError where a class cannot be loaded, or an execution of the run cannot run its layers."""
    from gnnflow.config import OwnLayerConfig
    from gnnflow.executions.table import check_model, executions_of
    from gnnflow.layers.kinds import load_layer_class
    from gnnflow.layers.model import ModelInputs, build_model
    from gnnflow.layers.pyg import EDGE_WIDTHS

    load_layer_class(config.model.kind)
    # The graph's own widths are not known before ingest; executions ask nothing of a layer that depends on them.
    width, graph = config.model.hidden, config.graph
    attributes = max(len(graph.edge_features_of(relation)) for relation in graph.edge_tables)
    inputs = ModelInputs(feature_width=width, num_outputs=width, attribute_width=attributes)
    try:
        model = build_model(config.model, inputs)
    except LayerError as error:
        # Arguments it does not take, and a convolution of PyG that reads no edge attributes: no widths would mend it.
        options = config.model.options if isinstance(config.model, OwnLayerConfig) else {}
        edgeless = config.model.kind.startswith("torch_geometric.") and not EDGE_WIDTHS & options.keys()
        if isinstance(error.__cause__, TypeError) or (edgeless and error.where == "model.kind"):
            raise
        return  # it may need other widths than these: the train stage builds it with the graph's own, and then says why
    check_model(model, names=executions_of(config.train.strategy, is_streamed=is_streamed(config.train)))
