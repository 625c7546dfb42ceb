"""A graph store in memory as shards: no GraphFlat, and where asked for a new sample in every epoch.

The graph is one shard per split (or GraphFlat's, where these have targets alone), all of the same neighbourhood, so
that everything after it (plans, loader, memory, ranks) is as for GraphFlat's shards. A process reads the graph once,
however many sources share it.

A split's pairs lie next to the whole graph as in one shard. Negatives are drawn from as many draws as there are nodes
that a pair may lead to: a pool of `task.negatives.pool` for each shard would be one for all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from gnnflow.graph.errors import ConfigError
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.shards import PairShard, Shard, read_targets
from gnnflow.neighbors.pairs import PoolPlan, StoredPairs, draws_of, pool_weights, read_pairs
from gnnflow.neighbors.selected import Neighbors
from gnnflow.neighbors.walk_views import WalkViews, memory_of_walks
from gnnflow.neighbors.whole import GraphInMemory, memory_needed, read_graph, view_of
from gnnflow.train.minibatch.batches import FIXED_VIEW, view_of_entry

if TYPE_CHECKING:
    from gnnflow.config import PairTask
    from gnnflow.config.neighbors_section import WalkNeighbors
    from gnnflow.graph.arrays import IntArray
    from gnnflow.storage.graph_store import GraphStore

_HELD: WeakValueDictionary[tuple[str, str, str, bool], GraphInMemory] = WeakValueDictionary()
_MIB = 2**20


def hold_graph(neighbors: Neighbors, *, with_keys: bool = False) -> GraphInMemory:
    """Return the graph in memory; while some source of this process holds it, it is not read again."""
    key = (neighbors.store.artifact, neighbors.store.selection, neighbors.artifact, with_keys)
    held = _HELD.get(key)
    if held is None:
        held = _HELD[key] = read_graph(neighbors, with_keys=with_keys)
    return held


def check_memory(
    neighbors: Neighbors,
    limit: int,
    *,
    with_keys: bool = False,
    walks: WalkNeighbors | None = None,
    instead: str = "train from shards: {strategy: mini-batch, source: shards}",
) -> None:
    """Raise ConfigError where the graph takes more than a rank has. limit: bytes of a worker; 0 sets none.

    walks: how neighbours were selected, where walks are drawn anew. instead: what needs less memory.
    """
    needed = memory_needed(neighbors, with_keys=with_keys)
    if walks is not None:
        needed += memory_of_walks(neighbors, walks)
    if limit and needed > limit:
        facts, least = neighbors.store.facts, math.ceil(needed / _MIB)
        raise ConfigError(
            f"to read {facts.num_nodes:,} nodes and {facts.num_edges:,} edges into memory takes about "
            f"{least:,} MiB, and a worker has {limit / _MIB:,.0f} MiB",
            where="cluster.memory_limit",
            fix=f"Set it to {least}MiB or more where the machine has as much, or {instead}.",
        )


@dataclass
class ShardsInMemory:
    """Reads the splits of a graph in memory as shards.

    draws_anew: an entry has the sample of the view that its name says, `batches.EpochPlan`. walks: how neighbours were
    selected, where walks are drawn anew and not samples of in-edges. threads: how many walk at once.
    """

    neighbors: Neighbors
    seed: int
    draws_anew: bool = False
    walks: WalkNeighbors | None = None
    threads: int = 1
    graph: GraphInMemory | None = None
    fixed: GraphInMemory | None = None
    views: WalkViews | None = None

    def __call__(self, entry: ShardEntry) -> Shard:
        """Return the targets of a split in the graph."""
        graph = self.view(entry)
        targets = graph.splits[entry.split]
        return Shard(graph.neighborhood, targets.nodes, targets.nodes, targets.labels)

    def view(self, entry: ShardEntry) -> GraphInMemory:
        """Return the graph with the sample that an entry has."""
        view = view_of_entry(entry)
        if self.graph is None:
            self.graph = hold_graph(self.neighbors, with_keys=self.draws_anew and self.walks is None)
        if not self.draws_anew or (view == FIXED_VIEW and self.walks is not None):
            return self.graph
        if self.walks is not None:
            if self.views is None:
                self.views = WalkViews.of(self.neighbors, self.walks, seed=self.seed, threads=self.threads)
            return self.views.view(self.graph, view)
        if view != FIXED_VIEW:
            return view_of(self.graph, self.neighbors, seed=self.seed, view=view)
        if self.fixed is None:
            self.fixed = view_of(self.graph, self.neighbors, seed=self.seed, view=view)
        return self.fixed


@dataclass
class TargetsInMemory:
    """Reads GraphFlat's shards of targets alone: batches that are cut from the whole graph have the same bits.

    A batch numbers its rows as its edges reach them, and so does not depend on what else there is.
    """

    artifact: str
    neighbors: Neighbors
    graph: GraphInMemory | None = None

    def __call__(self, entry: ShardEntry) -> Shard:
        """Return the targets of a shard in the graph. Raises StorageError as `read_shard` does."""
        if self.graph is None:
            self.graph = hold_graph(self.neighbors)
        return read_targets(self.artifact, entry, self.graph.neighborhood)


@dataclass
class PairsInMemory:
    """Reads the splits of a graph in memory as shards of pairs, whose targets are all nodes."""

    graph: ShardsInMemory
    task: PairTask
    seed: int
    stored: StoredPairs | None = None
    pools: dict[str, IntArray] = field(default_factory=dict)

    def __call__(self, entry: ShardEntry) -> PairShard:
        """Return the pairs of a split in the graph."""
        store = self.graph.neighbors.store
        if self.stored is None:
            self.stored = read_pairs(store, range(store.num_partitions))
        if entry.split not in self.pools:
            self.pools[entry.split] = pool_of_split(store, self.task, entry.split, seed=self.seed)
        pairs, neighborhood = self.stored, self.graph.view(entry).neighborhood
        rows, every = pairs.of(entry.split), np.arange(neighborhood.num_nodes)
        return PairShard(
            Shard(neighborhood, every, every, None),
            pairs.sources[rows],
            pairs.targets[rows],
            pairs.keys[rows],
            self.pools[entry.split],
            labels=pairs.labels[rows],
            attributes=None if pairs.attributes is None else pairs.attributes[rows],
            times=None if pairs.times is None else pairs.times[rows],
        )


def pool_of_split(store: GraphStore, task: PairTask, split: str, *, seed: int) -> IntArray:
    """Return the nodes that negatives of a split are drawn from [M]."""
    plan = PoolPlan.of(task, seed=seed)
    if plan.size:
        led_to = [store.book.rows(part, store.facts.pair_types.target) for part in range(store.num_partitions)]
        plan = replace(plan, size=max(plan.size, sum(rows.stop - rows.start for rows in led_to)))
    pool, numbers = np.empty(plan.size, np.int64), np.array([SPLITS.index(split)])
    weights = np.array([pool_weights(store, part, plan).sum() for part in range(store.num_partitions)])
    for part in range(store.num_partitions if plan.size else 0):
        nodes, _, places = draws_of(part, store, numbers, plan, weights=weights)
        pool[places] = nodes
    return pool
