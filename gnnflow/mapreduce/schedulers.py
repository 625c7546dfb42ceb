"""Schedulers: they run tasks in this process or on a Dask cluster, and know neither rounds nor data.

Tasks are idempotent and commit their own output, so a scheduler may run one twice, anywhere, in any order.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from gnnflow.graph.errors import ClusterError
from gnnflow.mapreduce.submitting import PREFIX, submit, submit_all

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from distributed import Client

    from gnnflow.mapreduce.fit_workers import FitWorkers

Result = TypeVar("Result")

_LOOK_SECONDS = 15
_NO_WORKERS_SECONDS = 120
_AHEAD = 2  # tasks for each thread of a shared cluster: those that are not yet submitted can go to workers that join
_LOSSES = 3  # as many lost workers does Dask allow a task

_START = "Start workers (`dask worker ADDRESS --host HOST`)."
_READ = "The lines above say how workers ended. If memory was short, ask for fewer workers (cluster.workers)."


class Scheduler(Protocol):
    """Runs a function over task indices."""

    @property
    def on_this_machine(self) -> bool:
        """True if all tasks run on the machine of this process, and so can open each other's local files."""

    def run(self, function: Callable[[int], Result], indices: Sequence[int]) -> Iterator[Result]:
        """Yield each index's result as it becomes ready. The first error ends the run and is raised unchanged."""

    def dask_client(self) -> Client | None:
        """Return the client of the tasks' Dask cluster, for work outside of rounds; None without a cluster."""

    def fit_workers(self) -> FitWorkers | None:
        """Return the finder of workers that may get tasks; None where this process started all of them, or none."""


class Synchronous:
    """Runs tasks one after another in this process."""

    on_this_machine = True

    def run(self, function: Callable[[int], Result], indices: Sequence[int]) -> Iterator[Result]:
        """Yield results in index order."""
        for index in indices:
            yield function(index)

    def dask_client(self) -> None:
        """Return None: tasks run in this process."""

    def fit_workers(self) -> None:
        """Return None: tasks run in this process."""


def say_nothing(_: str) -> None:
    """Drop a line."""


class Dask:
    """Runs tasks on the workers of a Dask cluster; a task whose worker dies is run again by Dask elsewhere.

    fit: finds the workers that may get tasks, where others started them; None where this process did. say: prints
    messages for a person who waits.
    """

    def __init__(
        self, client: Client, *, fit: FitWorkers | None = None, say: Callable[[str], None] = say_nothing
    ) -> None:
        self.client = client
        self.say = say
        self._fit = fit

    @property
    def on_this_machine(self) -> bool:
        """True if this process started the workers; others may run anywhere."""
        return self._fit is None

    def run(self, function: Callable[[int], Result], indices: Sequence[int]) -> Iterator[Result]:
        """Yield results as they become ready.

        Raises ClusterError where workers keep dying under one task, and where too few are fit for too long.
        """
        from distributed.client import FutureCancelledError
        from distributed.scheduler import KilledWorker

        running: dict[Any, _Sent] = {}
        try:
            self._wait()
            yield from self._results(function, deque(indices), running)
        except KilledWorker as error:
            raise _killing_task(str(error)) from error
        except FutureCancelledError as error:
            raise _lost() from error
        finally:
            self.client.cancel(list(running), force=True)

    def dask_client(self) -> Client:
        """Return the client. Raises ClusterError where too few workers are fit for too long."""
        self._wait()
        return self.client

    def fit_workers(self) -> FitWorkers | None:
        """Return the finder of workers that may get tasks; None where this process started all of them."""
        return self._fit

    def _wait(self, count: int | None = None) -> dict[str, int] | None:
        """Return the fit workers once there are enough of them; None where this process started all workers."""
        if self._fit is None:
            return None
        try:
            found: dict[str, int] = self.client.sync(self._fit.wait, count)
        except OSError as error:
            raise _lost() from error
        return found

    def _results(self, function: Callable[[int], Any], left: deque[int], running: dict[Any, _Sent]) -> Iterator[Any]:
        """Yield results as they come. Raises ClusterError where the cluster has no workers for some time.

        It counts its checks, since a clock would include the time in which this process was paused.
        """
        looks_without, losses = 0, Counter[int]()
        while left or running:
            fit = self._wait(1)
            if fit is not None:
                self._take_back(fit, left, running, losses)
            room = len(left) if fit is None else _AHEAD * sum(fit.values())
            if batch := [left.popleft() for _ in range(min(room - len(running), len(left)))]:
                access = "" if self._fit is None else self._fit.access.name
                futures = submit_all(self.client, function, batch, workers=fit, access=access)
                sent = (_Sent(index, frozenset(fit or ())) for index in batch)
                running.update(zip(futures, sent, strict=True))
            if not running:
                # A cluster that scales with its waiting tasks starts a worker for this one, which any Python can run.
                lure = submit(self.client, int, key=f"{PREFIX}lure-{uuid.uuid4().hex}", workers=None)
                next(_ended([lure]), None)
            for future in _ended(running):
                yield future.result()
                del running[future]
                if left and len(running) <= room // 2:
                    break  # workers still have something to do while they get more
            waiting = len(left) + len(running)
            if not waiting or fit or self.client.scheduler_info()["workers"]:
                looks_without = 0
                continue
            if not looks_without:
                self.say(f"the Dask cluster has no workers; {waiting} tasks wait for one")
            looks_without += 1
            if looks_without * _LOOK_SECONDS >= _NO_WORKERS_SECONDS:
                raise ClusterError(
                    f"has had no workers for {_NO_WORKERS_SECONDS} s, with {waiting} tasks waiting",
                    where="cluster",
                    fix=f"{_READ if self._fit is None else _START} Run again: finished tasks are kept.",
                )

    def _take_back(
        self, fit: Collection[str], left: deque[int], running: dict[Any, _Sent], losses: Counter[int]
    ) -> None:
        """Take back the tasks whose workers are all gone: no other worker may run them.

        Raises ClusterError for a task that this has happened to too often.
        """
        lost = [each for each, sent in running.items() if not each.done() and sent.workers.isdisjoint(fit)]
        self.client.cancel(lost, force=True)
        for future in lost:
            index = running.pop(future).task
            left.append(index)
            losses[index] += 1
            if losses[index] > _LOSSES:
                raise _killing_task(f"task {index} has lost {losses[index]} workers")


class _Sent(NamedTuple):
    """A submitted task, and the workers that may run it."""

    task: int
    workers: frozenset[str]


def _lost() -> ClusterError:
    return ClusterError("the Dask scheduler was lost", where="cluster", fix="Run again: finished tasks are kept.")


def _killing_task(told: str) -> ClusterError:
    return ClusterError(
        "one task stopped every worker that ran it, most likely because it needs more memory than they have",
        where="cluster",
        fix="Raise cluster.memory_limit or graph.partitions, then run again: finished tasks are kept. "
        f"Dask says: {told}",
    )


def _ended(waiting: Collection[Any]) -> Iterator[Any]:
    """Yield futures as they end, until the next check of the workers.

    A task may raise a TimeoutError too, so errors of taking a result are not caught here.
    """
    from distributed import as_completed

    with suppress(TimeoutError):
        yield from as_completed(list(waiting), timeout=_LOOK_SECONDS)
