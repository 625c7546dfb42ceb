"""Batches of mini-batch that all ranks compute together: each has the targets that lie in its part of the graph.

The owner of a pair's target scores the pair. It learns the ends of the batch's other pairs, whose edges it leaves out
of the in-edges it holds, and the other ranks send it the rows of ends and negatives that they own.

Shapes: P own pairs, B of them in a batch, K negatives of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnnflow.config import EdgeTask, InBatchNegatives, LinkTask, PairTask
from gnnflow.executions.globalbatch import gathered
from gnnflow.executions.row_exchange import joined
from gnnflow.graph.arrays import Array, IntArray, distinct
from gnnflow.graph.batch import Block, LayerEdges
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.exclusion import RowPairs, WithoutPairs
from gnnflow.neighbors.link_candidates import KnownLinks
from gnnflow.neighbors.pairs import StoredPairs
from gnnflow.sampling.pairs import EVALUATION, draw_negatives
from gnnflow.train.globalbatch.pairs import hidden_pairs
from gnnflow.train.heads import PairHead
from gnnflow.train.hybrid.part import RankPart, before
from gnnflow.train.minibatch.batches import PlannedBatch, view_of_entry
from gnnflow.train.minibatch.loader import Batch, SplitBuilder


@dataclass(frozen=True)
class RankNodes(SplitBuilder):
    """Makes this rank's part of batches of nodes. begins: by split, the targets on the ranks before this one."""

    part: RankPart
    begins: Mapping[str, int]

    @staticmethod
    def of(part: RankPart) -> RankNodes:
        """Return the builder of all ranks' batches, which they make together."""
        counts = [len(part.own.of(split)) for split in SPLITS]
        return RankNodes(part, dict(zip(SPLITS, before(part, counts), strict=True)))

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
        split = planned.entry.split
        of_split = self.part.own.of(split)
        own = planned.positions - self.begins[split]
        own = np.sort(own[(own >= 0) & (own < len(of_split))])
        return self.part.nodes_batch(of_split[own], self.part.layers(view_of_entry(planned.entry)))


@dataclass(frozen=True)
class OwnPairs:
    """The pairs of a rank, and what their negatives are drawn by.

    begins: by split, the pairs on the ranks before this one. known: edges that held-out pairs are not ranked against.
    """

    part: RankPart
    stored: StoredPairs
    begins: Mapping[str, int]
    task: PairTask
    known: KnownLinks | None

    @staticmethod
    def of(part: RankPart, stored: StoredPairs, task: PairTask, known: KnownLinks | None) -> OwnPairs:
        """Return the pairs of a rank, with their numbers among the pairs of all ranks.

        Raises TrainingError where an edge between the ends of a held-out pair carries messages.
        """
        begins = before(part, [len(stored.of(split)) for split in SPLITS])
        pairs = OwnPairs(part, stored, dict(zip(SPLITS, begins, strict=True)), task, known)
        for split in SPLITS[1:] if pairs.leaves_out else ():
            sources, targets = (ends[stored.of(split)] for ends in (stored.sources, stored.targets))
            hidden = hidden_pairs(sources, targets, bounds=part.bounds, exchange=part.exchange)
            hidden.check_absent([Block(part.own.edges, part.num_nodes)], split=split)
        return pairs

    @property
    def leaves_out(self) -> bool:
        """True where a pair is scored without the edges between its ends."""
        return not (isinstance(self.task, EdgeTask) and self.task.messages)

    def labels(self, places: IntArray) -> Array:
        """Return the labels of some pairs [B]: of links 0, the column of the true target."""
        if self.stored.labels is None:
            return np.zeros(len(places), np.int64)
        labels: Array = self.stored.labels[places]
        return labels

    def candidates(self, places: IntArray, *, pool: IntArray, in_batch: IntArray, split: str, epoch: int) -> IntArray:
        """Return the targets of some pairs and of their negatives [B, 1 + K], as dense ids.

        in_batch: the targets of the batch's pairs.
        """
        stored, task = self.stored, self.task
        targets = stored.targets[places]
        if not isinstance(task, LinkTask):
            return targets[:, None]
        scoring, negatives = epoch == EVALUATION, task.negatives
        drawn = draw_negatives(
            stored.keys[places],
            stored.sources[places],
            targets,
            candidates=in_batch if isinstance(negatives, InBatchNegatives) and not scoring else pool,
            count=negatives.evaluation if scoring else negatives.per_edge,
            seed=self.part.seed,
            epoch=epoch,
            are_edges=self.known.are if self.known is not None and scoring and split != "train" else None,
        )
        return np.concatenate([targets[:, None], drawn], axis=1)

    def batch(
        self, places: IntArray, candidates: IntArray, ends: IntArray, layers: Sequence[LayerEdges], *, split: str
    ) -> Batch:
        """Return this rank's part of a batch of pairs. ends: of the pairs of all ranks."""
        part, stored = self.part, self.stored
        if split == "train" and self.leaves_out:
            keys = RowPairs(ends[:, 0], ends[:, 1], part.num_nodes).keys()
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
        return part.pairs_batch(found, layers, head=head, labels=self.labels(places), targets=stored.targets[places])


@dataclass(frozen=True)
class RankPairs(SplitBuilder):
    """Makes this rank's part of batches of pairs. pools: by split, the nodes that negatives are drawn from."""

    pairs: OwnPairs
    pools: Mapping[str, IntArray]

    @property
    def width(self) -> int:
        """Number of scores of a pair."""
        decoder, task = self.pairs.part.model.inputs.decoder, self.pairs.task
        assert decoder is not None
        return 1 + task.negatives.evaluation if isinstance(task, LinkTask) else decoder.num_outputs

    def labels(self, entry: ShardEntry) -> Array:
        """Return the labels of this rank's pairs of a split."""
        return self.pairs.labels(self.pairs.stored.of(entry.split))

    def key(self, planned: PlannedBatch, *, epoch: int) -> str:
        """Return the key of a batch that comes again: where it is scored."""
        return planned.key if epoch == EVALUATION else ""

    def __call__(self, planned: PlannedBatch, *, epoch: int) -> Batch:
        """Return this rank's part of a batch. All ranks make theirs together."""
        pairs, split, stored = self.pairs, planned.entry.split, self.pairs.stored
        at, places = self._own(planned)
        # numbers in the batch and ends of all its pairs, put into the order of the batch
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
            pool, none = self.pools[split], np.zeros(0, np.int64)
            self.pairs.candidates(places, pool=pool, in_batch=none, split=split, epoch=EVALUATION)

    def _own(self, planned: PlannedBatch) -> tuple[IntArray, IntArray]:
        """Return where this rank's pairs stand in a batch [B], and which of its pairs they are [B]."""
        of_split = self.pairs.stored.of(planned.entry.split)
        own = planned.positions - self.pairs.begins[planned.entry.split]
        at = np.flatnonzero((own >= 0) & (own < len(of_split)))
        return at, of_split[own[at]]
