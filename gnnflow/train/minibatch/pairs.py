"""Batches of pairs: rows of their ends and negatives, and blocks without the edges that tell of the pairs.

A batch is made of one shard: its pairs' ends and their negatives, each node once, are the rows whose embeddings one
forward pass gives; pairs are then scored as pairs of these rows. Where edges have times a row is a node at the time
of its pair. A batch is a function of (seed, epoch) and of the pairs planned for it.

Shapes: B pairs, K negatives of each (0 where edges have labels), R distinct rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gnnflow.config import LinkTask
from gnnflow.executions.tensors import batch_tensors
from gnnflow.graph.arrays import Array, IntArray, distinct
from gnnflow.graph.batch import MiniBatch
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.sampling import EVERY_EDGE, Sampling
from gnnflow.graphfeature.blocks import build_minibatch
from gnnflow.graphfeature.exclusion import RowPairs, pairs_seen, without_pairs
from gnnflow.graphfeature.shards import PairShard
from gnnflow.graphfeature.times import ALL_EARLIER, LateEdge, build_before, cuts, late_edge
from gnnflow.layers.model import Model
from gnnflow.sampling.pairs import EVALUATION
from gnnflow.train.heads import PairHead, PairRule, scores_per_pair
from gnnflow.train.minibatch.batches import PlannedBatch
from gnnflow.train.minibatch.loader import Batch, SplitBuilder
from gnnflow.train.minibatch.nodes import without_edges
from gnnflow.train.minibatch.preparing import Preparing

_CUT_AGAIN = "The shards were not cut for this split: run ingest and flat again."


@dataclass(frozen=True)
class Rows:
    """The distinct rows of a batch: target nodes of the shard [R], and the cut of each where edges have times [R].

    ends: sources and targets of the pairs, as rows. candidates [B, 1 + K]: rows.
    """

    nodes: IntArray
    cuts: IntArray | None
    ends: RowPairs
    candidates: IntArray


@dataclass(frozen=True)
class PairBatches(SplitBuilder):
    """Makes batches whose targets are pairs.

    Edges that a pair may not be scored from are left out of the blocks: later ones where edges have times, else the
    pairs' own where the split is train. Raises TrainingError where another one is found that would tell of a pair.

    rule: of the pairs' negatives.
    """

    read: Callable[[ShardEntry], PairShard]
    model: Model
    preparing: Preparing
    rule: PairRule
    sampling: Sampling = EVERY_EDGE

    @property
    def width(self) -> int:
        """The number of scores of a pair."""
        return scores_per_pair(self.rule.task, self.model)

    def labels(self, entry: ShardEntry) -> Array:
        """Return the labels of a shard's pairs; links need no shard."""
        is_ranked = isinstance(self.rule.task, LinkTask)
        return np.zeros(entry.num_pairs, np.int64) if is_ranked else self._shard(entry).labels

    def key(self, planned: PlannedBatch, *, epoch: int) -> str:
        """Return the key of a batch that comes again: where it is scored."""
        return planned.key if epoch == EVALUATION else ""

    def __call__(self, planned: PlannedBatch, *, epoch: int) -> Batch:
        """Return the batch of planned pairs, with the negatives of an epoch."""
        pairs, positions = self._shard(planned.entry), planned.positions
        split = planned.entry.split
        candidates = self.rule.candidates(pairs, positions, pool=pairs.pool, split=split, epoch=epoch)
        timed = positions if self.sampling.has_edges else None
        rows = rows_of(pairs, timed, pairs.sources[positions], candidates)
        built = self._blocks(pairs, rows, positions, entry=planned.entry)
        return Batch(
            batch_tensors(built, self.model.inputs.schema),
            pairs.labels[positions],
            built.targets[rows.ends.targets],
            PairHead.of(
                rows.ends.sources, rows.candidates, model=self.model, attributes=pairs.attributes, places=positions
            ),
        )

    def check_candidates(self, planned: PlannedBatch) -> None:
        """Raise TrainingError where edges are left out of a held-out pair's candidates, and none is left for it."""
        split = planned.entry.split
        if split != "train" and self.rule.known is not None:
            pairs = self._shard(planned.entry)
            self.rule.candidates(pairs, planned.positions, pool=pairs.pool, split=split, epoch=EVALUATION)

    def _shard(self, entry: ShardEntry) -> PairShard:
        found: PairShard = self.preparing.memory.shard(entry, self._open)
        return found

    def _open(self, entry: ShardEntry) -> PairShard:
        self.preparing.watch.start()
        pairs = self.read(entry)
        self.preparing.watch.lap("decode")
        return pairs if self.sampling.has_edges else replace(pairs, shard=without_edges(pairs.shard))

    def _blocks(self, pairs: PairShard, rows: Rows, positions: IntArray, *, entry: ShardEntry) -> MiniBatch:
        """Return the blocks of these rows of a shard. positions: of the pairs in it."""
        carry = self.rule.task.messages
        if rows.cuts is not None:
            if entry.split != "train" and not carry and self.rule.task.split.kind == "time":
                _check_held_out(pairs, positions, entry=entry)
            if rows.cuts.min() < ALL_EARLIER:
                return self._timed(pairs, rows, rows.cuts, entry=entry)
        held = pairs.shard
        built = build_minibatch(
            held.neighborhood,
            held.rows[rows.nodes],
            sampling=self.sampling,
            num_layers=self.model.num_layers,
        )
        if rows.cuts is not None or carry:
            return built
        if entry.split == "train":
            return without_pairs(built, rows.ends)
        seen = pairs_seen(built.blocks, rows.ends)
        if len(seen):
            raise _leak(built, rows.ends, int(seen[0]), entry=entry)
        return built

    def _timed(self, pairs: PairShard, rows: Rows, before: IntArray, *, entry: ShardEntry) -> MiniBatch:
        timed = build_before(
            pairs.shard.neighborhood,
            pairs.shard.rows[rows.nodes],
            before,
            sampling=self.sampling,
            num_layers=self.model.num_layers,
        )
        late = late_edge(timed)
        if late is not None:
            raise _late(late, f"that an earlier edge of the {entry.split} split is scored from", entry=entry)
        return timed.batch


