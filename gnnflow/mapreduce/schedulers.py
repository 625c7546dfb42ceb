"""Schedulers: they run tasks in this process or on a Dask cluster, and know neither rounds nor data.

Tasks are idempotent and commit their own output, so a scheduler may run one twice, anywhere, in any order.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gnnflow.graph.errors import ClusterError
from gnnflow.mapreduce.preflight import refuse_unfit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from distributed import Client

Result = TypeVar("Result")

_LOOK_SECONDS = 15
_NO_WORKERS_SECONDS = 120

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


class Synchronous:
    """Runs tasks one after another in this process."""

    on_this_machine = True

    def run(self, function: Callable[[int], Result], indices: Sequence[int]) -> Iterator[Result]:
        """Yield results in index order."""
        for index in indices:
            yield function(index)

    def dask_client(self) -> None:
        """Return None: tasks run in this process."""


def say_nothing(_: str) -> None:
    """Drop a line."""


class Dask:
    """Runs tasks on the workers of a Dask cluster; a task whose worker dies is run again by Dask elsewhere.

    foreign: others started the workers, so each reports what it has installed before it gets tasks. say: prints
    messages for a person who waits.
    """

    def __init__(self, client: Client, *, foreign: bool = False, say: Callable[[str], None] = say_nothing) -> None:
        self.client = client
        self.foreign = foreign
        self.say = say
        self._fit: frozenset[str] = frozenset()

    @property
    def on_this_machine(self) -> bool:
        """True if this process started the workers; others may run anywhere."""
        return not self.foreign

    def run(self, function: Callable[[int], Result], indices: Sequence[int]) -> Iterator[Result]:
        """Yield results as they become ready.

        Raises ClusterError where workers keep dying under one task, and where a foreign worker lacks something.
        """
        from distributed.client import FutureCancelledError
        from distributed.scheduler import KilledWorker

        self.dask_client()
        futures = self.client.map(function, list(indices), pure=False, retries=0)
        try:
            yield from self._results(futures)
        except KilledWorker as error:
            raise ClusterError(
                "one task stopped every worker that ran it, most likely because it needs more memory than they have",
                where="cluster",
                fix="Raise cluster.memory_limit or graph.partitions, then run again: finished tasks are kept. "
                f"Dask says: {error}",
            ) from error
        except FutureCancelledError as error:
            raise ClusterError(
                "the Dask scheduler was lost", where="cluster", fix="Run again: finished tasks are kept."
            ) from error
        finally:
            self.client.cancel(futures, force=True)

    def dask_client(self) -> Client:
        """Return the client. Raises ClusterError where a foreign worker lacks something."""
        if self.foreign:
            # each time, because workers come and go
            self._fit = self.client.sync(refuse_unfit, self.client, known=self._fit)
        return self.client

    def _results(self, futures: list[Any]) -> Iterator[Any]:
        """Yield results as they come. Raises ClusterError where the cluster has no workers for some time.

        It counts its checks, since a clock would include the time in which this process was paused.
        """
        waiting, looks_without = set(futures), 0
        while waiting:
            for future in _ended(waiting):
                waiting.discard(future)
                yield future.result()
            if not waiting or self.client.scheduler_info()["workers"]:
                looks_without = 0
                continue
            if not looks_without:
                self.say(f"the Dask cluster has no workers; {len(waiting)} tasks wait for one")
            looks_without += 1
            if looks_without * _LOOK_SECONDS >= _NO_WORKERS_SECONDS:
                raise ClusterError(
                    f"has had no workers for {_NO_WORKERS_SECONDS} s, with {len(waiting)} tasks waiting",
                    where="cluster",
                    fix=f"{_START if self.foreign else _READ} Run again: finished tasks are kept.",
                )


def _ended(waiting: Collection[Any]) -> Iterator[Any]:
    """Yield futures as they end, until the next check of the workers.

    A task may raise a TimeoutError too, so errors of taking a result are not caught here.
    """
    from distributed import as_completed

    with suppress(TimeoutError):
        yield from as_completed(list(waiting), timeout=_LOOK_SECONDS)
