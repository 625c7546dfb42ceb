"""The config keys that enter each stage's fingerprint, and the user's own code that does.

Keys that only change speed, memory or place stay out, so that changing them never repeats work. The files of the input
tables are not keys either: `gnnflow.stages.resolve` adds their stamps, since a path says nothing about its content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gnnflow.config.columns_section import TextColumn
from gnnflow.config.decide_section import named_class
from gnnflow.config.neighbors_section import DirectNeighbors, MetapathNeighbors, NoSampling
from gnnflow.config.partition_section import BalancedPartition, EdgePartition, HashPartition
from gnnflow.config.task_section import decide_of
from gnnflow.config.train_keys import BASELINES, RANKS_PLACE_ONLY, Baseline, Device
from gnnflow.config.train_section import rank_keys, result_keys, trains_from_shards

if TYPE_CHECKING:
    from gnnflow.config.graph_section import GraphConfig
    from gnnflow.config.root import Config

Keys = dict[str, Any]

# These keys change how batches are prepared, cached, evaluated and saved; the weights stay the same.
_TRAIN_SPEED_ONLY = {
    "prefetch",
    "cache",
    "recompute",
    "scratch",
    "eval_batch_size",
    "checkpoint_steps",
    "log",
    "baselines",
    *RANKS_PLACE_ONLY,
}


def ingest(config: Config) -> Keys:
    """Return the keys of reading the tables and, for pairs, of the split."""
    # Paths stay out: the tables' stamps are inputs. The model that gives the scales stays out: the scales themselves
    # are inputs. The number of bad rows that stops a run does not change the rows.
    apart = {"nodes", "edges", "timestamp", "scaled_as", "max_bad_rows"}
    graph = config.graph
    keys: Keys = {"graph": graph.model_dump(mode="json", exclude=apart)}
    read = {str(name): table for name in graph.edge_tables if (table := graph.edge_table_of(name)) is not None}
    if read:
        keys["relations"] = {name: table.model_dump(mode="json", exclude={"table"}) for name, table in read.items()}
        # the weight and the attributes of an edge are not the node's
        keys["foreign"] = [str(name) for name in graph.edge_tables if graph.is_node_table(name)]
    if config.task.kind == "node" and config.task.split.kind in {"auto", "column"}:
        return keys
    # The store holds the split of nodes, and the split of edges decides which edges it holds.
    keys |= {"split": config.task.split.model_dump(mode="json"), "seed": config.seed}
    if config.task.kind == "node":
        return keys
    keys |= {"timestamp": config.graph.timestamp} if config.task.split.earlier_only else {}
    if config.task.split.kind == "time":
        keys["bounds"] = "exact"  # earlier stores have the bounds of a sample of times
    return {**keys, "messages": config.task.messages} if config.task.kind == "edge" else keys


def cuts_shards(config: Config) -> bool:
    """Return whether a run has GraphFlat."""
    return trains_from_shards(config.train)


def rewrites_store(config: Config) -> bool:
    """Return whether a run divides the nodes in another way than ingest did: by hash, with edges at their targets."""
    partition = config.partition
    at_targets = isinstance(partition, EdgePartition) and partition.by == "target"
    return not (isinstance(partition, HashPartition) or at_targets)


def partition(config: Config) -> Keys:
    """Return the keys of the division of nodes and, for a division by cost, of a node's cost."""
    partition = config.partition.model_dump(mode="json")
    if not rewrites_store(config):
        return {"partition": partition}
    if not isinstance(config.partition, BalancedPartition):
        return {"partition": partition, "seed": config.seed}
    # A node costs by its aggregated edges: its in-edges, or as many of them as any hop takes.
    kept = None if config.relation_fanouts is None else [max(fanout) for fanout in config.relation_fanouts]
    paths = config.neighbors.model_dump(mode="json") if isinstance(config.neighbors, MetapathNeighbors) else None
    return {"partition": partition, "kept": kept, "paths": paths, "seed": config.seed}


# The scaling of a sample's sums, for kinds of sampling where it changed after their first version.
_SCALE = {"weighted": "rank conditioning", "top_k": "none"}


def select(config: Config) -> Keys:
    """Return the keys that choose the in-edges which later stages may read."""
    if not isinstance(config.neighbors, DirectNeighbors):
        return {"neighbors": config.neighbors.model_dump(mode="json"), "seed": config.seed}
    sampling = config.neighbors.sampling
    chosen: Keys = {"kind": config.neighbors.kind, "sampling": sampling.kind}
    if sampling.kind in _SCALE:
        chosen["scale"] = _SCALE[sampling.kind]
    if config.fanouts is None:
        return {"neighbors": chosen}
    # Fan-outs are prefixes of one order, so the largest one (of each relation) decides which edges are kept.
    kept = _read_relation_fanouts(config, max)
    return {"neighbors": {**chosen, "kept": max(config.fanouts) if kept is None else kept}, "seed": config.seed}


def _read_relation_fanouts(config: Config, read: Callable[[tuple[int, ...]], Any]) -> dict[str, Any] | None:
    """Return a value of each relation's fan-outs; None where all relations share one list."""
    sampling = config.neighbors.sampling
    if isinstance(sampling, NoSampling) or isinstance(sampling.fanout, tuple) or not config.graph.schema.is_typed:
        return None
    return {name: read(fanout) for name, fanout in sorted(sampling.fanout.items())}


