"""Every stage, described once. Which stages a training strategy has is `pipelines.py`.

A row says what a stage is called, which stages' results it reads, the config keys that decide its own, the version of
its format and where its work function lives. The command line, the operators, fingerprints, reports and lineage read
this table and nothing else: a new stage is one row here and one module with its work function. Work is named, not
imported, so reading the table is as light as reading a config.

Keys that only change speed, memory or place stay out of a row, so that turning them never repeats work. Which files
the input tables consist of is no key either: `gnnflow.stages.resolve` adds their stamps, since a path alone says
nothing about what it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnnflow.config.neighbors_section import DirectNeighbors, MetapathNeighbors, NoSampling
from gnnflow.config.partition_section import BalancedPartition, EdgePartition, HashPartition
from gnnflow.config.pipelines import PIPELINES
from gnnflow.config.train_keys import RANKS_PLACE_ONLY, Device
from gnnflow.config.train_section import result_keys, several_ranks, trains_from_shards

if TYPE_CHECKING:
    from gnnflow.config.root import Config

Keys = dict[str, Any]

STORE = "store"
"""As a need: the stage that wrote the graph store this run computes on, whichever that is."""


def _no_code(_: Config) -> tuple[str, ...]:
    return ()


def _always(_: Config) -> bool:
    return True


@dataclass(frozen=True)
class Stage:
    """One stage.

    work: `module:function`. A stage with `keys` leaves an artifact: `work(run: StageRun) -> Made`, done once per
    fingerprint. One without (a check, a publication) is done whenever it is asked for: `work(context) -> StageResult`.
    needs: the stages whose artifacts it reads, as far as the run has them. version: raised when the same config and
    inputs would give other bytes. own_code: the user's own classes and functions that it runs, as `module:name`; their
    source enters the fingerprint. asked_for: whether a config's run has it, where its strategy does; asked_by: what to
    set so that it does. on_demand: a stage
    that needs it makes it where it is missing. reads_tables: it reads the user's tables; starts_from_model: where
    train.start names a model, what that holds decides its result; writes_store: its artifact is a graph store. quick:
    of a stage without keys, `module:function` that says of a context whether running the stage now takes no more than
    a few small files.
    """

    name: str
    summary: str
    work: str
    needs: tuple[str, ...] = ()
    version: int = 1
    keys: Callable[[Config], Keys] | None = None
    own_code: Callable[[Config], tuple[str, ...]] = _no_code
    asked_for: Callable[[Config], bool] = _always
    asked_by: str = ""
    on_demand: bool = False
    quick: str = ""
    reads_tables: bool = False
    starts_from_model: bool = False
    writes_store: bool = False


# With these keys batches are prepared, cached, evaluated and saved differently; the weights stay the same.
_TRAIN_SPEED_ONLY = {
    "prefetch",
    "cache",
    "recompute",
    "scratch",
    "eval_batch_size",
    "checkpoint_steps",
    "log",
    *RANKS_PLACE_ONLY,
}


def _ingest_keys(config: Config) -> Keys:
    # Where the tables lie is no part of what they hold: a copy elsewhere has its own stamps.
    keys: Keys = {"graph": config.graph.model_dump(mode="json", exclude={"nodes", "edges", "timestamp"})}
    if config.task.kind == "node":
        return keys
    # Which edges are held out decides which the store has.
    split = config.task.split
    keys |= {"split": split.model_dump(mode="json"), "seed": config.seed}
    keys |= {"timestamp": config.graph.timestamp} if split.earlier_only else {}
    return {**keys, "messages": config.task.messages} if config.task.kind == "edge" else keys


def _trains_from_shards(config: Config) -> bool:
    return trains_from_shards(config.train)


def _writes_store_anew(config: Config) -> bool:
    # Ingest has nodes by hash, and edges at their targets.
    partition = config.partition
    at_targets = isinstance(partition, EdgePartition) and partition.by == "target"
    return not (isinstance(partition, HashPartition) or at_targets)


def _partition_keys(config: Config) -> Keys:
    partition = config.partition.model_dump(mode="json")
    if not _writes_store_anew(config):
        return {"partition": partition}
    if not isinstance(config.partition, BalancedPartition):
        return {"partition": partition, "seed": config.seed}
    # What is aggregated of a node is what costs: its in-edges, or as many of them as any hop takes.
    kept = None if config.relation_fanouts is None else [max(fanout) for fanout in config.relation_fanouts]
    paths = config.neighbors.model_dump(mode="json") if isinstance(config.neighbors, MetapathNeighbors) else None
    return {"partition": partition, "kept": kept, "paths": paths, "seed": config.seed}


# What makes a sample's sums those of all edges, where it changed since a kind of sampling came to be.
_SCALE = {"weighted": "rank conditioning", "top_k": "none"}


def _select_keys(config: Config) -> Keys:
    if not isinstance(config.neighbors, DirectNeighbors):
        return {"neighbors": config.neighbors.model_dump(mode="json"), "seed": config.seed}
    sampling = config.neighbors.sampling
    chosen: Keys = {"kind": config.neighbors.kind, "sampling": sampling.kind}
    if sampling.kind in _SCALE:
        chosen["scale"] = _SCALE[sampling.kind]
    if config.fanouts is None:
        return {"neighbors": chosen}
    # Fan-outs are prefixes of one order, so the largest decides what has to be kept; of each relation its own.
    kept = _of_relations(config, max)
    return {"neighbors": {**chosen, "kept": max(config.fanouts) if kept is None else kept}, "seed": config.seed}


def _of_relations(config: Config, read: Callable[[tuple[int, ...]], Any]) -> dict[str, Any] | None:
    """Return what is read of each relation's fan-outs, where they have fan-outs of their own."""
    sampling = config.neighbors.sampling
    if isinstance(sampling, NoSampling) or isinstance(sampling.fanout, tuple) or not config.graph.schema.is_typed:
        return None
    return {name: read(fanout) for name, fanout in sorted(sampling.fanout.items())}


