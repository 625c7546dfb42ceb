"""The pairs of nodes of one rank: their folds, their negatives, and the edges that a fold is scored without.

The owner of a pair's target scores it. Training pairs are dealt to folds, a step each: the pairs of a fold are scored
in the graph without the edges between their ends. Nothing depends on the number of ranks: a hash of its two nodes gives
the fold of a pair, a hash of (seed, epoch, pair) its negatives, among the pool of its fold and of its target's
partition.

Shapes: P pairs of a rank, B of them in a step, K negatives of each, M nodes of a pool, S folds and splits, Q
partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from gnnflow.config import GlobalBatchConfig, PairTask
from gnnflow.executions.globalbatch import Gathered, PlacedEdges
from gnnflow.executions.row_exchange import Exchange, joined, swapped, told_by_all
from gnnflow.graph.arrays import IntArray, distinct
from gnnflow.graph.batch import Block
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.hashing import combine, hash_integers, seed_word
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.exclusion import RowPairs, pairs_seen, without_between
from gnnflow.layers.model import Model
from gnnflow.neighbors.pairs import PoolPlan, StoredPairs, draws_of, pool_weights, read_pairs
from gnnflow.sampling.pairs import EVALUATION, pair_keys
from gnnflow.storage.graph_store import GraphStore
from gnnflow.train.heads import PairHead, PairRule
from gnnflow.train.job import TrainJob


@dataclass(frozen=True)
class OwnPairs:
    """The pairs that lead to a rank's nodes.

    fold [P]: the step of an epoch that each is trained in. pools [S, Q, M]: dense ids that negatives are drawn from, of
    each fold and then of each split's scoring, by the partition of the pair's target; the same on every rank. rule: of
    the pairs' negatives.
    """

    stored: StoredPairs
    fold: IntArray
    pools: IntArray
    rule: PairRule

    @property
    def num_folds(self) -> int:
        """Number of steps of an epoch."""
        return len(self.pools) - len(SPLITS)

    def of_fold(self, fold: int) -> IntArray:
        """Return the pairs that a step trains on, ascending."""
        return np.flatnonzero((self.stored.splits == SPLITS.index("train")) & (self.fold == fold))

    def check_candidates(self) -> None:
        """Raise TrainingError where edges are left out of held-out pairs' candidates, and none is left for one."""
        for split in SPLITS[1:] if self.rule.known is not None else ():
            pool = self.num_folds + SPLITS.index(split)
            self.candidates(self.stored.of(split), pool=pool, epoch=EVALUATION)

    def ends(self, places: IntArray, *, pool: int) -> IntArray:
        """Return the nodes that some pairs are scored from, ascending: ends, and what may be drawn as a negative."""
        stored, owners = self.stored, distinct(self.stored.partitions[places])
        return distinct(
            np.concatenate([stored.sources[places], stored.targets[places], self.pools[pool, owners].ravel()])
        )

    def candidates(self, places: IntArray, *, pool: int, epoch: int) -> IntArray:
        """Return the targets of some pairs and of their negatives [B, 1 + K], as dense ids."""
        owners, split = self.stored.partitions[places], SPLITS[max(0, pool - self.num_folds)]
        parts = [np.flatnonzero(owners == owner) for owner in distinct(owners)] or [np.arange(0)]
        drawn = [
            self.rule.candidates(
                self.stored,
                places[some],
                pool=self.pools[pool, owners[some[0]] if len(some) else 0],
                split=split,
                epoch=epoch,
            )
            for some in parts
        ]
        # candidates partition by partition, back in the order of the pairs
        return np.concatenate(drawn)[np.argsort(np.concatenate(parts))]


def own_pairs(job: TrainJob, partitions: Sequence[int], exchange: Exchange) -> OwnPairs:
    """Read a rank's pairs and return them with their folds and the pools that all ranks draw together.

    partitions: the rank's.
    """
    assert isinstance(job.train, GlobalBatchConfig)
    assert isinstance(job.task, PairTask)
    store, num_folds = job.neighbors.store, 1 if job.task.messages else job.train.folds
    stored = read_pairs(store, partitions)
    ends = pair_keys(hash_integers(stored.sources), hash_integers(stored.targets))
    fold = combine(ends, seed_word("folds", job.seed)) % np.uint64(num_folds)
    plan, shape = PoolPlan.of(job.task, seed=job.seed), (num_folds + len(SPLITS), store.num_partitions)
    pools = _pools(store, partitions, np.arange(prod(shape)), plan, exchange=exchange)
    return OwnPairs(stored, fold.astype(np.int64), pools.reshape(*shape, plan.size), PairRule.of(job))


