"""Batches of nodes: some targets of a shard with the pruned blocks that reach them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar
from weakref import ref

from gnnflow.executions.minibatch import aggregates_ahead, first_terms, prepared
from gnnflow.executions.tensors import BatchTensors, batch_tensors
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.batch import Features, InPlaceBatch
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.sampling import EVERY_EDGE, Sampling
from gnnflow.graphfeature.blocks import build_in_place, build_minibatch, new_scratch
from gnnflow.graphfeature.neighborhood import Neighborhood, RowArray
from gnnflow.graphfeature.shards import Shard
from gnnflow.layers import FeatureTensors, Model, Terms, TypedFeatureTensors
from gnnflow.sampling.pairs import EVALUATION
from gnnflow.train.minibatch.batches import PlannedBatch
from gnnflow.train.minibatch.loader import Batch, SplitBuilder
from gnnflow.train.minibatch.preparing import Preparing

Blocks = TypeVar("Blocks")


@dataclass(frozen=True)
class _Open:
    """A decoded shard, and the first layer's terms of its nodes where batches are aggregated ahead."""

    shard: Shard
    terms: Terms | None


@dataclass
class NodeBatches(SplitBuilder):
    """Makes batches whose targets are nodes. `read` may tell `preparing.watch` of its "read"."""

    read: Callable[[ShardEntry], Shard]
    model: Model
    preparing: Preparing
    sampling: Sampling = EVERY_EDGE
    _scratch: RowArray = field(default_factory=partial(new_scratch, 0))
    _last: ref[_Open] | None = None

    @property
    def width(self) -> int:
        """The number of outputs of a target."""
        return self.model.inputs.num_outputs

    def labels(self, entry: ShardEntry) -> Array:
        """Return the labels of a shard's targets."""
        return _labels(self._shard(entry).shard)

    def key(self, planned: PlannedBatch, *, epoch: int) -> str:
        """Return the key of a batch that comes again: with its whole shard, or where it is scored."""
        # Dropout keeps training from batches that are aggregated ahead, and not evaluation.
        return f"{planned.key}:ahead" if planned.key and self._aggregates_ahead(epoch) else planned.key

    def __call__(self, planned: PlannedBatch, *, epoch: int) -> Batch:
        """Return the batch of planned targets, aggregated ahead where that can be."""
        opened, positions = self._shard(planned.entry), planned.positions
        if len(self._scratch) < opened.shard.neighborhood.num_nodes:
            self._scratch = new_scratch(opened.shard.neighborhood.num_nodes)
        shard = opened.shard
        tensors = self._tensors(opened, shard.rows[positions], epoch=epoch)
        return Batch(tensors, _labels(shard)[positions], shard.targets[positions])

    def features(self, planned: PlannedBatch) -> FeatureTensors | TypedFeatureTensors:
        """Return the features of all rows of a batch that was aggregated ahead."""
        opened = self._shard(planned.entry)
        features = self._gathered(opened, opened.shard.rows[planned.positions]).features
        assert features is not None
        return features

    def _aggregates_ahead(self, epoch: int) -> bool:
        return aggregates_ahead(self.model, training=epoch != EVALUATION)

    def _shard(self, entry: ShardEntry) -> _Open:
        found: _Open = self.preparing.memory.shard(entry, self._open)
        return found

    def _open(self, entry: ShardEntry) -> _Open:
        watch = self.preparing.watch
        watch.start()
        shard = self.read(entry)
        watch.lap("decode")
        shard = shard if self.sampling.has_edges else without_edges(shard)
        opened = _Open(shard, self._terms(shard.neighborhood))
        self._last = ref(opened)
        return opened

    def _terms(self, neighborhood: Neighborhood) -> Terms | None:
        """Return the first layer's terms of all nodes where batches are aggregated ahead."""
        if not self._aggregates_ahead(EVALUATION) or _is_narrow(neighborhood):
            return None
        # Shards of a graph in memory are all of the same nodes.
        last = None if self._last is None else self._last()
        known = None if last is None else last.shard.neighborhood
        same = known is not None and known.features is neighborhood.features
        if last is not None and same and self.sampling.has_edges:
            return last.terms
        terms = first_terms(self.model, neighborhood.features, neighborhood.degrees)
        self.preparing.watch.lap("sums")
        return terms

    def _tensors(self, opened: _Open, rows: IntArray, *, epoch: int) -> BatchTensors:
        """Return the blocks of the targets at some rows of a shard."""
        if not self._aggregates_ahead(epoch):
            return self._gathered(opened, rows)
        placed: InPlaceBatch = self._blocks(build_in_place, opened, rows)
        terms, features = opened.terms, opened.shard.neighborhood.features
        if terms is None:
            # narrow rows: those that the batch reads are widened for it alone
            placed, read = placed.read_rows()
            features = features.take(read)
            terms = first_terms(self.model, features, opened.shard.neighborhood.degrees.take(read))
        self.preparing.watch.lap("build")
        found = prepared(self.model, terms, placed, features=features)
        self.preparing.watch.lap("sums")
        return found

    def _gathered(self, opened: _Open, rows: IntArray) -> BatchTensors:
        """Return the blocks of these targets with the features of all rows, the targets first."""
        return batch_tensors(self._blocks(build_minibatch, opened, rows), self.model.inputs.schema)

    def _blocks(self, build: Callable[..., Blocks], opened: _Open, rows: IntArray) -> Blocks:
        """Return the blocks of these targets, made by one of the builders."""
        return build(
            opened.shard.neighborhood,
            rows,
            sampling=self.sampling,
            num_layers=self.model.num_layers,
            scratch=self._scratch,
        )


def _is_narrow(neighborhood: Neighborhood) -> bool:
    """Return whether a neighbourhood without types has features in fewer bytes than float32."""
    return isinstance(neighborhood.features, Features) and neighborhood.features.narrow is not None


def without_edges(shard: Shard) -> Shard:
    """Return a shard whose nodes have degrees of zero."""
    neighborhood = shard.neighborhood
    return replace(shard, neighborhood=replace(neighborhood, degrees=neighborhood.degrees.zeros))


def _labels(shard: Shard) -> Array:
    if shard.labels is None:
        raise TrainingError(
            "the graph has no labels", where="graph.label", fix="Name the label column of the node table."
        )
    return shard.labels
