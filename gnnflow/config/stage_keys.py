"""What decides each stage's result: the config keys that enter its fingerprint, and the user's own code.

Keys that only change speed, memory or place stay out, so that turning them never repeats work. Which files the input
tables consist of is no key either: `gnnflow.stages.resolve` adds their stamps, since a path alone says nothing about
what it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gnnflow.config.neighbors_section import DirectNeighbors, MetapathNeighbors, NoSampling
from gnnflow.config.partition_section import BalancedPartition, EdgePartition, HashPartition
from gnnflow.config.train_keys import RANKS_PLACE_ONLY, Device
from gnnflow.config.train_section import result_keys, several_ranks, trains_from_shards

if TYPE_CHECKING:
    from gnnflow.config.root import Config

Keys = dict[str, Any]

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


def ingest(config: Config) -> Keys:
    """Return what the tables are read as and, of pairs, which are held out."""
    # Where the tables lie is no part of what they hold: a copy elsewhere has its own stamps. By which model's scales
    # columns are scaled is none of what these are, which are an input. How many bad rows stop a run changes none.
    apart = {"nodes", "edges", "timestamp", "scaled_as", "max_bad_rows"}
    keys: Keys = {"graph": config.graph.model_dump(mode="json", exclude=apart)}
    if config.task.kind == "node" and config.task.split.kind == "column":
        return keys
    # Which nodes are held out is in the store, and which edges are decides which it has.
    keys |= {"split": config.task.split.model_dump(mode="json"), "seed": config.seed}
    if config.task.kind == "node":
        return keys
    keys |= {"timestamp": config.graph.timestamp} if config.task.split.earlier_only else {}
    return {**keys, "messages": config.task.messages} if config.task.kind == "edge" else keys


def cuts_shards(config: Config) -> bool:
    """Return whether a run has GraphFlat."""
    return trains_from_shards(config.train)


def writes_store_anew(config: Config) -> bool:
    """Return whether a run divides the nodes in another way than ingest did."""
    # Ingest has nodes by hash, and edges at their targets.
    partition = config.partition
    at_targets = isinstance(partition, EdgePartition) and partition.by == "target"
    return not (isinstance(partition, HashPartition) or at_targets)


def partition(config: Config) -> Keys:
    """Return how the nodes are divided, and of divisions by cost what a node costs."""
    partition = config.partition.model_dump(mode="json")
    if not writes_store_anew(config):
        return {"partition": partition}
    if not isinstance(config.partition, BalancedPartition):
        return {"partition": partition, "seed": config.seed}
    # What is aggregated of a node is what costs: its in-edges, or as many of them as any hop takes.
    kept = None if config.relation_fanouts is None else [max(fanout) for fanout in config.relation_fanouts]
    paths = config.neighbors.model_dump(mode="json") if isinstance(config.neighbors, MetapathNeighbors) else None
    return {"partition": partition, "kept": kept, "paths": paths, "seed": config.seed}


# What makes a sample's sums those of all edges, where it changed since a kind of sampling came to be.
_SCALE = {"weighted": "rank conditioning", "top_k": "none"}


def select(config: Config) -> Keys:
    """Return which in-edges may ever be read."""
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


def flat(config: Config) -> Keys:
    """Return depth, fan-outs and form of the neighbourhoods."""
    flat = config.flat.model_dump(mode="json", exclude={"hops"})
    keys = {"flat": flat, "hops": config.num_hops, "fanouts": _fanouts(config, config.num_hops)}
    if config.task.kind == "node":
        return keys
    if config.task.kind == "edge":
        return {**keys, "targets": "edges"}
    drawn = config.task.negatives.model_dump(mode="json", include={"kind", "power", "pool"})
    return {**keys, "negatives": drawn, "seed": config.seed}


def train(config: Config) -> Keys:
    """Return the model, the optimiser, and of ranks what weights depend on."""
    # The model that training starts from is an input: what it holds decides, not where it lies.
    train = result_keys(config.train, exclude=_TRAIN_SPEED_ONLY | {"start", "workers", "updater", "device"})
    train |= several_ranks(config.train) | _device_key(config.train.device)
    model = config.model.model_dump(mode="json")
    keys = {"model": model, "train": train, "fanouts": _fanouts(config, config.model.layers), "seed": config.seed}
    return keys if config.task.kind == "node" else {**keys, "task": config.task.model_dump(mode="json")}


def infer(config: Config) -> Keys:
    """Return what is scored and written."""
    infer = config.infer.model_dump(mode="json", exclude={"device"}) | _device_key(config.scoring_device)
    return {"infer": infer, "fanouts": _fanouts(config, config.model.layers)}


def _device_key(device: Device) -> Keys:
    # What the CPU gives is named as it was before there was another; a card rounds sums elsewhere.
    return {} if device == "cpu" else {"device": device}


def own_neighbors(config: Config) -> tuple[str, ...]:
    """Return the user's neighbour selection, as `module:name`, if it is one."""
    return (config.neighbors.kind,) if ":" in config.neighbors.kind else ()


def own_layers(config: Config) -> tuple[str, ...]:
    """Return the user's layer, as `module:name`, if it is one."""
    return (config.model.kind,) if ":" in config.model.kind else ()


def own_training_code(config: Config) -> tuple[str, ...]:
    """Return the user's layer and loss, those of the two that are the user's."""
    return tuple(kind for kind in (config.model.kind, config.train.loss.kind) if ":" in kind)
