"""Inputs of the simulator, measured on the workers of a Dask cluster: steps of ranks, and messages."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from distributed import Client
from simulator import Floats, Measured, Network, fitted_network, to_document
from torch import Tensor, nn

from gnnflow.config import TrainConfig
from gnnflow.progress import Silent
from gnnflow.train.job import Shards, TrainJob
from gnnflow.train.ranks.gradients import BUCKET_BYTES
from gnnflow.train.ranks.group import find_store, join_group, open_store
from gnnflow.train.ranks.operations import Place, Position
from gnnflow.train.source import OpenSource, Source, Step
from gnnflow.train.state import Row
from gnnflow.train.trainer import train
from gnnflow.train.updater import LocalUpdater, StepLoss, Updater, WeightedLoss

HOST = "127.0.0.1"
PATIENCE = 60.0
SIZES = (256, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)


def clocks() -> Floats:
    """Return the seconds of the clock, and those that this thread has computed [2]."""
    return np.array([time.perf_counter(), time.thread_time()])


@dataclass(frozen=True)
class TimedSource:
    """A source that records the time to make each step, by both clocks."""

    source: Source
    build: list[Floats]

    def __getattr__(self, name: str) -> Any:
        """Return the attributes that are not timed."""
        return getattr(self.source, name)

    def __enter__(self) -> Self:
        """Open the source."""
        self.source.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.source.__exit__(kind, error, trace)

    def steps(self, epoch: int, *, since: int) -> Iterator[Step]:
        """Yield an epoch's steps."""
        steps = iter(self.source.steps(epoch, since=since))
        while True:
            begin = clocks()
            if (step := next(steps, None)) is None:
                return
            self.build.append(clocks() - begin)
            yield step


@dataclass
class Recorder:
    """An exchange of one rank, which sends nothing and records the time of each step's gradients.

    build, rest and backward hold a step's seconds by both clocks [2].
    """

    writes_checkpoints = False
    card = 0
    build: list[Floats] = field(default_factory=list)
    rest: list[Floats] = field(default_factory=list)
    backward: list[Floats] = field(default_factory=list)
    came: dict[int, list[float]] = field(default_factory=dict)
    _last: Floats = field(default_factory=clocks)
    _begun: Floats = field(default_factory=clocks)
    _offsets: dict[int, float] = field(default_factory=dict)

    def of_all(self, row: Row) -> tuple[Row, ...]:
        """Return this rank's figures."""
        return (row,)

    def open(self, open_source: OpenSource, job: TrainJob, *, edges: bool) -> Any:
        """Return the job's own source, whose batches are timed."""
        return TimedSource(open_source(job, edges=edges), self.build)

    def updater(self, model: nn.Module, config: TrainConfig) -> Updater:
        """Return an updater of this rank alone."""
        for number, parameter in enumerate(each for each in model.parameters() if each.requires_grad):
            parameter.register_post_accumulate_grad_hook(partial(self._arrived, number))  # type: ignore[no-untyped-call]
        return LocalUpdater(model, config, exchange=self)

    def part(self, loss: Tensor, weight: float) -> WeightedLoss:
        """Return both unchanged."""
        return WeightedLoss(loss, weight)

    def begin(self, *, loss: float, weight: float, num_targets: int) -> None:
        """Note that the backward pass begins."""
        self._loss = StepLoss(loss, num_targets)
        self._begun = clocks()
        self.rest.append(self._begun - self._last - self.build[-1])

    def send(self) -> None:
        """Send nothing."""

    def finish(self) -> StepLoss:
        """Note that it has ended."""
        self._last = clocks()
        self.backward.append(self._last - self._begun)
        for number, offset in self._offsets.items():
            self.came.setdefault(number, []).append(offset / self.backward[-1][0])
        return self._loss

    def epochs(self, fit: str, rows: Iterable[Row]) -> None:
        """Reset at the end of an epoch; the first one, which reads and checks files, is dropped."""
        if any(row["epoch"] == 1 for row in rows):
            for each in (self.build, self.rest, self.backward):
                each.clear()
        self._last = clocks()

    def _arrived(self, number: int, parameter: Tensor) -> None:
        self._offsets[number] = time.perf_counter() - self._begun[0]


@dataclass(frozen=True)
class Steps:
    """Seconds of a rank's steps by part and clock [3, S, 2]; the share of a backward pass each gradient waits for."""

    parts: Floats
    ready: Sequence[float]


