"""Checks before the first stage runs, which need more than the config: tables, machine and workspace.

`target_checks.py` has the checks of labels, splits and targets.
"""

from __future__ import annotations

import os
import uuid
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.config import STAGES
from gnnflow.config.checks import problems_of
from gnnflow.config.own_code import own_function
from gnnflow.config.partition_section import PARTITIONERS
from gnnflow.config.stage_keys import own_encoders
from gnnflow.config.train_section import GlobalBatchConfig, needs_ranks
from gnnflow.graph.errors import ConfigError, GnnflowError, LayerError, StorageError, TrainingError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.train_labels import check_train_labels
from gnnflow.ingest.preview_tables import Errors, own_section
from gnnflow.ingest.preview_targets import count_labels
from gnnflow.neighbors.own import load_function
from gnnflow.sampling import priorities
from gnnflow.stages.bad_rows import check_bad_rows
from gnnflow.stages.meant_run import find_meant
from gnnflow.stages.model_size import check_trained_size
from gnnflow.stages.partition import refuse_large_graph
from gnnflow.stages.start import check_start
from gnnflow.stages.table_errors import errors_of_tables, preview_of
from gnnflow.stages.target_checks import check_label_metric, check_labels, check_targets, choice_errors, no_split
from gnnflow.stages.train import check_log, model_inputs
from gnnflow.storage.filesystem import join
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import committed, facts_if_committed, read_manifest
from gnnflow.storage.writing import remove_file, write_atomic

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gnnflow.config import Config
    from gnnflow.ingest.preview import Preview
    from gnnflow.stages.resolve import ResolvedRun

_PROBE = b"gnnflow tests that it can write here\n"


def check_stage(run: ResolvedRun, stage: str) -> None:
    """Raise one GnnflowError for everything that would stop a stage and is known already.

    Before `run` that is everything of the whole run. Other stages without artifacts check themselves what they need.
    """
    if stage == "run":
        check_run(run)
    elif STAGES[stage].keys is not None:
        if stage not in run.stages:
            raise ConfigError(
                f"a run of this config has no stage {stage}; it has {', '.join(run.stages)}",
                where=f"gnnflow {stage}",
                fix=f"Set {STAGES[stage].asked_by}, or leave the stage out.",
            )
        check_run(run, (stage,))


def check_run(run: ResolvedRun, stages: Sequence[str] | None = None, *, is_elsewhere: bool = False) -> None:
    """Raise one GnnflowError for everything that would stop a remaining stage and is known already.

    stages: those that are about to run, by default all of the run. Where one of them is stopped, the error tells the
    mistakes of later ones too: by then the tables would be ingested. is_elsewhere: whether another machine runs the
    stages, and checks its own libraries, devices and folders.
    """
    meant = find_meant(run, partial(preview_before, stages=stages or run.stages))
    errors = errors_of_run(meant.run, stages, here=() if is_elsewhere else None, preview=meant.preview)
    if (errors or meant.errors) and stages is not None:
        errors = errors_of_run(meant.run, here=stages, preview=meant.preview)
    told = Errors()
    for error in (*meant.errors, *errors, *meant.unresolved):
        told.add(error)
    if told.found:
        raise joined([*told.found.values()])


def errors_of_run(
    run: ResolvedRun,
    stages: Sequence[str] | None = None,
    *,
    here: Sequence[str] | None = None,
    preview: Preview | None = None,
) -> list[GnnflowError]:
    """Return the errors that remaining stages would raise much later. stages: as for `check_run`.

    here: the ones of them that are about to run, whose libraries, devices and folders are checked; by default all.
    preview: a sample of the tables; None where they are ingested already, or no stage reads them. Built-in layers run
    on every execution, as the contract suite shows. So torch is loaded only for custom layers and for the model of
    train.start, and not if nothing is left to do.
    """
    config, errors, stages = run.config, Errors(), stages or run.stages
    missing = errors.attempt(partial(_missing, run, stages))
    for error in () if preview is None else errors_of_tables(preview, config):
        errors.add(error)
    of_rows = None if preview is None or _are_told(errors.found.values(), preview, config) else preview
    if missing is None:
        return list(errors.found.values())
    begun = [stage for stage in missing if here is None or stage in here]
    if "train" not in begun and _lack_labels(preview, config):
        missing = begun
    for error in _graph_errors(run, missing, preview):
        errors.add(error)
    for check in (
        partial(_check_own_code, config, begun),
        partial(_check_devices, config, begun),
        partial(_check_training, config, begun),
        partial(_check_train_rows, config, missing, of_rows),
        partial(_check_partitioner, run, begun, preview),
        partial(_check_bad_rows, run),
    ):
        errors.attempt(check)
    # it writes there, which is left to a run that may begin
    errors.attempt(partial(_check_folder if errors.found else _check_workspace, run.workspace.uri, missing))
    return list(errors.found.values())


