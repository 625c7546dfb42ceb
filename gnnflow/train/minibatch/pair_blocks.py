"""Rows and blocks of a batch of pairs: its nodes, each once, and the edges they are computed from but those that tell.

Shapes: B pairs, K negatives of each (0 where edges have labels), R distinct rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnflow.config import EdgeTask, PairTask
from gnnflow.graph.arrays import IntArray, distinct
from gnnflow.graph.batch import MiniBatch
from gnnflow.graph.errors import TrainingError
from gnnflow.graphfeature.blocks import build_minibatch
from gnnflow.graphfeature.exclusion import RowPairs, pairs_seen, without_pairs
from gnnflow.graphfeature.pairs import PairShard
from gnnflow.graphfeature.times import ALL_EARLIER, LateEdge, build_before, cuts, late_edge
from gnnflow.train.minibatch.preparing import Sample

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
class PairBlocks:
    """How blocks are built: of so many layers, from the in-edges of a sample."""

    task: PairTask
    num_layers: int
    sample: Sample

    def of(self, pairs: PairShard, rows: Rows, *, positions: IntArray, split: str, shard: str) -> MiniBatch:
        """Return the blocks of these rows of a shard. positions: of the pairs in it; shard: its name, for errors.

        Raises TrainingError where an edge is found that would tell of a pair.
        """
        if rows.cuts is not None:
            self._check_held_out(pairs, positions, split=split, shard=shard)
            if rows.cuts.min() < ALL_EARLIER:
                return self._timed(pairs, rows, rows.cuts, split=split, shard=shard)
        held = pairs.shard
        built = build_minibatch(
            held.neighborhood,
            held.rows[rows.nodes],
            fanouts=self.sample.fanouts,
            num_layers=self.num_layers,
            sampling=self.sample.sampling,
        )
        if rows.cuts is not None or (isinstance(self.task, EdgeTask) and self.task.messages):
            return built
        if split == "train":
            return without_pairs(built, rows.ends)
        seen = pairs_seen(built.blocks, rows.ends)
        if len(seen):
            raise _leak(built, rows.ends, int(seen[0]), split=split, shard=shard)
        return built

    def _check_held_out(self, pairs: PairShard, positions: IntArray, *, split: str, shard: str) -> None:
        """Raise TrainingError where an edge that carries messages is as late as a held-out one of a split by time."""
        held_out_carry = isinstance(self.task, EdgeTask) and self.task.messages
        if split == "train" or held_out_carry or self.task.split.kind != "time":
            return
        assert pairs.times is not None
        first, latest = int(pairs.times[positions].min()), pairs.latest
        if latest is not None and latest.time >= first:
            raise _late(latest, f"that {split} edges of time {first} are scored from", shard=shard)

    def _timed(self, pairs: PairShard, rows: Rows, before: IntArray, *, split: str, shard: str) -> MiniBatch:
        timed = build_before(
            pairs.shard.neighborhood,
            pairs.shard.rows[rows.nodes],
            before,
            fanouts=self.sample.fanouts,
            num_layers=self.num_layers,
            sampling=self.sample.sampling,
        )
        late = late_edge(timed)
        if late is not None:
            raise _late(late, f"that an earlier edge of the {split} split is scored from", shard=shard)
        return timed.batch


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


def _leak(built: MiniBatch, ends: RowPairs, pair: int, *, split: str, shard: str) -> TrainingError:
    source, target = (int(built.targets[rows[pair]]) for rows in (ends.sources, ends.targets))
    return TrainingError(
        f"the {split} edge from node number {source} to {target} is among the edges that its score is computed from",
        where=f"shard {shard}",
        fix=_CUT_AGAIN,
    )


def _late(edge: LateEdge, whose: str, *, shard: str) -> TrainingError:
    return TrainingError(
        f"the edge of time {edge.time} from node number {edge.source} to {edge.target} is among those {whose}",
        where=f"shard {shard}",
        fix=_CUT_AGAIN,
    )