def _fanouts(config: Config, hops: int) -> list[int] | dict[str, list[int]] | None:
    """Return the fan-outs of the first hops, by relation where each has its own."""
    held = _read_relation_fanouts(config, lambda fanout: list(fanout[:hops]))
    return held or (None if config.fanouts is None else list(config.fanouts[:hops]))


def flat(config: Config) -> Keys:
    """Return the keys of the neighbourhoods' depth, fan-outs and layout."""
    flat = config.flat.model_dump(mode="json", exclude={"hops"})
    keys = {"flat": flat, "hops": config.num_hops, "fanouts": _fanouts(config, config.num_hops)}
    if config.task.kind == "node":
        return keys
    if config.task.kind == "edge":
        return {**keys, "targets": "edges"}
    drawn = config.task.negatives.model_dump(mode="json", include={"kind", "power", "pool"})
    return {**keys, "negatives": drawn, "seed": config.seed}


def baselines_of(config: Config) -> tuple[Baseline, ...]:
    """Return the baselines that a run makes, in the order of the table."""
    asked, fitting = config.train.baselines, BASELINES[config.task.kind]
    if isinstance(asked, str):
        return fitting if asked == "all" else ()
    return tuple(each for each in fitting if each in asked)


def compares(config: Config) -> bool:
    """Return whether a run makes baselines."""
    return bool(baselines_of(config))


def baselines(config: Config) -> Keys:
    """Return the keys of the baselines and, for links, of the candidates."""
    keys: Keys = {"baselines": list(baselines_of(config)), "seed": config.seed}
    keys |= _named_key(config)
    if config.task.kind == "node":
        return keys
    return {**keys, "task": config.task.model_dump(mode="json", include={"negatives", "split"})}


# How the first weights are drawn, where it changed after their first version: for models of nodes by kind, and for
# models that score pairs by products of rows of a type without features.
_FIRST_WEIGHTS = {"sage": "by inputs"}
_DEGREES_FROM_ZERO = "degrees from zero"


def train(config: Config) -> Keys:
    """Return the keys of the model and the optimiser, and the keys of ranks that change the weights."""
    # The model that training starts from is an input: its content counts, not its path.
    train = result_keys(config.train, exclude=_TRAIN_SPEED_ONLY | {"start", "workers", "updater", "device"})
    train |= rank_keys(config.train) | _device_key(config.train.device)
    model = config.model.model_dump(mode="json")
    fanouts = _fanouts(config, config.model.layers)
    keys: Keys = {"model": model, "train": train, "fanouts": fanouts, "seed": config.seed}
    if config.task.kind != "link" and config.task.decide.kind != "auto":
        # a key that is left out keeps the fingerprints of models that were trained before it was known
        keys["decide"] = config.task.decide.model_dump(mode="json", exclude_none=True)
    keys |= _named_key(config)
    if config.task.kind != "node":
        keys["task"] = config.task.model_dump(mode="json", exclude={"decide"})
        if config.task.decoder.kind != "mlp" and _has_bare_type(config.graph):
            keys["first_weights"] = _DEGREES_FROM_ZERO
        return keys
    if config.model.kind in _FIRST_WEIGHTS:
        keys["first_weights"] = _FIRST_WEIGHTS[config.model.kind]
    return keys


def _named_key(config: Config) -> Keys:
    """Return the class that metrics are of, where one is named: before, they were means over classes."""
    named = named_class(decide_of(config.task))
    return {} if named is None else {"metrics_of": named}


def _has_bare_type(graph: GraphConfig) -> bool:
    """Return whether a type of a graph with types has no table, or no features are asked of it."""
    return graph.schema.is_typed and any(
        not uri or not graph.features_of(node_type) for node_type, uri in graph.node_tables.items()
    )


def infer(config: Config) -> Keys:
    """Return the keys of scoring."""
    # The default form of rows adds no key.
    left_out = {"device", "rows"} if config.infer.rows == "float32" else {"device"}
    infer = config.infer.model_dump(mode="json", exclude=left_out) | _device_key(config.scoring_device)
    return {"infer": infer, "fanouts": _fanouts(config, config.model.layers)} | _hub_key(config)


def _hub_key(config: Config) -> Keys:
    # Sums over the split in-edges of hubs round in another order. The default adds no key, and a sample is not split.
    section = config.neighbors
    sampled = config.fanouts is not None and config.infer.sampling == "same"
    if not isinstance(section, DirectNeighbors) or sampled:
        return {}
    default = DirectNeighbors.model_fields["hub_threshold"].default
    return {} if section.hub_threshold == default else {"hub_threshold": section.hub_threshold}


def _device_key(device: Device) -> Keys:
    # The CPU adds no key, as before there was another device; a card rounds sums in another order.
    return {} if device == "cpu" else {"device": device}


def own_encoders(config: Config) -> tuple[str, ...]:
    """Return the user's own encoders of text columns."""
    sections = config.graph.columns.values()
    return tuple(sorted({each.encoder for each in sections if isinstance(each, TextColumn) and each.encoder}))


def own_neighbors(config: Config) -> tuple[str, ...]:
    """Return the user's own neighbour selection as `module:name`; empty for a built-in one."""
    return (config.neighbors.kind,) if ":" in config.neighbors.kind else ()


def own_layers(config: Config) -> tuple[str, ...]:
    """Return the user's own layer as `module:name`; empty for a built-in one."""
    return (config.model.kind,) if ":" in config.model.kind else ()


def own_training_code(config: Config) -> tuple[str, ...]:
    """Return the user's own layer and loss, without built-in ones."""
    return tuple(kind for kind in (config.model.kind, config.train.loss.kind) if ":" in kind)
