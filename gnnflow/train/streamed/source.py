"""Global-batch training under a budget of memory: one step per epoch over a graph in files, on one rank or a ring."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from gnnflow.config import GlobalBatchConfig
from gnnflow.executions.row_exchange import Exchange, OneRank, told_by_all
from gnnflow.executions.streamed import Ring, forward
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.batch import sum_relations
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.splits import SPLITS
from gnnflow.kernels.memory import give_back, return_memory
from gnnflow.layers import FeatureTensors
from gnnflow.layers.model import Model
from gnnflow.storage.graph_store import GraphStore
from gnnflow.train.globalbatch.graph import (
    Labelled,
    blocks_of,
    bounds_of,
    labelled,
    partitions_of,
    read_part,
    targets_by_split,
)
from gnnflow.train.job import TrainJob
from gnnflow.train.outputs import Outputs
from gnnflow.train.profile import Stopwatch
from gnnflow.train.reproducible import seed_step
from gnnflow.train.source import Steps
from gnnflow.train.state import Row
from gnnflow.train.streamed.bandwidth import keeps_copies, measured
from gnnflow.train.streamed.budget import Plan, plan
from gnnflow.train.streamed.card import Card
from gnnflow.train.streamed.files import Scratch, check_disk
from gnnflow.train.streamed.graph import FileGraph
from gnnflow.train.streamed.numbering import (
    Numbering,
    by_id,
    by_type,
    depths,
    even_sizes,
    numbered,
    numbered_by_type,
    types_in,
)
from gnnflow.train.streamed.size import graph_size, of_all_ranks
from gnnflow.train.streamed.widths import ON_CARD, ON_CPU


@dataclass(frozen=True)
class StreamedStep:
    """An epoch's one step. rows: where the targets lie, ascending."""

    source: StreamedSource
    rows: IntArray
    targets: IntArray
    labels: Array
    epoch: int

    @property
    def features(self) -> FeatureTensors:
        """Features of zero rows: the features of all targets may be larger than memory."""
        return FeatureTensors(0)

    def seed(self) -> None:
        """Seed torch's generator, of which the pass draws the seed of its draws: one seed on all ranks.

        Its draws are functions of interval and piece, which are numbered over all ranks.
        """
        seed_step(self.source.seed, epoch=self.epoch, step=0, rank=0)

    def logits(self, model: Model) -> Tensor:
        """Return the outputs of the step's targets."""
        return forward(model, self.source.training, self.rows)


@dataclass(frozen=True)
class StreamedSource(Steps):
    """A rank's part of the graph in files, and what lies in memory of its labelled nodes.

    training: the same files, read and computed on as training targets need them. rows (where each lies, ascending), ids
    (dense), splits and labels: of each [L].
    """

    graph: FileGraph
    training: FileGraph
    plan: Plan
    rows: IntArray
    ids: IntArray
    row_splits: IntArray
    labels: Array
    splits: tuple[str, ...]
    seed: int
    watch: Stopwatch = field(default_factory=Stopwatch)

    steps_per_epoch = 1

    def close(self) -> None:
        """End the threads and close the files, which are gone then."""
        self.graph.scratch.close()

    def step(self, epoch: int, number: int, *, share: int | None = None) -> StreamedStep:
        """Return the epoch's only step."""
        own = self._of("train")
        return StreamedStep(self, self.rows[own], self.ids[own], self.labels[own], epoch)

    def outputs(self, model: Model, split: str) -> Outputs:
        """Return the outputs of the targets of a split, in dense id order. Leaves training mode."""
        model.eval()
        own = self._of(split)
        with torch.no_grad():
            logits = forward(model, self.graph, self.rows[own]).cpu().numpy()
        give_back()  # metrics take their own memory, in place of rows
        order = np.argsort(self.ids[own])
        own = own[order]
        return Outputs(logits[order], self.labels[own], self.ids[own])

    def train_labels(self) -> Iterable[Array]:
        """Yield the labels of the train split."""
        yield self.labels[self._of("train")]

    def spent(self) -> Row:
        """Return the seconds that writing the graph into files has taken."""
        return self.watch.seconds()

    def _of(self, split: str) -> IntArray:
        return np.flatnonzero(self.row_splits == SPLITS.index(split))


def open_streamed(job: TrainJob, *, edges: bool = True, exchange: Exchange | None = None) -> StreamedSource:
    """Write this rank's part of a job's graph into files, partition by partition, and return it as a source.

    exchange: with the other ranks; None where there is one. Raises TrainingError where the budget cannot be kept, the
    disk is full, the graph has fewer partitions than there are ranks, or a card is to compute several relations.
    """
    neighbors, train = job.neighbors, job.train
    assert isinstance(train, GlobalBatchConfig)
    _refuse_typed_card(job)
    card = None if job.share.device == "cpu" else Card(torch.device(job.share.device))
    watch = Stopwatch()
    watch.start()
    exchange = exchange or OneRank()
    store = neighbors.store
    partitions = partitions_of(exchange.rank, exchange.size, store.book)
    counts = targets_by_split(store, partitions)
    scratch = Scratch(train.scratch or (None if card else tempfile.gettempdir()))
    try:
        made = _planned(job, counts, scratch, exchange, card)
        nodes = _labelled_of(store, partitions, int(counts.sum()))
        watch.lap("read")
        targets = nodes.ids[nodes.splits == SPLITS.index("train")]
        numbering = _numbering(job, made, exchange, targets=targets, edges=edges)
        files = _written(job, made, numbering, scratch, exchange, edges=edges)
        graph = files if card is None else files.on_card(card)
        training = files.pruned.sorted() if card is None else graph
    except BaseException:
        scratch.close()
        raise
    watch.lap("build")
    rows = numbering.rows_of(nodes.ids).astype(np.int64)
    order = np.argsort(rows)
    return StreamedSource(
        graph,
        training,
        made,
        rows=rows[order],
        ids=nodes.ids[order],
        row_splits=nodes.splits[order],
        labels=nodes.labels[order],
        splits=job.splits,
        seed=job.seed,
        watch=watch,
    )


