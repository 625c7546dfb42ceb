"""Runs one attempt at a training on several ranks: starts them on workers, and watches them until they are done.

A task on a lost worker is never answered, so the set of workers is watched and not the futures alone. A rank tells
its place by events of one topic per rank; one that is silent for too long, or does not move, is stuck.
"""

from __future__ import annotations

import queue
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import ClusterError
from gnnflow.mapreduce.submitting import PREFIX as OURS
from gnnflow.mapreduce.submitting import restart_if_ours, submit
from gnnflow.progress import place_text
from gnnflow.train.ranks.busy_workers import busy_workers
from gnnflow.train.ranks.group import RankLateError, late
from gnnflow.train.ranks.hosting import Hosting
from gnnflow.train.ranks.operations import Place, RankLostError, RankStoppedError
from gnnflow.train.ranks.patience import PAUSE_SECONDS
from gnnflow.train.ranks.scheduler import SchedulerLostError, needing_scheduler
from gnnflow.train.ranks.task import BEAT_SECONDS, RankOrder, run_rank

if TYPE_CHECKING:
    from distributed import Client, Future

    from gnnflow.progress import Progress
    from gnnflow.train.job import TrainJob
    from gnnflow.train.source import OpenSource
    from gnnflow.train.trainer import TrainResult

PREFIX = f"{OURS}rank"
"""What the keys of ranks begin with, on any cluster."""

LOOK_SECONDS = 0.25
"""How often the cluster is looked at."""

_LEAVE_SECONDS = 10.0
_WORKERS_SECONDS = 1.0


@dataclass
class _RankStatus:
    """Latest news of one rank: its last beat, when it came, and when it last was somewhere new."""

    worker: str
    begun: bool = False
    left: bool = False
    beat: dict[str, Any] = field(default_factory=dict)
    heard_at: float = field(default_factory=time.monotonic)
    moved_at: float = field(default_factory=time.monotonic)


class WorkerTakenError(Exception):
    """Another training's rank is on the worker that one of ours waits for."""