def _fanouts(config: Config, hops: int) -> list[int] | dict[str, list[int]] | None:
    """Return the fan-outs of the first hops, by relation where each has its own."""
    held = _of_relations(config, lambda fanout: list(fanout[:hops]))
    return held or (None if config.fanouts is None else list(config.fanouts[:hops]))


def _flat_keys(config: Config) -> Keys:
    flat = config.flat.model_dump(mode="json", exclude={"hops"})
    keys = {"flat": flat, "hops": config.num_hops, "fanouts": _fanouts(config, config.num_hops)}
    if config.task.kind == "node":
        return keys
    if config.task.kind == "edge":
        return {**keys, "targets": "edges"}
    drawn = config.task.negatives.model_dump(mode="json", include={"kind", "power", "pool"})
    return {**keys, "negatives": drawn, "seed": config.seed}


def _train_keys(config: Config) -> Keys:
    # The model that training starts from is an input: what it holds decides, not where it lies.
    train = result_keys(config.train, exclude=_TRAIN_SPEED_ONLY | {"start", "workers", "updater", "device"})
    train |= several_ranks(config.train) | _device_key(config.train.device)
    model = config.model.model_dump(mode="json")
    keys = {"model": model, "train": train, "fanouts": _fanouts(config, config.model.layers), "seed": config.seed}
    return keys if config.task.kind == "node" else {**keys, "task": config.task.model_dump(mode="json")}


def _infer_keys(config: Config) -> Keys:
    infer = config.infer.model_dump(mode="json", exclude={"device"}) | _device_key(config.scoring_device)
    return {"infer": infer, "fanouts": _fanouts(config, config.model.layers)}


def _device_key(device: Device) -> Keys:
    # What the CPU gives is named as it was before there was another; a card rounds sums elsewhere.
    return {} if device == "cpu" else {"device": device}


def _own_neighbors(config: Config) -> tuple[str, ...]:
    return (config.neighbors.kind,) if ":" in config.neighbors.kind else ()


def _own_layers(config: Config) -> tuple[str, ...]:
    return (config.model.kind,) if ":" in config.model.kind else ()


def _own_training_code(config: Config) -> tuple[str, ...]:
    return tuple(kind for kind in (config.model.kind, config.train.loss.kind) if ":" in kind)


STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage(
            "ingest",
            "Turn the tables into the graph store: dense ids, partitions, in-edges sorted by destination.",
            "gnnflow.stages.ingest:work",
            version=4,
            keys=_ingest_keys,
            reads_tables=True,
            writes_store=True,
        ),
        Stage(
            "partition",
            "Write the graph store anew with other partitions: those with few edges between them, or of even cost.",
            "gnnflow.stages.partition:work",
            needs=(STORE,),
            version=2,
            keys=_partition_keys,
            asked_for=_writes_store_anew,
            asked_by="partition.kind to one that has something to do",
            writes_store=True,
        ),
        Stage(
            "select",
            "Choose each node's neighbours once, for every stage and run that aggregates over them.",
            "gnnflow.stages.select:work",
            needs=(STORE,),
            keys=_select_keys,
            own_code=_own_neighbors,
            on_demand=True,
        ),
        Stage(
            "flat",
            "Cut the graph into k-hop neighbourhoods, in self-contained shards (GraphFlat).",
            "gnnflow.stages.flat:work",
            needs=(STORE, "select"),
            version=2,
            keys=_flat_keys,
            asked_for=_trains_from_shards,
            asked_by="train to {strategy: mini-batch, source: shards}",
        ),
        Stage(
            "train",
            "Train the model; a run that was killed continues at its checkpoint.",
            "gnnflow.stages.train:work",
            needs=(STORE, "select", "flat"),
            version=3,
            keys=_train_keys,
            own_code=_own_training_code,
            starts_from_model=True,
        ),
        Stage(
            "infer",
            "Score nodes layer by layer and certify the scores (GraphInfer).",
            "gnnflow.stages.infer:work",
            needs=(STORE, "select", "train"),
            version=4,
            keys=_infer_keys,
            own_code=_own_layers,
        ),
        Stage(
            "guards",
            "Stop where the tables are not what the last run's were.",
            "gnnflow.stages.guards:check",
            needs=("ingest",),
            quick="gnnflow.stages.guards:is_quick",
        ),
        Stage(
            "run",
            "Run all stages: tables to predictions. Resumes where an earlier run stopped; repeats nothing done.",
            "gnnflow.stages.pipeline:run",
            needs=("infer",),
            quick="gnnflow.stages.pipeline:is_quick",
        ),
        Stage(
            "publish",
            "Make a completed run a version of its model, promoted where it is at least as good as the champion.",
            "gnnflow.stages.publish:run",
            needs=("infer",),
            quick="gnnflow.stages.publish:is_quick",
        ),
        Stage(
            "score",
            "Score the current graph with the model in service.",
            "gnnflow.stages.score:run",
            needs=(STORE,),
            quick="gnnflow.stages.score:is_quick",
        ),
    )
}


def stages_of(config: Config) -> tuple[str, ...]:
    """Return the stages of a config's run that leave artifacts, in order: those of its strategy that it asks for."""
    return tuple(name for name in PIPELINES[config.train.strategy].stages if STAGES[name].asked_for(config))


def run_chain(config: Config) -> tuple[str, ...]:
    """Return the stages of one run, its completion last: what a scheduler makes one task of each."""
    return (*stages_of(config), "run")


def retraining_chain(config: Config) -> tuple[str, ...]:
    """Return the stages of a retraining run: guards before anything costs much, then publication, then scoring."""
    ingest, *rest = stages_of(config)
    return (ingest, "guards", *rest, "run", "publish", "score")


def stages_of_any() -> tuple[str, ...]:
    """Return every stage of some config's run, each after those it follows."""
    return tuple(dict.fromkeys(stage for row in PIPELINES.values() for stage in (*row.stages, "run")))


def needs_of(stage: str, stages: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of a run's stages whose artifacts a stage reads; `store` becomes the one that wrote it."""
    before = stages[: stages.index(stage)] if stage in stages else stages
    named = (_store_writer(before) if need == STORE else need for need in STAGES[stage].needs)
    return tuple(dict.fromkeys(need for need in named if need in before))


def _store_writer(stages: tuple[str, ...]) -> str:
    # The last one: a stage that partitions a store anew writes the one that later stages read.
    return next(stage for stage in reversed(stages) if STAGES[stage].writes_store)
