"""Batches of mini-batch that all ranks compute together: each rank has the targets in its part of the graph.

The owner of a pair's target scores the pair. It learns the ends of the batch's other pairs, whose edges it leaves out
of its in-edges, and the other ranks send it the rows of ends and negatives that they own.

Shapes: n targets of a batch on all ranks, B of them on this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gnnflow.executions.row_exchange import joined
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.batch import Block
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.splits import SPLITS
from gnnflow.neighbors.pairs import StoredPairs
from gnnflow.sampling.pairs import EVALUATION
from gnnflow.train.globalbatch.graph import OwnPart
from gnnflow.train.globalbatch.pairs import hidden_pairs
from gnnflow.train.heads import PairRule, scores_per_pair
from gnnflow.train.hybrid.part import RankPart
from gnnflow.train.minibatch.batches import PlannedBatch, view_of_entry
from gnnflow.train.minibatch.loader import Batch, SplitBuilder


@dataclass(frozen=True)
class RankNodes(SplitBuilder):
    """Makes this rank's part of batches of nodes. begins: by split, the number of targets on the ranks before it."""

    part: RankPart
    begins: Mapping[str, int]

    @property
    def width(self) -> int:
        """Number of outputs of a target."""
        return self.part.model.inputs.num_outputs

    def labels(self, entry: ShardEntry) -> Array:
        """Return the labels of this rank's targets of a split."""
        labels: Array = self.part.own.labels[self.part.own.of(entry.split)]
        return labels

    def key(self, planned: PlannedBatch, *, epoch: int) -> str:
        """Return the key of a batch that comes again."""
        return planned.key

    def __call__(self, planned: PlannedBatch, *, epoch: int) -> Batch:
        """Return this rank's part of a batch. All ranks make theirs together."""
        _, rows = _own(planned, self.part.own, self.begins)
        return self.part.batch_of_nodes(np.sort(rows), self.part.layers(view_of_entry(planned.entry)))


def _own(planned: PlannedBatch, targets: OwnPart | StoredPairs, begins: Mapping[str, int]) -> tuple[IntArray, IntArray]:
    """Return the places in a batch of this rank's targets [B], and their places among all its targets [B]."""
    of_split = targets.of(planned.entry.split)
    # positions of the batch's targets among this rank's of the split, outside of these where another rank has them [n]
    own = planned.positions - begins[planned.entry.split]
    at = np.flatnonzero((own >= 0) & (own < len(of_split)))
    return at, of_split[own[at]]


@dataclass(frozen=True)
class RankPairs(SplitBuilder):
    """Makes this rank's part of batches of pairs.

    begins: by split, the number of pairs on the ranks before it. pools: by split, the nodes that negatives are drawn
    from, by the rule.
    """

    part: RankPart
    stored: StoredPairs
    rule: PairRule
    pools: Mapping[str, IntArray]
    begins: Mapping[str, int]

    @staticmethod
    def of(part: RankPart, stored: StoredPairs, rule: PairRule, pools: Mapping[str, IntArray]) -> RankPairs:
        """Return the builder of this rank. All ranks make theirs together.

        Raises TrainingError where an edge between the ends of a held-out pair carries messages.
        """
        begins = part.begins(stored)
        for split in () if rule.task.messages else SPLITS[1:]:
            sources, targets = (ends[stored.of(split)] for ends in (stored.sources, stored.targets))
            hidden = hidden_pairs(sources, targets, bounds=part.bounds, exchange=part.exchange)
            hidden.check_absent([Block(part.own.edges, part.num_nodes)], split=split)
        return RankPairs(part, stored, rule, pools, begins)

    @property
    def width(self) -> int:
        """Number of scores of a pair."""
        return scores_per_pair(self.rule.task, self.part.model)

    def labels(self, entry: ShardEntry) -> Array:
        """Return the labels of this rank's pairs of a split."""
        labels: Array = self.stored.labels[self.stored.of(entry.split)]
        return labels

    def key(self, planned: PlannedBatch, *, epoch: int) -> str:
        """Return the key of a batch that comes again: where it is scored."""
        return planned.key if epoch == EVALUATION else ""

    def __call__(self, planned: PlannedBatch, *, epoch: int) -> Batch:
        """Return this rank's part of a batch. All ranks make theirs together."""
        split, stored = planned.entry.split, self.stored
        at, places = _own(planned, stored, self.begins)
        # place in the batch, source and target of each pair of any rank [n, 3], then their ends in its order [n, 2]
        told = joined(self.part.exchange, np.stack([at, stored.sources[places], stored.targets[places]], axis=1))
        ends = told[np.argsort(told[:, 0]), 1:]
        candidates = self.rule.candidates(
            stored, places, pool=self.pools[split], split=split, epoch=epoch, in_batch=ends[:, 1]
        )
        hidden = ends if split == "train" and not self.rule.task.messages else None
        layers = self.part.layers(view_of_entry(planned.entry))
        return self.part.batch_of_pairs(stored, places, candidates, layers, hidden=hidden)

    def check_candidates(self, planned: PlannedBatch) -> None:
        """Raise TrainingError where edges are left out of a held-out pair's candidates, and none is left for it."""
        split = planned.entry.split
        if split != "train" and self.rule.known is not None:
            _, places = _own(planned, self.stored, self.begins)
            self.rule.candidates(self.stored, places, pool=self.pools[split], split=split, epoch=EVALUATION)