class RankFailedError(Exception):
    """A rank failed because of the job itself; it may have raised an OSError, as a lost scheduler does."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(str(raised))
        self.raised = raised


class Attempt:
    """The ranks of a training from their start until they are done, or one of them is lost.

    access: what a process holds that may compute one; empty where any of the workers' may. busy: workers that still
    compute a rank after its end, since nobody can restart them.
    """

    def __init__(
        self,
        job: TrainJob,
        client: Client,
        *,
        progress: Progress,
        workers: Sequence[str],
        others: Sequence[str],
        open_source: OpenSource | None,
        access: str = "",
    ) -> None:
        self._job = job
        self._client = client
        self._progress = progress
        self._open_source = open_source
        self._topic = f"{PREFIX}-{uuid.uuid4().hex}"
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._seen = [_RankStatus(worker) for worker in workers]
        self._futures: dict[int, Future[Any]] = {}
        self._access = access
        self._servers = Hosting(job, client, self._topic, ranks=workers, others=others, access=access)
        self._looked_at = 0.0
        self._turned_at = time.monotonic()
        self._told_at = 0.0  # when a rank was told to begin, last
        self._over = False
        self.busy: list[str] = []

    def run(self) -> TrainResult:
        """Start the ranks and return rank 0's result.

        Raises RankLostError where a rank is lost, and RankFailedError where one raised what is wrong with the job.
        """
        self._client.subscribe_topic(self._topic, self._queue_event)
        try:
            self._servers.start()
            self._start(0, store=None)
            while not self._done():
                self._take_events()
                self._reset_limits()
                self._check_results()
                self._check_workers()
                self._check_arrivals()
                self._check_moves()
            result: TrainResult = self._futures[0].result()
            self._take_events(wait=False)
        except BaseException as error:
            self._end(patient=isinstance(error, Exception))
            raise
        else:
            self._end(patient=False)
            return result

    def _queue_event(self, event: tuple[float, dict[str, Any]]) -> None:
        self._events.put(event[1])

    def _start(self, rank: int, *, store: tuple[str, int] | None) -> None:
        train = self._job.train
        # A rank that waits gives up after the watch here, which knows whom it waits for.
        patience = train.step_seconds + _LEAVE_SECONDS
        place = Place(rank, len(self._seen), start_seconds=train.start_seconds, step_seconds=patience)
        self._futures[rank] = submit(
            self._client,
            run_rank,
            RankOrder(self._job, place, self._topic, store, self._servers.actors, self._open_source),
            key=f"{self._topic}-{rank}",
            workers=[self._seen[rank].worker],
            access=self._access,
        )
        self._seen[rank] = _RankStatus(self._seen[rank].worker)
        self._told_at = time.monotonic()

    def _done(self) -> bool:
        return len(self._futures) == len(self._seen) and all(
            future.status == "finished" for future in self._futures.values()
        )

    def _take_events(self, *, wait: bool = True) -> None:
        """Act on what the ranks have told; wait a little for the first event."""
        with suppress(queue.Empty):
            event = self._events.get(timeout=LOOK_SECONDS) if wait else self._events.get_nowait()
            while True:
                self._take(event)
                event = self._events.get_nowait()

    def _take(self, event: dict[str, Any]) -> None:
        seen, now = self._seen[event["rank"]], time.monotonic()
        seen.begun, seen.heard_at = True, now
        if event["kind"] == "beat":
            if event["moves"] != seen.beat.get("moves"):
                seen.moved_at = now
            seen.beat = event
        elif event["kind"] == "store" and not self._over:
            for rank in range(1, len(self._seen)):
                self._start(rank, store=(event["host"], event["port"]))
        elif event["kind"] == "step":
            self._progress.step(event["name"], event["done"], event["total"], event["fields"])
        elif event["kind"] == "message":
            self._progress.message(event["text"])
        elif event["kind"] == "left":
            seen.left = True

    def _reset_limits(self) -> None:
        """Begin all limits anew after a pause: the ranks were paused as well, or their events were not read."""
        last, self._turned_at = self._turned_at, time.monotonic()
        if self._turned_at - last > PAUSE_SECONDS:
            self._told_at = self._turned_at
            for seen in self._seen:
                seen.heard_at = seen.moved_at = self._turned_at

    def _check_results(self) -> None:
        """Raise what a rank raised: what is wrong with the job, before what other ranks suffered from it."""
        if not any(future.status in {"error", "cancelled", "lost"} for future in self._futures.values()):
            return
        self._wait_for_failures()
        self._check_workers(now=True)  # what others raise where one is gone is of no use, whatever it is
        errors = {rank: _error_of(future) for rank, future in self._futures.items() if future.status == "error"}
        for error in errors.values():
            if not isinstance(error, RankLostError | RankLateError | RankStoppedError):
                raise RankFailedError(error)
        for error in errors.values():
            if isinstance(error, RankLateError):
                raise error
        for error in errors.values():
            if isinstance(error, RankLostError):
                raise error
        raise RankLostError("the Dask scheduler dropped a rank", where="cluster")

    def _wait_for_failures(self) -> None:
        """Wait a moment: a rank that fails takes the others with it, and the first to tell need not be the cause."""
        deadline = time.monotonic() + 2 * BEAT_SECONDS
        while time.monotonic() < deadline and any(each.status == "pending" for each in self._futures.values()):
            self._take_events()

    def _check_workers(self, *, now: bool = False) -> None:
        """Raise RankLostError where a rank's worker is gone."""
        if not now and time.monotonic() - self._looked_at < _WORKERS_SECONDS:
            return
        self._looked_at = time.monotonic()
        there: dict[str, Any] = self._client.nthreads()
        self._check_places()
        for rank, future in self._futures.items():
            seen = self._seen[rank]
            if seen.worker not in there and future.status != "finished":
                raise RankLostError(f"rank {rank} was lost: {_place(seen)}, died", where="train.workers")
        self._servers.check(there)

    def _check_places(self) -> None:
        """Raise WorkerTakenError where a rank that has not begun waits behind a rank of another training."""
        waiting = [self._seen[rank].worker for rank in self._futures if not self._seen[rank].begun]
        running: dict[str, Any] = self._client.processing() if waiting else {}
        for worker in waiting:
            keys = [str(key) for key in running.get(worker, ())]
            if any(key.startswith(PREFIX) and not key.startswith(self._topic) for key in keys):
                raise WorkerTakenError(f"the worker {worker} computes a rank of another training")

    def _check_arrivals(self) -> None:
        if time.monotonic() - self._told_at < self._job.train.start_seconds:
            return
        for rank, seen in enumerate(self._seen):
            if not seen.begun:
                raise late([rank], self._job.train.start_seconds, f" (its worker {seen.worker} is busy or hangs)")

    def _check_moves(self) -> None:
        """Raise ClusterError where a rank is stuck: silent, or long at the same place without waiting for others."""
        limit, now = self._job.train.step_seconds, time.monotonic()
        if not all(seen.begun for seen in self._seen):
            return
        for rank, seen in enumerate(self._seen):
            idle = seen.left or self._futures[rank].status == "finished"
            silent = now - seen.heard_at > limit
            slow = now - seen.moved_at > limit and not seen.beat.get("waiting")
            if not idle and (silent or slow):
                told = "says nothing" if silent else f"is still at {seen.beat.get('doing')}"
                raise ClusterError(
                    f"rank {rank} is stuck: {_place(seen)}, {told} after {limit:g} s",
                    where="train.step_seconds",
                    fix="The last checkpoint is kept. Check that worker, or raise the limit if steps take so long.",
                )

    def _end(self, *, patient: bool) -> None:
        """Cancel the ranks and wait until they have left, so that their workers are free for the next attempt."""
        self._over = True  # a store that is told of only now has no others begin
        with suppress(SchedulerLostError, RuntimeError), needing_scheduler(self._client):
            self._client.cancel(list(self._futures.values()), force=True)
            self._servers.end()
            if patient:
                self._wait_for_exit()
            self._client.unsubscribe_topic(self._topic)
            self._client.run_on_scheduler(_forget, self._topic)

    def _wait_for_exit(self) -> None:
        deadline = time.monotonic() + _LEAVE_SECONDS
        while left := self._staying():
            if time.monotonic() > deadline:
                break
            self._take_events()
        else:
            return
        # A task's thread cannot be stopped: the process is, where Dask looks after it and nobody else works there.
        for worker in left:
            why: str = self._client.sync(restart_if_ours, self._client, worker, seconds=_LEAVE_SECONDS)
            if why:
                self._progress.message(f"train: {worker} still computes a rank, and {why}; restart it")
                self.busy.append(worker)

    def _staying(self) -> list[str]:
        """Return the workers that have not been left by a rank that was told to begin, heard of or not."""
        there: dict[str, Any] = self._client.nthreads()
        told = [self._seen[rank] for rank in self._futures]
        return busy_workers(
            self._client, [each.worker for each in told if not each.left and each.worker in there], self._topic
        )


def _forget(topic: str, dask_scheduler: Any = None) -> None:
    """On the scheduler: drop the events of a topic, of which it would keep the last thousand for ever."""
    if (broker := getattr(dask_scheduler, "_broker", None)) is not None:
        broker.truncate(topic)


def _place(seen: _RankStatus) -> str:
    at = f" in {place_text(seen.beat['epoch'], seen.beat['step'])}" if seen.beat else ""
    return f"its worker {seen.worker}{at}"


def _error_of(future: Future[Any]) -> BaseException:
    error: BaseException = future.exception()
    return error if isinstance(error, Exception) else RuntimeError(str(error))