def _refuse_typed_card(job: TrainJob) -> None:
    """Raise TrainingError where a card is to compute several relations; the config refuses those that it knows."""
    if job.share.device != "cpu" and job.neighbors.store.schema.is_typed:
        raise TrainingError(
            "a card takes chunks of one relation, and the graph has several, or several types of nodes",
            where="train.device",
            fix="Set it to cpu, or leave train.memory out.",
        )


def _labelled_of(store: GraphStore, partitions: range, number: int) -> Labelled:
    """Read so many labelled nodes of some partitions, each into its place: labels may be as large as features."""
    made: list[Array] = []
    first = 0
    for partition in partitions:
        held = labelled(store, partition)
        made = made or [np.empty((number, *column.shape[1:]), column.dtype) for column in held]
        for into, column in zip(made, held, strict=True):
            into[first : first + len(column)] = column
        first += len(held.ids)
    pa.default_memory_pool().release_unused()
    return Labelled(*made)


def _planned(job: TrainJob, counts: IntArray, scratch: Scratch, exchange: Exchange, card: Card | None) -> Plan:
    """Return the cut of the graph that keeps the budget, the same on all ranks; the disk is checked.

    counts: this rank's targets by split. Raises TrainingError where the budget cannot be kept or the disk is too full.
    """
    neighbors, train = job.neighbors, job.train
    assert isinstance(train, GlobalBatchConfig)
    assert train.memory is not None
    book, folder, sharing, copies = neighbors.store.book, scratch.folder, 1, False
    size = graph_size(neighbors, counts, partitions_of(exchange.rank, exchange.size, book))
    if exchange.size > 1:
        copies = keeps_copies(measured(scratch, exchange, card), np.diff(bounds_of(exchange.size, book)))
        size, sharing = of_all_ranks(size, counts, folder, exchange)
    # torch imports it, and SymPy with it, for the first gradient of a part: 30 MiB that are no part of the budget
    importlib.import_module("torch.fx.experimental.symbolic_shapes")
    model = job.model.build()
    made = plan(model, size, budget=int(train.memory), copies=copies, place=ON_CARD if card else ON_CPU)
    check_disk(made.disk_bytes, folder, ranks=sharing)
    return_memory(most=made.row_bytes, budget=None if card else made.num_bytes)
    told_by_all(exchange, np.zeros(1, np.int64))  # nobody writes before all have looked
    return made


def _numbering(job: TrainJob, made: Plan, exchange: Exchange, *, targets: IntArray, edges: bool) -> Numbering:
    """Return the places of nodes: by id on several ranks, and where edges have leaves."""
    neighbors = job.neighbors
    store, book = neighbors.store, neighbors.store.book
    is_typed, of_types = store.schema.is_typed, made.of_types or (made.intervals,) * book.num_types
    if exchange.size > 1 or set(store.facts.leaves_of_relations) != {1}:
        bounds = bounds_of(exchange.size, book)
        if is_typed:
            return by_type(types_in(book), of_types, bounds=bounds.tolist())
        return by_id([size for rank in np.diff(bounds).tolist() for size in even_sizes(rank, made.intervals)])
    num_layers = job.model.config.layers
    limits = neighbors.sampling.of_hops(num_layers)
    depth = depths(book, neighbors.in_edges if edges else None, targets, limits=limits)
    degrees = np.zeros((2, book.num_nodes), np.int32)
    for number in range(book.num_partitions if edges else 0):
        held, nodes = store.degrees(number), slice(book.start(number), book.start(number) + book.size(number))
        degrees[:, nodes] = [sum_relations(each) for each in (held.in_degree, held.out_degree)]
    into, out_of = degrees
    if is_typed:
        return numbered_by_type(
            types_in(book), of_types, in_degree=into, out_degree=out_of, depth=depth, num_levels=num_layers + 1
        )
    return numbered(made.intervals, in_degree=into, out_degree=out_of, depth=depth, num_levels=num_layers + 1)


def _written(
    job: TrainJob, made: Plan, numbering: Numbering, scratch: Scratch, exchange: Exchange, *, edges: bool
) -> FileGraph:
    neighbors = job.neighbors
    book = neighbors.store.book
    num_layers = job.model.config.layers
    limits = neighbors.sampling.of_hops(num_layers)
    # layers with the same fan-out aggregate the same in-edges; fan-outs are targets first
    files = [limits.index(each) for each in reversed(limits)]
    graph = FileGraph.empty(
        scratch,
        numbering,
        files=files,
        max_edges=made.max_edges,
        max_rows=made.max_rows,
        width=job.model.inputs.feature_width,
        sparse=job.model.inputs.sparse,
        ring=None if exchange.size == 1 else Ring(exchange, numbering.sizes, copies=made.copies),
        typed=job.model.inputs.typed,
        leaves=job.model.inputs.leaves_of_relations,
        together=made.together,
        narrow=[None if each is None else each.narrow for each in neighbors.store.facts.features_of_types],
    )
    for number in partitions_of(exchange.rank, exchange.size, book):
        part = read_part(neighbors, [number], targets=False)
        part = part if edges else part.without_edges
        blocks = blocks_of(part, neighbors, num_layers=num_layers)
        graph.add(part.first, blocks=blocks, features=part.features, nodes=part.nodes)
        del part, blocks
        pa.default_memory_pool().release_unused()  # reading is counted for one partition at a time
    return graph.written()
