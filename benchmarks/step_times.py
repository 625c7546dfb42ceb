"""What the simulator is fed with, measured on the workers of a Dask cluster: steps of ranks, messages, servers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from distributed import Client
from simulator import Measured, Network, fitted_network
from torch import Tensor, nn

from gnnflow.config import TrainConfig, config_from_dict
from gnnflow.layers.model import build_model
from gnnflow.progress import Silent
from gnnflow.train.job import TrainJob
from gnnflow.train.ranks.gradients import BUCKET_BYTES
from gnnflow.train.ranks.group import Place, Position, find_store, join_group, open_store
from gnnflow.train.ranks.servers import Push, Server
from gnnflow.train.source import OpenSource, Source
from gnnflow.train.state import Row
from gnnflow.train.trainer import train
from gnnflow.train.updater import LocalUpdater, StepLoss, Updater

HOST = "127.0.0.1"
PATIENCE = 60.0
SIZES = (256, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)


@dataclass
class Recorder:
    """One rank without others: an exchange that exchanges nothing and notes when each step's gradients were there."""

    writes_checkpoints = False
    card = 0
    rest: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)
    came: dict[int, list[float]] = field(default_factory=dict)
    skipped: int = 0
    _last: float = 0.0
    _begun: float = 0.0
    _offsets: dict[int, float] = field(default_factory=dict)

    def of_all(self, row: Row) -> tuple[Row, ...]:
        """Return this rank's figures."""
        return (row,)

    def open(self, open_source: OpenSource, job: TrainJob, *, edges: bool) -> Source:
        """Return the job's own source."""
        return open_source(job, edges=edges)

    def updater(self, model: nn.Module, config: TrainConfig) -> Updater:
        """Return an updater of this rank alone."""
        for number, parameter in enumerate(each for each in model.parameters() if each.requires_grad):
            parameter.register_post_accumulate_grad_hook(partial(self._arrived, number))  # type: ignore[no-untyped-call]
        return LocalUpdater(model, config, exchange=self)

    def begin(self, *, loss: float, weight: float, num_targets: int) -> float:
        """Note that the backward pass begins."""
        self._loss = StepLoss(loss, num_targets)
        self._begun = time.perf_counter()
        self.rest.append(self._begun - self._last)
        return 1.0

    def send(self) -> None:
        """Send nothing."""

    def finish(self) -> StepLoss:
        """Note that it has ended."""
        self._last = time.perf_counter()
        whole = self._last - self._begun
        self.backward.append(whole)
        for number, offset in self._offsets.items():
            self.came.setdefault(number, []).append(offset / whole)
        return self._loss

    def epochs(self, fit: str, rows: Iterable[Row]) -> None:
        """Begin anew at the end of an epoch; the steps of the first one, which reads and checks files, are dropped."""
        if any(row["epoch"] == 0 for row in rows):
            self.rest.clear()
            self.backward.clear()
        self._last = time.perf_counter()

    def _arrived(self, number: int, parameter: Tensor) -> None:
        self._offsets[number] = time.perf_counter() - self._begun


def steps_of(job: TrainJob, open_source: OpenSource | None = None) -> tuple[list[float], list[float], list[float]]:
    """Train alone on one rank's share; return rest and backward of each step, and each parameter's share of the latter.

    The share of the backward pass after which a parameter's gradient is there is the median over the steps.
    """
    recorder = Recorder()
    train(job, progress=Silent(), open_source=open_source, rank=recorder, log=recorder)
    ready = [statistics.median(recorder.came.get(number, [1.0])) for number in range(len(_sizes(job)))]
    return recorder.rest, recorder.backward, ready


def apart(job: TrainJob, client: Client, *, ranks: int, open_source: OpenSource | None = None) -> Measured:
    """Have each of n workers train on its share at the same time, without an exchange, and return their steps.

    Nothing is scored: a share of a small split may have no target, which only ranks together can do without.
    """
    entries = [entry for entry in job.entries if entry.split == "train"]
    shares = [replace(job, entries=entries, rank=rank, num_ranks=ranks) for rank in range(ranks)]
    workers = sorted(client.nthreads())[:ranks]
    futures = [
        client.submit(steps_of, share, open_source, workers=[worker], pure=False)
        for share, worker in zip(shares, workers, strict=True)
    ]
    found: Sequence[tuple[list[float], list[float], list[float]]] = client.gather(futures)
    length = min(len(rest) for rest, _, _ in found)
    ready = np.median([each for _, _, each in found], axis=0)
    buckets = in_buckets(_sizes(job))
    return Measured(
        np.array([rest[:length] for rest, _, _ in found]),
        np.array([backward[:length] for _, backward, _ in found]),
        [sum(_sizes(job)[number] for number in bucket) for bucket in buckets],
        # sent in order: a bucket waits for those before it too
        np.maximum.accumulate([max(ready[number] for number in bucket) for bucket in buckets]).tolist(),
    )


def _sizes(job: TrainJob) -> list[int]:
    return [each.nbytes for each in build_model(job.model, job.inputs).parameters() if each.requires_grad]


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
    store = find_store(HOST, port, start_seconds=PATIENCE)
    group = join_group(store, place, host=HOST, position=Position())
    found = []
    for size in SIZES:
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            group.all_reduce(torch.zeros(size // 4)).wait()
            times.append(time.perf_counter() - begin)
        found.append(statistics.median(times))
    group.agree("end", 0)  # nobody closes while another still measures
    return found


def seconds_per_push(client: Client, *, model_bytes: int, callers: int, pushes: int = 200) -> float:
    """Return the seconds between two pushes that a server has taken, when so many workers push one after the other.

    Of one caller it is the way there and back; of many, what a server takes per push: on fewer processors than callers
    an upper bound, since they compute there too. The last worker holds the server.
    """
    *pushing, hosting = sorted(client.nthreads())
    document = {"workers": callers, "updater": {"kind": "parameter_server", "mode": "asynchronous"}}
    graph, cluster = {"nodes": "none", "edges": "none"}, {"kind": "local", "workers": callers}
    config = config_from_dict({"name": "pushes", "graph": graph, "train": document, "cluster": cluster})
    server: Any = client.submit(Server, config.train, callers, actor=True, workers=[hosting], pure=False).result()
    server.begin(0, [np.zeros(model_bytes // 4, np.float32)]).result()
    begin = time.perf_counter()
    futures = [
        client.submit(push_often, server, rank, model_bytes // 4, pushes, workers=[worker], pure=False)
        for rank, worker in enumerate(pushing[:callers])
    ]
    client.gather(futures)
    return (time.perf_counter() - begin) / (callers * pushes)


def push_often(server: Any, rank: int, size: int, pushes: int) -> None:
    """Push gradients of so many numbers, one push after the other."""
    gradients = np.zeros(size, np.float32)
    for step in range(pushes):
        push = Push(rank, step, gradients, np.ones(1, bool), loss=1.0, weight=1.0, num_targets=1)
        server.push(push).result()