def preview_before(run: ResolvedRun, stages: Sequence[str]) -> Preview | None:
    """Return a sample of the tables where stages that are left need them, and they are not ingested yet."""
    try:
        needs_tables = {"ingest", "train"}.intersection(_missing(run, stages)) and _missing(run, ("ingest",))
    except GnnflowError:  # of the workspace, which `errors_of_run` tells
        return None
    return preview_of(run.config, states=run.states) if needs_tables else None


def _lack_labels(preview: Preview | None, config: Config) -> bool:
    """Return whether tables have no labels, which is no mistake for stages before training."""
    if preview is None or preview.labelled is None or config.task.kind == "link":
        return False
    schema = preview.labelled.schema
    return schema is not None and not schema.has_labels


def _are_told(errors: Collection[GnnflowError], preview: Preview, config: Config) -> bool:
    """Return whether an error is about the labels or splits of the targets, so that these need not be counted."""
    if preview.labelled is None:
        return True
    own, uri = own_section(config.graph, preview.labelled), preview.labelled.source.uri
    words = [repr(name) for name in (own.label, own.split, own.timestamp) if name] + ["is in split"]
    return any(uri in error.where and any(word in error.problem for word in words) for error in errors)


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


def check_store(run: ResolvedRun) -> None:
    """Raise the errors that `check_run` could not know before there was a graph store."""
    if errors := _graph_errors(run, _missing(run, run.stages)):
        raise joined(errors)
    _check_bad_rows(run)


def _graph_errors(run: ResolvedRun, missing: Sequence[str], preview: Preview | None = None) -> list[GnnflowError]:
    """Return the errors of the graph store, or else of the tables, for the stages that are missing."""
    trains, errors = "train" in missing, Errors()
    if preview is not None and preview.read is None:
        return []  # later rows may show what there is
    is_known = preview is None or preview.labelled is not None
    sampled = None if preview is None else preview.read
    if trains and sampled is not None and run.config.graph.classes == "whole":
        errors.attempt(partial(check_label_metric, run.config, sampled.labelled))
    is_told = bool(errors.found)
    if preview is not None and _lack_weights(preview, run.config):
        kind, seed = run.config.neighbors.sampling.kind, run.config.seed
        errors.attempt(lambda: priorities(np.zeros(0, np.uint64), kind=kind, seed=seed))
    if trains and preview is not None and _lack_split(preview, run.config):
        errors.add(no_split(run.config))
    if is_told:
        errors.attempt(partial(_check_partitions, run.config))
    else:
        errors.attempt(partial(_check_store, run, preview, trains=trains, is_known=is_known, missing=missing))
    for error in choice_errors(run.config, preview) if trains and preview is not None else ():
        if not (is_told and error.where == "train.metric"):
            errors.add(error)
    return list(errors.found.values())


def _lack_weights(preview: Preview, config: Config) -> bool:
    """Return whether all edge tables are there, and none has a column of weights."""
    edges = [each for each in preview.tables if not each.is_nodes]
    has_none = not any(own_section(config.graph, each).weight_column in each.names for each in edges)
    return has_none and len(edges) == len(config.graph.edge_tables)


