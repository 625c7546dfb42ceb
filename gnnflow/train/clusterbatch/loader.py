"""Batches of clusters ready when the trainer asks: one thread cuts them from the graph in memory ahead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.executions.clusterbatch import cluster_batch
from gnnflow.executions.minibatch import sort_for_backward
from gnnflow.executions.moving import Moved, Mover
from gnnflow.executions.tensors import BatchTensors, batch_tensors
from gnnflow.graph.arrays import ragged_ranges
from gnnflow.graph.errors import TrainingError
from gnnflow.graphfeature.clusters import cut_clusters
from gnnflow.train.minibatch.loader import in_order
from gnnflow.train.minibatch.memory import Memory
from gnnflow.train.profile import Stopwatch

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.graph.facts import GraphFacts
    from gnnflow.graphfeature.neighborhood import Neighborhood, RowArray
    from gnnflow.layers.model import Model
    from gnnflow.neighbors.whole import SplitTargets


@dataclass(frozen=True)
class ClusterTensors:
    """Tensors to compute on, with labels (as MiniBatch has them) and dense ids [B] of the targets, the first rows."""

    tensors: BatchTensors
    labels: Array
    targets: IntArray


@dataclass(frozen=True)
class _Sent:
    """A batch on its way to the device; `ready` holds what stays here."""

    ready: ClusterTensors
    moved: Moved[BatchTensors]


@dataclass(frozen=True)
class ClusterLoader:
    """Makes batches of clusters. Close it to end its thread.

    graph: the whole one, with every in-edge that is aggregated over; train: its training targets. facts: say which
    nodes a cluster has. model: one like that which is trained. memory: keeps batches that come again.
    """

    graph: Neighborhood
    train: SplitTargets
    facts: GraphFacts
    model: Model
    boundary_hops: int
    prefetch: int
    memory: Memory[ClusterTensors, ClusterTensors]
    reader: ThreadPoolExecutor
    scratch: RowArray
    mover: Mover = field(default_factory=Mover)
    watch: Stopwatch = field(default_factory=Stopwatch)

    def close(self) -> None:
        """End the reader thread; batches not yet begun are dropped."""
        self.reader.shutdown(wait=True, cancel_futures=True)

    def batches(self, groups: Iterable[IntArray]) -> Iterator[ClusterTensors]:
        """Yield the batch of each group of clusters, in order, prepared up to `prefetch` ahead."""
        begun = (self._begin(group) for group in groups)
        with closing(in_order(begun, ahead=self.prefetch)) as sent:
            yield from map(self._arrived, sent)

    def _begin(self, clusters: IntArray) -> _Sent | Future[_Sent]:
        held = self.memory.batch(_key(clusters))
        if held is not None:
            return self._sent(held)

        def build() -> _Sent:
            return self._sent(self._build(clusters))

        return self.reader.submit(build) if self.prefetch else build()

    def _sent(self, ready: ClusterTensors) -> _Sent:
        sort = partial(sort_for_backward, self.model) if self.mover.leaves_the_cpu else None
        return _Sent(ready, self.mover.begin(ready.tensors, then=sort))

    def _arrived(self, sent: _Sent) -> ClusterTensors:
        return replace(sent.ready, tensors=self.mover.arrived(sent.moved)) if self.mover.leaves_the_cpu else sent.ready

    def _build(self, clusters: IntArray) -> ClusterTensors:
        self.watch.start()
        runs = [run for number in clusters.tolist() for run in self.facts.cluster_ranges(number)]
        # the first node of each run of dense ids, and the one behind it [runs]
        starts, stops = (np.array([getattr(run, end) for run in runs]) for end in ("start", "stop"))
        # where the targets of each run begin and end among those of the split, which ascend [runs]
        first, last = (np.searchsorted(self.train.nodes, ends) for ends in (starts, stops))
        places = ragged_ranges(first, last - first)
        targets = self.train.nodes[places]
        rows = cut_clusters(
            self.graph,
            targets,
            members=ragged_ranges(starts, stops - starts),
            boundary_hops=self.boundary_hops,
            scratch=self.scratch,
        )
        batch = cluster_batch(
            rows.block,
            nodes=self.graph.degrees.take(rows.nodes),
            features=self.graph.features.take(rows.nodes),
            targets=targets,
            num_layers=self.model.num_layers,
        )
        tensors = self.mover.pinned(batch_tensors(batch, self.model.inputs.schema))
        if self.train.labels is None:
            raise TrainingError(
                "the graph has no labels", where="graph.label", fix="Name the label column of the node table."
            )
        ready = ClusterTensors(tensors, self.train.labels[places], targets)
        if not self.mover.leaves_the_cpu:
            sort_for_backward(self.model, ready.tensors)
        self.memory.keep(_key(clusters), ready)
        self.watch.lap("build")
        return ready


def _key(clusters: IntArray) -> str:
    """Return the key of a batch that every epoch has; empty for one that hardly comes again."""
    return str(clusters[0]) if len(clusters) == 1 else ""
