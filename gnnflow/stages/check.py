"""What can be said against a config before its first stage runs, beyond what its keys alone show."""

from __future__ import annotations

import os
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from gnnflow.config import STAGES
from gnnflow.config.checks import CHECKS
from gnnflow.config.partition_section import PARTITIONERS
from gnnflow.config.train_section import GlobalBatchConfig, needs_ranks
from gnnflow.graph.errors import ConfigError, GnnflowError, LayerError, TrainingError
from gnnflow.graph.facts import GraphFacts
from gnnflow.neighbors.own import load_function
from gnnflow.stages.bad_rows import check_bad_rows
from gnnflow.stages.check_targets import check_labels, check_targets
from gnnflow.stages.curves import check_log
from gnnflow.stages.model_size import check_trained_size
from gnnflow.stages.start import check_start
from gnnflow.storage.filesystem import join
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import committed, facts_if_committed, read_manifest
from gnnflow.storage.removal import remove_file
from gnnflow.storage.writing import write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import Config
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
    _check_graph(run, missing)
    if "partition" in missing:
        _check_partitioner(run.config)
    if missing:
        _check_workspace(run.workspace.uri)
    _check_bad_rows(run)


def check_store(run: ResolvedRun) -> None:
    """Raise what `check_run` could not know before the graph store was there."""
    _check_graph(run, _missing(run, run.stages))
    _check_bad_rows(run)


def _check_graph(run: ResolvedRun, missing: Sequence[str]) -> None:
    """Raise what the graph store, or the tables where it is not there, say against the stages that are missing."""
    trains = "train" in missing
    if not trains and ("flat" not in missing or run.config.flat.targets == "all"):
        return
    facts = facts_if_committed(run.artifact(run.store_stage), GraphFacts)
    if trains:
        check_labels(run.config, facts)
        _check_partitions(run.config)
        _check_start(run)
    if facts is not None:
        check_targets(run.config, facts, trains=trains)


def _check_bad_rows(run: ResolvedRun) -> None:
    """Raise GuardError where ingest, which another config allowed more, set more rows aside than this one allows."""
    ingested = run.artifact("ingest")
    if run.config.graph.on_bad_rows == "quarantine" and (facts := facts_if_committed(ingested, GraphFacts)) is not None:
        check_bad_rows(facts.tables, run.config.graph, ingested)


def _check_partitioner(config: Config) -> None:
    """Raise ConfigError where the library that makes the partitions is missing on the machine that makes them."""
    kind = config.partition.kind
    if kind in PARTITIONERS and config.cluster.kind != "address" and find_spec(PARTITIONERS[kind]) is None:
        raise ConfigError(
            f"{kind} is not allowed here: {PARTITIONERS[kind]} is not installed",
            where="partition.kind",
            fix=f"Install it: pip install 'gnnflow[{kind}]'. ldg needs no library.",
        )


def _check_partitions(config: Config) -> None:
    """Raise ConfigError where the partitions that follow from the tables do not go with the config's other keys."""
    try:
        for check in CHECKS:
            check(config)
    except PydanticCustomError as error:
        said = error.context or {}
        raise ConfigError(said["text"], where=said["key"], fix=said["fix"]) from error


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
    check_model(model, names=executions_of(config.train))
