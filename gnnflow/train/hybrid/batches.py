"""Batches of mini-batch that all ranks compute together: each rank has the targets in its part of the graph.

The owner of a pair's target scores the pair. It learns the ends of the batch's other pairs, whose edges it leaves out
of its in-edges, and the other ranks send it the rows of ends and negatives that they own.

Shapes: P own pairs, B of them in a batch, K negatives of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnnflow.config import PairTask
from gnnflow.executions.globalbatch import gathered
from gnnflow.executions.row_exchange import joined
from gnnflow.graph.arrays import Array, IntArray, distinct
from gnnflow.graph.batch import Block, LayerEdges
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.exclusion import RowPairs, WithoutPairs
from gnnflow.neighbors.link_candidates import KnownLinks
from gnnflow.neighbors.pairs import StoredPairs
from gnnflow.sampling.pairs import EVALUATION
from gnnflow.train.globalbatch.pairs import hidden_pairs
from gnnflow.train.heads import PairHead, draw_candidates, scores_per_pair
from gnnflow.train.hybrid.part import RankPart
from gnnflow.train.minibatch.batches import PlannedBatch, view_of_entry
from gnnflow.train.minibatch.loader import Batch, SplitBuilder


@dataclass(frozen=True)
class RankNodes(SplitBuilder):
    """Makes this rank's part of batches of nodes. begins: by split, the number of targets on the ranks before it."""

    part: RankPart
    begins: Mapping[str, int]

    @staticmethod
    def of(part: RankPart) -> RankNodes:
        """Return the builder of this rank. All ranks make theirs together."""
        counts = [len(part.own.of(split)) for split in SPLITS]
        return RankNodes(part, dict(zip(SPLITS, part.count_before(counts), strict=True)))

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
        of_split = self.part.own.of(planned.entry.split)
        _, own = _own_positions(planned, begin=self.begins[planned.entry.split], count=len(of_split))
        return self.part.batch_of_nodes(of_split[np.sort(own)], self.part.layers(view_of_entry(planned.entry)))


def _own_positions(planned: PlannedBatch, *, begin: int, count: int) -> tuple[IntArray, IntArray]:
    """Return the places in a batch of this rank's targets [B], and their positions among its targets [B]."""
    own = planned.positions - begin
    at = np.flatnonzero((own >= 0) & (own < count))
    return at, own[at]


@dataclass(frozen=True)
class PartPairs:
    """The pairs of a rank, and the rule by which their negatives are drawn.

    begins: by split, the number of pairs on the ranks before it. known: edges that held-out pairs are not ranked
    against, where these are left out.
    """

    part: RankPart
    stored: StoredPairs
    begins: Mapping[str, int]
    task: PairTask
    known: KnownLinks | None

    @staticmethod
    def of(part: RankPart, stored: StoredPairs, task: PairTask, known: KnownLinks | None) -> PartPairs:
        """Return the pairs of this rank. All ranks make theirs together.

        Raises TrainingError where an edge between the ends of a held-out pair carries messages.
        """
        begins = part.count_before([len(stored.of(split)) for split in SPLITS])
        for split in () if task.messages else SPLITS[1:]:
            sources, targets = (ends[stored.of(split)] for ends in (stored.sources, stored.targets))
            hidden = hidden_pairs(sources, targets, bounds=part.bounds, exchange=part.exchange)
            hidden.check_absent([Block(part.own.edges, part.num_nodes)], split=split)
        return PartPairs(part, stored, dict(zip(SPLITS, begins, strict=True)), task, known)

    def candidates(self, places: IntArray, *, pool: IntArray, in_batch: IntArray, split: str, epoch: int) -> IntArray:
        """Return the targets of some pairs and of their negatives [B, 1 + K], as dense ids.

        in_batch: the targets of the batch's pairs on all ranks.
        """
        return draw_candidates(
            self.task,
            self.stored.keys[places],
            self.stored.sources[places],
            self.stored.targets[places],
            pool=pool,
            seed=self.part.seed,
            epoch=epoch,
            are_edges=None if self.known is None or split == "train" else self.known.are,
            in_batch=in_batch,
        )

    def batch(
        self, places: IntArray, candidates: IntArray, ends: IntArray, layers: Sequence[LayerEdges], *, split: str
    ) -> Batch:
        """Return this rank's part of a batch of pairs. ends: sources and targets of the pairs of all ranks."""
        part, stored = self.part, self.stored
        if split == "train" and not self.task.messages:
            keys = RowPairs(ends[:, 0], ends[:, 1], part.num_nodes).keys()
            # layers that share edges still share them
            made = {id(each): WithoutPairs(each, keys, part.num_nodes, part.own.first) for each in layers}
            layers = [made[id(each)] for each in layers]
        sources = stored.sources[places]
        nodes = distinct(np.concatenate([sources, candidates.ravel()]))
        found = gathered(nodes, bounds=part.bounds, exchange=part.exchange)
        head = PairHead.of(
            found.rows_of(sources),
            found.rows_of(candidates),
            model=part.model,
            attributes=stored.attributes,
            places=places,
        )
        targets = stored.targets[places]
        return part.batch(found.targets, layers, labels=stored.labels[places], ids=targets, head=head, ends=found)


@dataclass(frozen=True)
class RankPairs(SplitBuilder):
    """Makes this rank's part of batches of pairs. pools: by split, the nodes that negatives are drawn from."""

    pairs: PartPairs
    pools: Mapping[str, IntArray]

    @property
    def width(self) -> int:
        """Number of scores of a pair."""
        return scores_per_pair(self.pairs.task, self.pairs.part.model)

    def labels(self, entry: ShardEntry) -> Array:
        """Return the labels of this rank's pairs of a split."""
        labels: Array = self.pairs.stored.labels[self.pairs.stored.of(entry.split)]
        return labels

    def key(self, planned: PlannedBatch, *, epoch: int) -> str:
        """Return the key of a batch that comes again: where it is scored."""
        return planned.key if epoch == EVALUATION else ""

    def __call__(self, planned: PlannedBatch, *, epoch: int) -> Batch:
        """Return this rank's part of a batch. All ranks make theirs together."""
        pairs, split, stored = self.pairs, planned.entry.split, self.pairs.stored
        at, places = self._own(planned)
        # place in the batch, source and target of all its pairs, then the ends in the order of the batch
        told = joined(pairs.part.exchange, np.stack([at, stored.sources[places], stored.targets[places]], axis=1))
        ends = told[np.argsort(told[:, 0]), 1:]
        pool = self.pools[split]
        candidates = pairs.candidates(places, pool=pool, in_batch=ends[:, 1], split=split, epoch=epoch)
        return pairs.batch(places, candidates, ends, pairs.part.layers(view_of_entry(planned.entry)), split=split)

    def check_candidates(self, planned: PlannedBatch) -> None:
        """Raise TrainingError where edges are left out of a held-out pair's candidates, and none is left for it."""
        split = planned.entry.split
        if split != "train" and self.pairs.known is not None:
            _, places = self._own(planned)
            pool = self.pools[split]
            self.pairs.candidates(places, pool=pool, in_batch=pool[:0], split=split, epoch=EVALUATION)

    def _own(self, planned: PlannedBatch) -> tuple[IntArray, IntArray]:
        """Return the places in a batch of this rank's pairs [B], and their places among its pairs [B]."""
        split = planned.entry.split
        of_split = self.pairs.stored.of(split)
        at, own = _own_positions(planned, begin=self.pairs.begins[split], count=len(of_split))
        return at, of_split[own]
