"""Starts or joins the cluster a config names, at the first task that needs it.

A run whose stages are all reused never pays for a cluster.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar

from gnnflow.graph.errors import ClusterError, Interrupted
from gnnflow.mapreduce.schedulers import Dask, Synchronous, say_nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from distributed import Client

    from gnnflow.config import AddressCluster, ClusterConfig, LocalCluster
    from gnnflow.mapreduce.schedulers import Scheduler

Result = TypeVar("Result")

_CONNECT_SECONDS = 15
_ALLOWED_FAILURES = 8
_LOCAL_SETTINGS = {
    "distributed.scheduler.allowed-failures": _ALLOWED_FAILURES,
    "distributed.worker.daemon": False,
    # It keeps a tree of calls for each of the last thousand seconds, which a long training would carry along.
    "distributed.worker.profile.enabled": False,
    # One thread for BLAS too: partitions are the parallelism, and more workers than cores would fight for them.
    "distributed.nanny.pre-spawn-environ.OMP_NUM_THREADS": 1,
    "distributed.nanny.pre-spawn-environ.MKL_NUM_THREADS": 1,
    "distributed.nanny.pre-spawn-environ.OPENBLAS_NUM_THREADS": 1,
}


class Cluster:
    """A scheduler that starts lazily and stops with its `with` block. say hears what a person who waits should know."""

    def __init__(self, config: ClusterConfig, *, say: Callable[[str], None] = say_nothing) -> None:
        self.config = config
        self._say = say
        self._stack = ExitStack()
        self._scheduler: Scheduler | None = None

    def __enter__(self) -> Self:
        """Return self; nothing is started yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop what was started, unless the process ends next: its workers end with it, which takes no time."""
        if kind is None or not issubclass(kind, Interrupted):
            self._stack.close()

    def run(self, function: Callable[[int], Result], indices: Sequence[int]) -> Iterator[Result]:
        """Run tasks, starting or joining the cluster first where that has not happened."""
        if not indices:
            return iter(())
        return self.scheduler().run(function, indices)

    def dask_client(self) -> Client | None:
        """Return the cluster's Dask client, starting or joining it first; None where tasks run in this process."""
        return self.scheduler().dask_client()

    def scheduler(self) -> Scheduler:
        """Return the scheduler itself. Raises ClusterError where an address does not answer."""
        if self._scheduler is None:
            if self.config.kind == "synchronous":
                self._scheduler = Synchronous()
            elif self.config.kind == "local":
                self._scheduler = Dask(_local(self.config, self._stack), say=self._say)
            else:
                self._scheduler = Dask(_join(self.config, self._stack), foreign=True, say=self._say)
        return self._scheduler


def _local(config: LocalCluster, stack: ExitStack) -> Any:
    import dask
    from distributed import Client

    # Nannies set for themselves what their workers shall find.
    before = dict(os.environ)
    stack.callback(_restore_environment, before)
    stack.enter_context(dask.config.set(_LOCAL_SETTINGS))
    cluster = stack.enter_context(
        _cluster_of_processes()(
            n_workers=config.workers,
            threads_per_worker=1,
            memory_limit=int(config.memory_limit),
            processes=True,
            # The scheduler serves HTTP even without a dashboard, on 8787 unless told otherwise; 0 takes any free port.
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=50,
        )
    )
    # A nanny whose worker dies while it starts gives up; keeping the number fixed replaces it.
    cluster.adapt(minimum=config.workers, maximum=config.workers, interval="1s")
    return stack.enter_context(Client(cluster))


def _restore_environment(before: Mapping[str, str]) -> None:
    """Undo the variables that nannies set in this process, where they found none."""
    names = (name.rpartition(".")[2] for name in _LOCAL_SETTINGS if ".pre-spawn-environ." in name)
    for name in (*names, "MALLOC_TRIM_THRESHOLD_", "PYTHONHASHSEED"):
        os.environ.pop(name, None)
        os.environ.update({name: before[name]} if name in before else {})


def _cluster_of_processes() -> Any:
    """Return Dask's local cluster, which does not stumble over a worker that came and went before it was told of it.

    Its watcher of workers looks up who left in what it was told of, ends with a KeyError where that is nobody, and
    raises it when the cluster is closed, long after a run is done.
    """
    from distributed import LocalCluster as DaskLocalCluster

    class Watching(DaskLocalCluster):
        def _update_worker_status(self, op: str, msg: Any) -> None:
            if op != "remove" or msg in self.scheduler_info["workers"]:
                super()._update_worker_status(op, msg)  # type: ignore[no-untyped-call]

    return Watching


def _client_class() -> Any:
    """Return Dask's client, which ends its event loop and thread where nobody answers it."""
    from distributed import Client

    class Joining(Client):
        def __init__(self, *given: Any, **named: Any) -> None:
            try:
                super().__init__(*given, **named)  # type: ignore[no-untyped-call]
            except BaseException:
                self._loop_runner.stop()
                raise

    return Joining


def _join(config: AddressCluster, stack: ExitStack) -> Any:
    try:
        return stack.enter_context(_client_class()(config.address, timeout=_CONNECT_SECONDS))
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers ({type(error).__name__})",
            where=f"cluster.address = {config.address}",
            fix="Start one with `dask scheduler --host HOST`, or use cluster.kind: local.",
        ) from error
