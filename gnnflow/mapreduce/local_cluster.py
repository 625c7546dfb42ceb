"""Starts all workers of this machine, or none, with an error that names the limit in the way.

Dask reports that a nanny failed; the reason is in the error's cause, or in the exit code of its worker. A worker that
was killed while it started may start the next time, so the start is repeated; a limit stays.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import signal
from contextlib import ExitStack, contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, Any

import psutil

from gnnflow.graph.errors import ClusterError
from gnnflow.storage.access import inherited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from distributed import Client

    from gnnflow.config import LocalCluster

_ALLOWED_FAILURES = 8
_LOCAL_SETTINGS = {
    "distributed.scheduler.allowed-failures": _ALLOWED_FAILURES,
    # A nanny sees its worker's end at once. A worker that was not heard for five minutes lives where the machine slept,
    # or where this process was stopped or had no processor: all workers would be killed amid their tasks
    "distributed.scheduler.worker-ttl": None,
    # Results of tasks are small: a worker that has much memory is in the middle of a task, and could free nothing else.
    # What it maps would make it wait forever
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.daemon": False,
    # it keeps a tree of calls for each of the last thousand seconds, which costs memory
    "distributed.worker.profile.enabled": False,
    # each process looks fifty times a second whether its loop stands still, and twice at its own memory: that took
    # a twentieth of ingest's processor time
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "5s",
    # one thread for BLAS too: partitions are the parallelism, and workers would compete for cores
    "distributed.nanny.pre-spawn-environ.OMP_NUM_THREADS": 1,
    "distributed.nanny.pre-spawn-environ.MKL_NUM_THREADS": 1,
    "distributed.nanny.pre-spawn-environ.OPENBLAS_NUM_THREADS": 1,
    # Dask returns freed memory at once, and the system clears every page that is asked for again: that took a third of
    # ingest's processor time. Arrays of a partition in large pages are faulted in once per 2 MiB
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 256 * 1024**2,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 256 * 1024**2,
    "distributed.nanny.pre-spawn-environ.GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
_STARTS = 3
_END_SECONDS = 5.0
_FILES, _FILES_OF_WORKER = 32, 10
"""Open files that this process needs while workers start and stages run, and for each worker; measured."""

_FEWER = "ask for fewer workers (cluster.workers), or set cluster.kind to synchronous"
_MEMORY = f"Raise the limits of memory and of processes (ulimit -v, ulimit -u; of a container its own), {_FEWER}."


def start_workers(config: LocalCluster, stack: ExitStack, *, say: Callable[[str], None]) -> Client:
    """Start workers that end with the stack and return their client.

    Raises ClusterError where they cannot start, after ending all of them.
    """
    import dask
    import distributed  # noqa: F401 - settings made before its import would delete its defaults at the end

    # nannies set the environment of their workers in this process
    stack.callback(restore_environment, dict(os.environ))
    stack.enter_context(dask.config.set(_LOCAL_SETTINGS))
    stack.enter_context(inherited())  # nannies start lost workers again from the environment of this process
    for _ in range(1, _STARTS):
        try:
            return _start(config, stack, say)
        except _KilledError as error:
            say(f"{error.problem}; starts again")
    return _start(config, stack, say)


class _KilledError(ClusterError):
    """A worker was killed while it started."""


def _start(config: LocalCluster, stack: ExitStack, say: Callable[[str], None]) -> Client:
    """Start workers once. Raises ClusterError where they cannot start."""
    from distributed import Client

    ended: list[int] = []
    with _explained(config.workers, ended), ExitStack() as started:
        _try_files(config.workers)
        cluster = started.enter_context(
            _cluster_of_processes()(
                n_workers=config.workers,
                threads_per_worker=1,
                memory_limit=int(config.memory_limit),
                worker_class=_nanny(ended, say),
                # the scheduler serves HTTP even without a dashboard, by default on 8787
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                silence_logs=50,
            )
        )
        # a nanny whose worker dies while it starts gives up; a fixed number replaces it
        cluster.adapt(minimum=config.workers, maximum=config.workers, interval="1s")
        client: Client = started.enter_context(Client(cluster))
        stack.push(started.pop_all())
    return client


@contextmanager
def _explained(workers: int, ended: list[int]) -> Iterator[None]:
    """End the processes of the block where it raises, and turn a limit or a worker's end into ClusterError.

    ended: exit codes of workers that ended while they started.
    """
    before = set(multiprocessing.active_children())
    try:
        yield
    except Exception as error:
        for process in set(multiprocessing.active_children()) - before:  # those that Dask has lost sight of
            process.kill()
            process.join(_END_SECONDS)
        refusal = _limit_of(error, workers) or (_end_of_worker(ended[0]) if ended else None)
        if refusal is None:
            raise
        raise refusal from error


def _limit_of(error: BaseException | None, workers: int) -> ClusterError | None:
    """Return the error for a limit of the machine; None where the cause is no limit."""
    while error is not None:
        number = getattr(error, "errno", None)
        if number == errno.ENOSPC:
            # of a semaphore, for which Python needs some bytes there, the error has no file name
            place = getattr(error, "filename", None) or "/dev/shm"  # noqa: S108
            fix = f"Free some there (docker run --shm-size 64m gives /dev/shm more), {_FEWER}."
            return ClusterError(f"workers cannot start: no space is left on {place}", where="cluster", fix=fix)
        if number in {errno.EMFILE, errno.ENFILE}:
            limit, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[0], _FILES + _FILES_OF_WORKER * workers
            problem = f"{workers} workers need {needed} open files, and the limit is {limit}"
            return ClusterError(problem, where="cluster", fix=f"Raise the limit (ulimit -n), {_FEWER}.")
        if isinstance(error, MemoryError) or number in {errno.ENOMEM, errno.EAGAIN} or "start new thread" in str(error):
            return ClusterError(f"there is not enough memory to start {workers} workers", where="cluster", fix=_MEMORY)
        error = error.__cause__ or error.__context__
    return None


def _end_of_worker(code: int) -> ClusterError:
    if code < 0:
        how = f"a worker was killed by {signal.Signals(-code).name} while it started"
        return _KilledError(how, where="cluster", fix=f"If memory was short, {_FEWER}.")
    return ClusterError(
        f"a worker ended with exit code {code} while it started",
        where="cluster",
        fix="Its last words are above. A script of your own runs gnnflow under `if __name__ == '__main__':`.",
    )


def _try_files(workers: int) -> None:
    """Open as many files as workers will need, and close them. Raises OSError where that is too many.

    Dask would repeat a start forever that meets the limit.
    """
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        for _ in repeat(None, _FILES + _FILES_OF_WORKER * workers):
            opened.append(os.dup(opened[0]))
    finally:
        for each in opened:
            os.close(each)


def restore_environment(before: Mapping[str, str]) -> None:
    """Restore the variables that nannies set in this process; Dask's own defaults have the same names."""
    names = (name.rpartition(".")[2] for name in _LOCAL_SETTINGS if ".pre-spawn-environ." in name)
    for name in (*names, "PYTHONHASHSEED"):
        os.environ.pop(name, None)
        os.environ.update({name: before[name]} if name in before else {})