def _lack_split(preview: Preview, config: Config) -> bool:
    """Return whether the table of targets has its column of labels, and not its column of splits."""
    if config.task.kind != "node" or config.task.split.kind != "column" or config.graph.label is None:
        return False
    own = config.graph.of_targets(edges=False)
    of_targets = (each.parts for each in preview.tables if each.is_nodes and each.number == config.graph.target_type)
    names = [{*part.column_names} for parts in of_targets for part in parts]
    return bool(names) and all(own.label in held and own.split not in held for held in names)


def _check_store(
    run: ResolvedRun, preview: Preview | None, *, trains: bool, is_known: bool, missing: Sequence[str]
) -> None:
    if not trains and ("flat" not in missing or run.config.flat.targets == "all"):
        return
    facts = _facts_of_store(run)
    if trains and is_known:
        check_labels(run.config, facts=facts, preview=preview)
    if trains:
        _check_partitions(run.config)
        _check_start(run)
    if facts is not None:
        check_targets(run.config, facts, trains=trains)


def _check_train_rows(config: Config, missing: Sequence[str], preview: Preview | None) -> None:
    """Raise TrainingError where a sample that holds all targets shows that a model learns nothing from them."""
    counted = None if preview is None or "train" not in missing else count_labels(preview)
    if counted is not None:
        check_train_labels(counted)


def _facts_of_store(run: ResolvedRun) -> GraphFacts | None:
    """Return the facts of the run's graph store, or of one that is still to be partitioned; None before ingest."""
    writers = [stage for stage in reversed(run.stages) if STAGES[stage].writes_store]
    found = (facts_if_committed(run.artifact(stage), GraphFacts) for stage in writers)
    return next((facts for facts in found if facts is not None), None)


def _check_bad_rows(run: ResolvedRun) -> None:
    """Raise GuardError if ingest, under a more tolerant config, set aside more rows than this config allows."""
    ingested = run.artifact("ingest")
    if run.config.graph.on_bad_rows == "quarantine" and (facts := facts_if_committed(ingested, GraphFacts)) is not None:
        check_bad_rows(facts.tables, run.config.graph, ingested)


def _check_partitioner(run: ResolvedRun, missing: Sequence[str], preview: Preview | None) -> None:
    """Raise ConfigError if the partitioner cannot run here: its library is missing, or memory for the graph.

    Clusters elsewhere are not checked.
    """
    config, kind = run.config, run.config.partition.kind
    if "partition" not in missing:
        return
    if kind in PARTITIONERS and not config.cluster.is_elsewhere and find_spec(PARTITIONERS[kind]) is None:
        raise ConfigError(
            f"{kind} is not allowed here: {PARTITIONERS[kind]} is not installed",
            where="partition.kind",
            fix=f"Install it: pip install 'gnnflow[{kind}]'. ldg needs no library.",
        )
    if (facts := facts_if_committed(run.artifact("ingest"), GraphFacts)) is not None:
        refuse_large_graph(config, num_nodes=facts.num_nodes, num_edges=facts.num_edges)
    elif preview is not None:
        counts = [sum(each.about_rows for each in preview.tables if each.is_nodes is are) for are in (True, False)]
        refuse_large_graph(config, num_nodes=counts[0], num_edges=counts[1])


def _check_partitions(config: Config) -> None:
    """Raise ConfigError if the number of partitions, which follows from the tables, conflicts with other keys."""
    said = [error.context or {} for error in problems_of(config)]
    if said:
        raise joined([ConfigError(each["text"], where=each["key"], fix=each["fix"]) for each in said])


def _check_scratch(config: Config) -> None:
    """Raise TrainingError if training on this machine cannot write to the folder `train.scratch`."""
    train, elsewhere = config.train, config.cluster.is_elsewhere and needs_ranks(config.train)
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
    elsewhere = config.cluster.is_elsewhere
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


def _check_folder(uri: str, missing: Sequence[str]) -> None:
    """Raise StorageError where a workspace on this machine lies in a file, or in a folder that cannot be written."""
    if not missing or "://" in uri:
        return
    there = next(each for each in (Path(uri), *Path(uri).parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        problem = f"the workspace cannot be written: {there} is no folder that can be written"
        raise StorageError(problem, where=uri, fix="Name a folder that can be written, or that can be made.")


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
