"""Mini-batches of a graph store in memory: no GraphFlat, and where asked for a new sample in every epoch.

The graph is one shard per split, all of the same neighbourhood, so that everything after it (plans, loader, memory,
ranks) is what it is for GraphFlat's shards. A process reads the graph once, however many sources share it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from gnnflow.config import MiniBatchConfig
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.facts import GraphFacts, ShardEntry
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.shards import Shard
from gnnflow.neighbors.selected import Neighbors
from gnnflow.neighbors.walk_views import WalkViews, memory_of_walks
from gnnflow.neighbors.whole import GraphInMemory, memory_needed, read_graph, view_of
from gnnflow.train.minibatch.batches import FIXED_VIEW, view_of_entry
from gnnflow.train.minibatch.preparing import Sample
from gnnflow.train.minibatch.source import MiniBatchSource, open_source, outputs_on_shards
from gnnflow.train.outputs import Outputs

if TYPE_CHECKING:
    from gnnflow.config.neighbors_section import WalkNeighbors
    from gnnflow.layers.model import Model
    from gnnflow.train.job import TrainJob

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
    neighbors: Neighbors, limit: int, *, with_keys: bool = False, walks: WalkNeighbors | None = None
) -> None:
    """Raise ConfigError where the graph takes more than a rank has. limit: bytes of a worker; 0 sets none.

    walks: how neighbours were selected, where walks are drawn anew.
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
            fix=f"Set it to {least}MiB or more where the machine has as much, or train from shards: "
            "{strategy: mini-batch, source: shards}.",
        )


def split_entries(facts: GraphFacts) -> tuple[ShardEntry, ...]:
    """Return an entry for each split of a graph in memory that has targets, as of a shard of that name.

    Where targets are pairs, any node may be an end of one.
    """
    size, pairs = (facts.num_nodes, facts.num_edges), facts.targets == "edges"
    counts = {split: facts.splits[split] for split in SPLITS if facts.splits.get(split)}
    if pairs:
        return tuple(ShardEntry(split, split, "shared", size[0], *size, 0, count) for split, count in counts.items())
    return tuple(ShardEntry(split, split, "shared", count, *size, 0) for split, count in counts.items())


@dataclass
class ShardsInMemory:
    """Reads the splits of a graph in memory as shards.

    draws_anew: an entry has the sample of the view that its name says, `batches.of_view`. walks: how neighbours were
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


def open_store_source(job: TrainJob, *, edges: bool = True) -> MiniBatchSource:
    """Return a job's mini-batches, cut from the graph store in memory."""
    assert isinstance(job.train, MiniBatchConfig)
    assert job.neighbors is not None
    draws_anew = job.train.resample == "epoch" and edges
    read = ShardsInMemory(job.neighbors, job.seed, draws_anew, job.walks, job.train.threads)
    return open_source(job, edges=edges, read=read, draws_anew=draws_anew)


def outputs_on_store(model: Model, split: str, *, neighbors: Neighbors, train: MiniBatchConfig) -> Outputs:
    """Return a model's outputs for the targets of a split, in dense id order, over the sample that is scored with.

    train: as `outputs_on_shards` reads it.
    """
    entries = [entry for entry in split_entries(neighbors.store.facts) if entry.split == split]
    return outputs_on_shards(
        model,
        entries,
        ShardsInMemory(neighbors, seed=0),
        sample=Sample(neighbors.fanouts, neighbors.sampling),
        train=train,
    )