def _nanny(ended: list[int], say: Callable[[str], None]) -> Any:
    """Return a Dask nanny that notes how a worker ends while it starts, and says how others ended.

    It stops a worker for its own memory, not for files that it has mapped: these are the system's cache.
    """
    from distributed import Nanny
    from distributed.core import Status
    from distributed.worker_memory import NannyMemoryManager

    class OwnMemory(NannyMemoryManager):
        def memory_monitor(self, nanny: Nanny) -> None:
            taken = own_bytes(getattr(getattr(nanny.process, "process", None), "pid", None))
            if taken > (self.memory_limit or 0) * (self.memory_terminate_fraction or 1):
                super().memory_monitor(nanny)

    class Noting(Nanny):
        _asked = False
        _taken = 0

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.memory_manager = OwnMemory(self, memory_limit=self.memory_manager.memory_limit or 0)

        def _on_worker_exit_sync(self, exitcode: int) -> None:
            if self.status == Status.init:
                ended.append(exitcode)
            elif self.status == Status.running and not self._asked:
                say(_loss(self.name, exitcode, taken=self._taken, limit=int(self.memory_manager.memory_limit or 0)))
            self._asked, self._taken = False, 0
            super()._on_worker_exit_sync(exitcode)  # type: ignore[no-untyped-call]

        async def kill(self, *given: Any, **named: Any) -> None:
            self._asked = self.is_alive()  # type: ignore[no-untyped-call]
            await super().kill(*given, **named)

        def log_event(self, topic: Any, msg: Any) -> None:
            if topic == "worker-restart-memory":  # it is about to stop its worker
                self._taken = own_bytes(msg["pid"])
            super().log_event(topic, msg)  # type: ignore[no-untyped-call]

    return Noting


def own_bytes(pid: int | None) -> int:
    """Return the bytes of a process in memory without the files that it has mapped, where the system tells."""
    try:
        held = psutil.Process(pid).memory_info()
    except psutil.Error:  # it has ended
        return 0
    return int(held.rss) - int(getattr(held, "shared", 0))


def _loss(name: object, code: int, *, taken: int, limit: int) -> str:
    """Return a sentence on a worker that ended while it ran. taken: its bytes, if Dask stopped it for them."""
    if taken:
        had = f"{taken / 2**20:,.0f} MiB, of its {limit / 2**20:,.0f}"
        return f"worker {name} was stopped at {had} (cluster.memory_limit); it starts again"
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"worker {name} {how}; it starts again"


def _cluster_of_processes() -> Any:
    """Return Dask's local cluster, changed to leave a lost worker to its nanny, which starts it again.

    Dask waits 15 s for it. On a busy machine a start takes longer; then Dask would end the nanny and start another one,
    whose worker may be refused for its name, which the first one's has taken meanwhile.
    """
    from distributed import LocalCluster as DaskLocalCluster
    from distributed.core import Status

    class Watching(DaskLocalCluster):
        def _update_worker_status(self, op: str, msg: Any) -> None:
            if op == "remove":
                self.scheduler_info["workers"].pop(msg, None)
            else:
                super()._update_worker_status(op, msg)  # type: ignore[no-untyped-call]

        @property
        def requested(self) -> Any:
            """The names of nannies; one that gave up is dropped, and so replaced."""
            for name, nanny in list(self.workers.items()):
                if nanny.status in {Status.closed, Status.failed}:
                    del self.workers[name]
            return super().requested

    return Watching