def _check_held_out(pairs: PairShard, positions: IntArray, *, entry: ShardEntry) -> None:
    """Raise TrainingError where an edge that carries messages is as late as a held-out one of a split by time."""
    assert pairs.times is not None
    first, latest = int(pairs.times[positions].min()), pairs.latest
    if latest is not None and latest.time >= first:
        raise _late(latest, f"that {entry.split} edges of time {first} are scored from", entry=entry)


def rows_of(pairs: PairShard, positions: IntArray | None, sources: IntArray, candidates: IntArray) -> Rows:
    """Return the distinct rows of pairs and candidates, and these as rows: of times, one for each time of a node.

    positions: of the pairs in the shard, whose times are read there; None where times do not matter.
    """
    size = len(pairs.shard.targets)
    first, moments = np.zeros(len(sources), np.int64), None
    if pairs.times is not None and positions is not None:
        moments, group = np.unique(cuts(pairs.moments, pairs.times[positions]), return_inverse=True)
        first = group * size
    # each (time, target node) as one integer
    sources, candidates = first + sources, first[:, None] + candidates
    keys = distinct(np.concatenate([sources, candidates.ravel()]))
    sources, candidates = np.searchsorted(keys, sources), np.searchsorted(keys, candidates)
    return Rows(
        keys % max(size, 1),
        None if moments is None else moments[keys // size],
        RowPairs(sources, candidates[:, 0], len(keys)),
        candidates,
    )


def _leak(built: MiniBatch, ends: RowPairs, pair: int, *, entry: ShardEntry) -> TrainingError:
    source, target = (int(built.targets[rows[pair]]) for rows in (ends.sources, ends.targets))
    return TrainingError(
        f"the {entry.split} edge from node number {source} to {target} is among the edges that its score is "
        "computed from",
        where=f"shard {entry.name}",
        fix=_CUT_AGAIN,
    )


def _late(edge: LateEdge, whose: str, *, entry: ShardEntry) -> TrainingError:
    return TrainingError(
        f"the edge of time {edge.time} from node number {edge.source} to {edge.target} is among those {whose}",
        where=f"shard {entry.name}",
        fix=_CUT_AGAIN,
    )
