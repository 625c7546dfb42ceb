"""Heads: how the rows of a batch are scored.

A node target needs none: its row holds its outputs. A pair target is scored by the model's decoder from two rows.

Shapes: R rows, W width of a row, P stored pairs, B of them in a batch, K negatives of each (0 where edges have labels),
C outputs of the decoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

import numpy as np
from torch import Tensor

from gnnflow.config import InBatchNegatives, LinkTask, PairTask
from gnnflow.executions.tensors import tensor
from gnnflow.graph.arrays import BoolArray, FloatArray, IntArray
from gnnflow.graphfeature.shards import PairShard
from gnnflow.layers import FeatureTensors, TypedFeatureTensors
from gnnflow.layers.model import Model
from gnnflow.neighbors.link_candidates import KnownLinks, filtered_links
from gnnflow.neighbors.pairs import StoredPairs
from gnnflow.sampling.pairs import EVALUATION, draw_negatives
from gnnflow.storage.graph_store import GraphStore
from gnnflow.train.job import TrainJob


@dataclass(frozen=True)
class PairHead:
    """Scores pairs of rows.

    sources [B] and candidates [B, 1 + K] are rows; column 0 of the candidates is the pair's own target. ends: the rows
    of each score's source and target [B x (1 + K)], as tensors. attributes [B, A]: of edges, for the decoder.
    """

    sources: IntArray
    candidates: IntArray
    ends: tuple[Tensor, Tensor]
    attributes: Tensor | None = None

    @staticmethod
    def of(
        sources: IntArray, candidates: IntArray, *, model: Model, attributes: FloatArray | None, places: IntArray
    ) -> PairHead:
        """Return the head of these pairs. attributes [P, A]: of all edges, the pairs' own at `places` [B]."""
        decoder = model.inputs.decoder
        assert decoder is not None
        ends = tensor(np.repeat(sources, candidates.shape[1])), tensor(candidates.reshape(-1))
        if not decoder.attribute_width:
            return PairHead(sources, candidates, ends)
        assert attributes is not None
        return PairHead(sources, candidates, ends, tensor(attributes[places]))

    def scores(self, model: Model, rows: Tensor) -> Tensor:
        """Return the scores of pairs and negatives [B, 1 + K]; where edges have labels, the outputs [B, C].

        rows [R, W]: what the model's layers give.
        """
        source, target = (rows.index_select(0, each) for each in self.ends)
        found = model.score(source, target, self.attributes)
        return found.reshape(len(self.sources), self.candidates.shape[1] * found.shape[1])


def scores_per_pair(task: PairTask, model: Model) -> int:
    """Return the number of scores of a pair: 1 + K when links are ranked, the decoder's outputs of labelled edges."""
    decoder = model.inputs.decoder
    assert decoder is not None
    return 1 + task.negatives.evaluation if isinstance(task, LinkTask) else decoder.num_outputs


_HELD: WeakValueDictionary[tuple[str, str, str], KnownLinks] = WeakValueDictionary()


def _hold_links(store: GraphStore, task: PairTask) -> KnownLinks | None:
    """Return the edges that are no candidates; they are not read again while a source of this process holds them."""
    key = (store.artifact, store.selection, task.model_dump_json())
    found = _HELD.get(key) or filtered_links(store, task)
    if found is not None:
        _HELD[key] = found
    return found


@dataclass(frozen=True)
class PairRule:
    """The rule by which negatives of pairs are drawn.

    known: edges that held-out pairs are not ranked against, where these are left out.
    """

    task: PairTask
    seed: int
    known: KnownLinks | None = None

    @staticmethod
    def of(job: TrainJob) -> PairRule:
        """Return the rule of a job whose targets are pairs."""
        assert isinstance(job.task, PairTask)
        store = job.graph.store
        return PairRule(job.task, job.seed, None if store is None else _hold_links(store, job.task))

    def candidates(
        self,
        pairs: StoredPairs | PairShard,
        places: IntArray,
        *,
        pool: IntArray,
        split: str,
        epoch: int,
        in_batch: IntArray | None = None,
    ) -> IntArray:
        """Return the targets and negatives of pairs at some places [B, 1 + K], numbered as the ends are.

        pool [M]: nodes to draw from, unless the task draws from the batch. epoch: EVALUATION where pairs are scored.
        in_batch: the targets of the whole batch, where the pairs are a part of it.
        """
        sources, targets = pairs.sources[places], pairs.targets[places]
        if not isinstance(self.task, LinkTask):
            return targets[:, None]
        negatives, is_scored = self.task.negatives, epoch == EVALUATION
        if isinstance(negatives, InBatchNegatives) and not is_scored:
            pool = targets if in_batch is None else in_batch
        # negatives of each pair [B, K]
        drawn = draw_negatives(
            pairs.keys[places],
            sources,
            targets,
            candidates=pool,
            count=negatives.evaluation if is_scored else negatives.per_edge,
            seed=self.seed,
            epoch=epoch,
            are_edges=None if self.known is None or split == "train" else partial(_are_known, self.known, pairs),
        )
        return np.concatenate([targets[:, None], drawn], axis=1)


def _are_known(known: KnownLinks, pairs: StoredPairs | PairShard, sources: IntArray, targets: IntArray) -> BoolArray:
    """Return which pairs are edges, given by ends that are numbered as in `pairs`."""
    if isinstance(pairs, PairShard):
        sources, targets = pairs.shard.targets[sources], pairs.shard.targets[targets]
    return known.are(sources, targets)


def features_of(features: FeatureTensors | TypedFeatureTensors, head: PairHead | None) -> FeatureTensors:
    """Return the features of a batch's rows, targets first; on a graph with types only of the targets' type.

    The target of a pair is the node that it leads to, whose features then come twice.
    """
    return features.of_targets if head is None else features_of_rows(features, head.candidates[:, 0])


def features_of_rows(features: FeatureTensors | TypedFeatureTensors, rows: IntArray) -> FeatureTensors:
    """Return the features of some rows, then of all; with types only of the rows' type."""
    if isinstance(features, TypedFeatureTensors):
        features, rows = features.of_type(rows)
    own = [features.rows(row, row + 1) for row in rows.tolist()]
    return FeatureTensors.joined([*own, features])