def pair_head(stored: StoredPairs, places: IntArray, candidates: IntArray, ends: Gathered, *, model: Model) -> PairHead:
    """Return the head of pairs at some places. candidates [B, 1 + K]: dense ids. ends: has the rows that it scores."""
    sources, scored = ends.rows_of(stored.sources[places]), ends.rows_of(candidates)
    return PairHead.of(sources, scored, model=model, attributes=stored.attributes, places=places)


def _pools(
    store: GraphStore, partitions: Sequence[int], numbers: IntArray, plan: PoolPlan, *, exchange: Exchange
) -> IntArray:
    """Return the nodes of each pool [S Q, M], of which each rank draws those that it owns."""
    found = np.zeros((len(numbers), plan.size), np.int64)
    if not plan.size:
        return found
    own, ones = np.zeros(store.num_partitions), [1] * exchange.size
    for part in partitions:
        own[part] = pool_weights(store, part, plan).sum()
    weights = swapped(exchange, own[None].repeat(exchange.size, 0), sent=ones, received=ones).sum(0)
    for part in partitions:
        nodes, pool, place = draws_of(part, store, numbers, plan, weights=weights)
        found[pool, place] = nodes
    pools: IntArray = told_by_all(exchange, found.ravel()).sum(0).reshape(found.shape)
    return pools


@dataclass(frozen=True)
class HiddenPairs:
    """Pairs of all ranks with an end among this rank's nodes: an edge between their ends may be among its in-edges.

    first: dense id of its first node.
    """

    ends: RowPairs
    first: int

    def left_out_of(self, blocks: Sequence[Block]) -> list[Block]:
        """Return the blocks without the edges between the ends of any pair; those that are one block stay one."""
        keys = self.ends.keys()
        made = {id(each): without_between(each, keys, self.ends.num_rows, first=self.first) for each in blocks}
        return [made[id(each)] for each in blocks]

    def of_all(self, exchange: Exchange) -> HiddenPairs:
        """Return the pairs of all ranks: an edge that is placed anywhere may lie between the ends of any."""
        own = np.stack([self.ends.sources, self.ends.targets], axis=1)
        every = joined(exchange, own)
        return replace(self, ends=RowPairs(every[:, 0].copy(), every[:, 1].copy(), self.ends.num_rows))

    def left_out_of_placed(self, edges: PlacedEdges) -> PlacedEdges:
        """Return the edges without those between the ends of any pair."""
        keys, num_nodes = self.ends.keys(), self.ends.num_rows
        near = without_between(Block(edges.near, num_nodes), keys, num_nodes, first=self.first)
        far = without_between(Block(edges.far, num_nodes), keys, num_nodes, first=edges.ghosts)
        return PlacedEdges(near.edges, far.edges, edges.ghosts)

    def check_absent(self, blocks: Sequence[Block], *, split: str) -> None:
        """Raise TrainingError where an edge between the ends of a pair would tell of it."""
        distinct_blocks = {id(each): each for each in blocks}.values()
        seen = pairs_seen(distinct_blocks, self.ends, first=self.first)
        if len(seen):
            source, target = (int(each[seen[0]]) for each in (self.ends.sources, self.ends.targets))
            raise TrainingError(
                f"the {split} edge from node number {source} to {target} is among the edges that its score is "
                "computed from",
                where="the graph store",
                fix="It was not written for this split: run ingest again.",
            )


def hidden_pairs(sources: IntArray, targets: IntArray, *, bounds: IntArray, exchange: Exchange) -> HiddenPairs:
    """Return this rank's pairs of a step, and the other ranks' pairs that start at its nodes.

    sources and targets: dense ids of the rank's pairs. bounds: as `active_rows` has them.
    """
    # pairs by the rank that owns their source, which holds edges the other way round
    owner = np.searchsorted(bounds, sources, side="right") - 1
    order = np.argsort(owner, kind="stable")
    told = np.stack([sources, targets], axis=1)[order]
    sent, ones = np.bincount(owner, minlength=exchange.size), [1] * exchange.size
    # first how many pairs each rank sends, then the pairs [n, 2]
    received = swapped(exchange, sent[:, None], sent=ones, received=ones)[:, 0]
    heard = swapped(exchange, told, sent=sent.tolist(), received=received.tolist())
    both = np.concatenate([np.stack([sources, targets], axis=1), heard])
    ends = RowPairs(both[:, 0].copy(), both[:, 1].copy(), int(bounds[-1]))
    return HiddenPairs(ends, int(bounds[exchange.rank]))
