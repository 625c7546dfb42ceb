"""Mini-batches of pairs of a graph store in memory: what `in_memory.py` is for nodes.

A split's pairs lie beside the whole graph as in one shard, so their batches, negatives and what is left out of their
blocks are those of GraphFlat's shards. Negatives are drawn from as many draws as there are nodes that a pair may lead
to: a pool of `task.negatives.pool` for each shard would be one for all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.config import MiniBatchConfig
from gnnflow.config.task_section import EdgeTask, LinkTask
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.pairs import PairShard
from gnnflow.graphfeature.shards import Shard
from gnnflow.neighbors.pairs import PoolPlan, StoredPairs, draws_of, pool_weights, read_pairs
from gnnflow.train.minibatch.in_memory import ShardsInMemory, split_entries
from gnnflow.train.minibatch.pair_source import PairSource, open_pair_source, outputs_on_pairs
from gnnflow.train.minibatch.preparing import Sample

if TYPE_CHECKING:
    from gnnflow.config import PairTask
    from gnnflow.graph.arrays import IntArray
    from gnnflow.graph.facts import ShardEntry
    from gnnflow.layers.model import Model
    from gnnflow.neighbors.link_candidates import KnownLinks
    from gnnflow.neighbors.selected import Neighbors
    from gnnflow.train.job import TrainJob
    from gnnflow.train.outputs import Outputs


@dataclass
class PairsInMemory:
    """Reads the splits of a graph in memory as shards of pairs, whose targets are all nodes by their dense ids."""

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
            self.pools[entry.split] = self._pool(entry.split)
        pairs, neighborhood = self.stored, self.graph.view(entry).neighborhood
        rows, every = pairs.of(entry.split), np.arange(neighborhood.num_nodes)
        return PairShard(
            Shard(neighborhood, every, every, None),
            pairs.sources[rows],
            pairs.targets[rows],
            pairs.keys[rows],
            self.pools[entry.split],
            labels=None if pairs.labels is None else pairs.labels[rows],
            attributes=None if pairs.attributes is None else pairs.attributes[rows],
            times=None if pairs.times is None else pairs.times[rows],
        )

    def _pool(self, split: str) -> IntArray:
        """Return the nodes that negatives of a split are drawn from [M]."""
        store, plan = self.graph.neighbors.store, PoolPlan.of(self.task, seed=self.seed)
        if plan.size:
            led_to = [store.book.rows(part, store.facts.pair_types[1]) for part in range(store.num_partitions)]
            plan = replace(plan, size=max(plan.size, sum(rows.stop - rows.start for rows in led_to)))
        pool, numbers = np.empty(plan.size, np.int64), np.array([SPLITS.index(split)])
        weights = np.array([pool_weights(store, part, plan).sum() for part in range(store.num_partitions)])
        for part in range(store.num_partitions if plan.size else 0):
            nodes, _, places = draws_of(part, store, numbers, plan, weights=weights)
            pool[places] = nodes
        return pool


def open_store_pairs(job: TrainJob, *, edges: bool = True) -> PairSource:
    """Return a job's mini-batches of pairs, cut from the graph store in memory."""
    assert isinstance(job.train, MiniBatchConfig)
    assert isinstance(job.task, LinkTask | EdgeTask)
    assert job.neighbors is not None
    draws_anew = job.train.resample == "epoch" and edges
    read = PairsInMemory(ShardsInMemory(job.neighbors, job.seed, draws_anew, job.walks), job.task, job.seed)
    return open_pair_source(job, edges=edges, read=read, draws_anew=draws_anew)


def outputs_on_stored_pairs(
    model: Model,
    split: str,
    *,
    neighbors: Neighbors,
    train: MiniBatchConfig,
    task: PairTask,
    seed: int,
    known: KnownLinks | None = None,
) -> Outputs:
    """Return a model's scores of the pairs of a split, as `outputs_on_store` does for nodes."""
    return outputs_on_pairs(
        model,
        [entry for entry in split_entries(neighbors.store.facts) if entry.split == split],
        PairsInMemory(ShardsInMemory(neighbors, seed=0), task, seed),
        sample=Sample(neighbors.fanouts, neighbors.sampling),
        train=train,
        task=task,
        seed=seed,
        known=known,
    )
