"""Global-batch training under a budget of memory, in one process: one step per epoch over a graph in files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from gnnflow.config import GlobalBatchConfig
from gnnflow.executions.streamed import forward
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.batch import Features
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.splits import SPLITS
from gnnflow.kernels.memory import return_memory
from gnnflow.layers import FeatureTensors
from gnnflow.layers.model import Model, build_model
from gnnflow.neighbors.selected import Neighbors
from gnnflow.train.globalbatch.graph import blocks_of, labelled, read_part
from gnnflow.train.job import TrainJob
from gnnflow.train.outputs import Outputs
from gnnflow.train.profile import Stopwatch
from gnnflow.train.reproducible import seed_step
from gnnflow.train.state import Row
from gnnflow.train.streamed.files import Scratch
from gnnflow.train.streamed.graph import FileGraph, even_sizes
from gnnflow.train.streamed.plan import GraphSize, Plan, check_disk, plan


@dataclass(frozen=True)
class StreamedStep:
    """An epoch's one step."""

    source: StreamedSource
    targets: IntArray
    labels: Array
    epoch: int

    @property
    def features(self) -> FeatureTensors:
        """Those of no row: the features of all targets may be larger than memory."""
        return FeatureTensors(0)

    def seed(self) -> None:
        """Seed torch's generator, of which the pass draws the seed of its draws."""
        seed_step(self.source.seed, epoch=self.epoch, step=0, rank=0)

    def logits(self, model: Model) -> Tensor:
        """Return the outputs of the step's targets."""
        return forward(model, self.source.graph, self.targets)


@dataclass(frozen=True)
class StreamedSource:
    """The graph in files, and what lies in memory of its labelled nodes. rows, splits and labels: of each [L]."""

    graph: FileGraph
    plan: Plan
    rows: IntArray
    row_splits: IntArray
    labels: Array
    splits: tuple[str, ...]
    seed: int
    watch: Stopwatch = field(default_factory=Stopwatch)

    steps_per_epoch = 1

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the threads and close the files, which are gone then."""
        self.graph.scratch.close()

    def steps(self, epoch: int, *, since: int) -> Iterator[StreamedStep]:
        """Yield the epoch's step, unless it is taken."""
        for _ in range(since, self.steps_per_epoch):
            own = self._of("train")
            yield StreamedStep(self, self.rows[own], self.labels[own], epoch)

    def outputs(self, model: Model, split: str) -> Outputs:
        """Return the outputs of the targets of a split, in dense id order. Leaves training mode."""
        model.eval()
        own = self._of(split)
        with torch.no_grad():
            logits = forward(model, self.graph, self.rows[own]).numpy()
        return Outputs(logits, self.labels[own], self.rows[own])

    def train_labels(self) -> Iterable[Array]:
        """Yield the labels of the train split."""
        yield self.labels[self._of("train")]

    def spent(self) -> Row:
        """Return the seconds that writing the graph into files has taken."""
        return self.watch.seconds()

    def _of(self, split: str) -> IntArray:
        return np.flatnonzero(self.row_splits == SPLITS.index(split))


def open_streamed(job: TrainJob, *, edges: bool = True) -> StreamedSource:
    """Write a job's graph into files, partition by partition, and return it as a source.

    Raises TrainingError where the budget cannot be kept or the disk is full.
    """
    neighbors, train = job.neighbors, job.train
    assert neighbors is not None
    assert isinstance(train, GlobalBatchConfig)
    assert train.memory is not None
    if job.device != "cpu":
        raise TrainingError(
            f"training under train.memory computes on the cpu, not on {job.device}",
            where="train.device",
            fix="Set train.device to cpu, or leave train.memory out.",
        )
    watch = Stopwatch()
    watch.start()
    folder = train.scratch or tempfile.gettempdir()
    held = [labelled(neighbors.store, number) for number in range(neighbors.store.num_partitions)]
    rows, splits, labels = (np.concatenate(column) for column in zip(*held, strict=True))
    model = build_model(job.model, job.inputs)
    size = graph_size(neighbors, max(int((splits == number).sum()) for number in range(len(SPLITS))))
    made = plan(model, size, budget=int(train.memory))
    check_disk(made, folder)
    return_memory(most=made.row_bytes)
    watch.lap("read")
    graph = _written(job, neighbors, made, Scratch(folder), edges=edges)
    watch.lap("build")
    return StreamedSource(graph, made, rows, splits, labels, job.splits, job.seed, watch)


def graph_size(neighbors: Neighbors, num_targets: int) -> GraphSize:
    """Return what is known of a graph before its edges are read. num_targets: of the largest split."""
    store, facts = neighbors.store, neighbors.store.facts
    book = store.book
    in_edges = [int(store.degrees(number).in_degree.sum()) for number in range(book.num_partitions)]
    columns = facts.has_weight + facts.attribute_width + (neighbors.sampling == "weighted")
    return GraphSize(
        num_nodes=facts.num_nodes,
        num_edges=facts.num_edges,
        num_targets=num_targets,
        feature_width=facts.features.width if facts.features.kind == "dense" else 0,
        edge_columns=columns,
        largest=(max(map(book.size, range(book.num_partitions))), max(in_edges)),
        has_leaves=set(facts.leaves_of_relations) != {1},
    )


def _written(job: TrainJob, neighbors: Neighbors, made: Plan, scratch: Scratch, *, edges: bool) -> FileGraph:
    fanouts, num_layers = job.fanouts, job.model.layers
    # layers with the same fan-out aggregate the same in-edges; fan-outs are targets first
    files = [0] * num_layers if fanouts is None else [fanouts.index(each) for each in reversed(fanouts)]
    graph = FileGraph.empty(
        scratch,
        even_sizes(neighbors.store.book.num_nodes, made.intervals),
        files=files,
        max_edges=made.max_edges,
        width=job.inputs.feature_width,
        sparse=job.inputs.sparse,
    )
    try:
        for number in range(neighbors.store.num_partitions):
            part = read_part(neighbors, [number])
            part = part if edges else part.without_edges
            blocks = blocks_of(part, neighbors, fanouts, num_layers=num_layers)
            assert isinstance(part.features, Features), "the config refuses graphs with types"
            graph.add(part.first, blocks=blocks, features=part.features, nodes=part.nodes)
            del part, blocks
        pa.default_memory_pool().release_unused()
    except BaseException:
        scratch.close()
        raise
    return graph