def steps_of(job: TrainJob, open_source: OpenSource | None = None) -> Steps:
    """Train alone on one rank's share and return its steps, of which `ready` is the median."""
    recorder = Recorder()
    train(job, progress=Silent(), open_source=open_source, rank=recorder, log=recorder)
    ready = [statistics.median(recorder.came.get(number, [1.0])) for number in range(len(_sizes(job)))]
    return Steps(np.array([recorder.build, recorder.rest, recorder.backward]), ready)


@dataclass(frozen=True)
class Apart:
    """The steps of ranks that trained apart: by the clock, and by the processor time of each rank's thread.

    The second holds for a rank on a separate core, if it has only one thread.
    """

    clock: Measured
    computed: Measured

    def to_document(self) -> dict[str, Any]:
        """Return both as JSON values."""
        return {"clock": to_document(self.clock), "computed": to_document(self.computed)}


def apart(job: TrainJob, client: Client, *, ranks: int, open_source: OpenSource | None = None) -> Apart:
    """Train on n workers at the same time, each on its share, without an exchange, and return their steps.

    Nothing is scored: a rank's share of a small split may be empty.
    """
    assert isinstance(job.graph, Shards)
    graph = replace(job.graph, entries=[entry for entry in job.graph.entries if entry.split == "train"])
    shares = [replace(job, graph=graph).of_rank(rank, ranks) for rank in range(ranks)]
    workers = sorted(client.nthreads())[:ranks]
    futures = [
        client.submit(steps_of, share, open_source, workers=[worker], pure=False)
        for share, worker in zip(shares, workers, strict=True)
    ]
    found: Sequence[Steps] = client.gather(futures)
    length = min(each.parts.shape[1] for each in found)
    # by clock, part, rank and step [2, 3, R, S]
    parts = np.stack([each.parts[:, :length] for each in found]).transpose(3, 1, 0, 2)
    ready = np.median([each.ready for each in found], axis=0)
    buckets = in_buckets(_sizes(job))
    sent = (
        [sum(_sizes(job)[number] for number in bucket) for bucket in buckets],
        # sent in order: a bucket waits for those before it too
        np.maximum.accumulate([max(ready[number] for number in bucket) for bucket in buckets]).tolist(),
    )
    # of whole epochs, without the first
    per_epoch = length // (job.train.epochs - 1)
    clock, computed = (Measured(build, rest, backward, *sent, per_epoch=per_epoch) for build, rest, backward in parts)
    return Apart(clock, computed)


def _sizes(job: TrainJob) -> list[int]:
    return [each.nbytes for each in job.model.build().parameters() if each.requires_grad]


def in_buckets(sizes: Sequence[int], bucket_bytes: int = BUCKET_BYTES) -> list[list[int]]:
    """Return the numbers of the parameters that all-reduce sends together, as `gnnflow.train.ranks.gradients` does."""
    buckets: list[list[int]] = []
    held = 0
    for number in reversed(range(len(sizes))):
        if not buckets or held + sizes[number] > bucket_bytes:
            buckets.append([])
            held = 0
        buckets[-1].append(number)
        held += sizes[number]
    return buckets


def network_of(client: Client, *, ranks: int) -> Network:
    """Measure all-reduces between n workers and return the latency and bandwidth of one hop."""
    store = open_store(HOST, start_seconds=PATIENCE)
    workers = sorted(client.nthreads())[:ranks]
    futures = [
        client.submit(all_reduces, rank, ranks, store.port, workers=[worker], pure=False)
        for rank, worker in enumerate(workers)
    ]
    return fitted_network(SIZES, np.max(client.gather(futures), axis=0), ranks=ranks)


def all_reduces(rank: int, ranks: int, port: int, *, repeats: int = 30) -> list[float]:
    """Return this rank's median seconds of an all-reduce of each of SIZES."""
    place = Place(rank, ranks, start_seconds=PATIENCE, step_seconds=PATIENCE)
    store = find_store(HOST, port, start_seconds=PATIENCE, position=Position())
    group = join_group(store, place, host=HOST, position=Position())
    found = []
    for size in SIZES:
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            group.all_reduce(torch.zeros(size // 4)).wait()
            times.append(time.perf_counter() - begin)
        found.append(statistics.median(times))
    group.agree("end", 0)  # no rank closes while another still measures
    return found
