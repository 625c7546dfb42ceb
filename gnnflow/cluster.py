"""Starts or joins the cluster a config names, at the first task that needs it.

A run whose stages are all reused never pays for a cluster.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar

from gnnflow.config import LocalCluster, OwnCluster, SynchronousCluster
from gnnflow.graph.errors import ClusterError, Interrupted
from gnnflow.mapreduce.fit_workers import FitWorkers, marked
from gnnflow.mapreduce.local_cluster import start_workers
from gnnflow.mapreduce.own_cluster import start_cluster
from gnnflow.mapreduce.schedulers import Dask, Synchronous, say_nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from distributed import Client

    from gnnflow.config import AddressCluster, ClusterConfig
    from gnnflow.mapreduce.schedulers import Scheduler
    from gnnflow.storage.access import Access

Result = TypeVar("Result")

_CONNECT_SECONDS = 15


class Cluster:
    """A scheduler that starts lazily and stops with its `with` block.

    workspace: fit workers of a running cluster see it; empty where that is not asked. access: to the storage, which
    they get. say: hears what a person who waits should know. note: said when the first task needs the cluster. code: as
    of `FitWorkers`.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        workspace: str = "",
        access: Access | None = None,
        say: Callable[[str], None] = say_nothing,
        note: str = "",
        code: Mapping[str, str] | None = None,
    ) -> None:
        self._code = code or {}
        self.config = config
        self._workspace = workspace
        self._access = access
        self._note = note
        self._say = say
        self._stack = ExitStack()
        self._scheduler: Scheduler | None = None

    def __enter__(self) -> Self:
        """Return self; nothing is started yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop what was started, unless the process ends next: its workers end with it, which takes no time.

        Workers elsewhere would stay, and cost.
        """
        if kind is None or not issubclass(kind, Interrupted) or self.config.is_elsewhere:
            self._stack.close()

    def run(self, function: Callable[[int], Result], indices: Sequence[int]) -> Iterator[Result]:
        """Run tasks, starting or joining the cluster first where that has not happened."""
        if not indices:
            return iter(())
        return self.scheduler().run(function, indices)

    @property
    def on_this_machine(self) -> bool:
        """True if all workers run on this machine, as the workers of a local cluster do."""
        return not self.config.is_elsewhere

    def dask_client(self) -> Client | None:
        """Return the cluster's Dask client, starting or joining it first; None where tasks run in this process."""
        return self.scheduler().dask_client()

    def fit_workers(self) -> FitWorkers | None:
        """Return the finder of workers that may get tasks; None where this process started all of them, or none."""
        return self.scheduler().fit_workers()

    def scheduler(self) -> Scheduler:
        """Return the scheduler itself. Raises ClusterError where an address does not answer or workers cannot start."""
        if self._scheduler is None:
            if self._note:
                self._say(self._note)
            if isinstance(self.config, SynchronousCluster):
                self._scheduler = Synchronous()
            elif isinstance(self.config, LocalCluster):
                self._scheduler = Dask(start_workers(self.config, self._stack, say=self._say), say=self._say)
            else:
                if isinstance(self.config, OwnCluster):
                    client = start_cluster(self.config, self._stack, say=self._say)
                else:
                    client = _join(self.config, self._stack)
                marker = self._stack.enter_context(marked(self._workspace)) if self._workspace else ""
                fit = FitWorkers(
                    client, self.config, marker=marker, say=self._say, access=self._access, code=self._code
                )
                self._stack.callback(client.sync, fit.release)
                self._scheduler = Dask(client, fit=fit, say=self._say)
        return self._scheduler


def _client_class() -> Any:
    """Return Dask's client, which ends its event loop and thread where nobody answers it."""
    from distributed import Client
    from distributed.versions import VersionMismatchWarning

    # Dask warns of each worker of other versions, used or not; we ask them ourselves and use those that are fit.
    warnings.filterwarnings("ignore", category=VersionMismatchWarning)

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
