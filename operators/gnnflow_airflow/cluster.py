"""Setup and teardown of a Dask cluster for one DAG run.

    start = StartClusterOperator(task_id="start_cluster").as_setup()
    train = TrainOperator(task_id="train", cluster_address="{{ ti.xcom_pull(task_ids='start_cluster') }}", ...)
    start >> train >> StopClusterOperator(task_id="stop_cluster", address=...).as_teardown(setups=start)

The tasks between them must run on the same machine (LocalExecutor, or one queue with one worker), unless `kind` names
a class that starts workers elsewhere. The class lives in a process on this machine until the cluster is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

if TYPE_CHECKING:
    from airflow.sdk import Context


class StartClusterOperator(BaseOperator):
    """Start a Dask cluster and return its address; it ends after idle_seconds without work.

    By default workers of this machine, each with memory_limit. kind: a class `package.module:Cluster` that starts it
    otherwise, with cluster_options and for at most start_seconds; its package is one of `GNNFLOW_MODULES`, and its own
    options limit memory.
    """

    template_fields: Sequence[str] = ("workers", "memory_limit")

    def __init__(
        self,
        *,
        workers: int = 2,
        memory_limit: str = "2GiB",
        idle_seconds: float = 3600,
        kind: str = "",
        cluster_options: Mapping[str, Any] | None = None,
        start_seconds: float = 600,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.kind = kind
        self.cluster_options = dict(cluster_options or {})
        self.start_seconds = start_seconds
        self.workers = workers
        self.memory_limit = memory_limit
        self.idle_seconds = idle_seconds
        self.started: str | None = None

    def execute(self, context: Context) -> str:
        """Return the scheduler's address."""
        from gnnflow_airflow.local_cluster import start, start_own

        workers = int(self.workers)
        try:
            if self.kind:
                own = {"kind": self.kind, "options": self.cluster_options, "start_seconds": self.start_seconds}
                address = start_own({**own, "workers": workers}, idle_seconds=self.idle_seconds)
            else:
                address = start(workers=workers, memory_limit=self.memory_limit, idle_seconds=self.idle_seconds)
        except TimeoutError as error:
            raise AirflowException(str(error)) from error
        self.log.info("%s workers behind %s", self.workers, address)
        self.started = address
        return address

    def get_openlineage_facets_on_complete(self, _: Any) -> Any:
        """Return the cluster as an output; None before it runs."""
        from gnnflow_airflow.lineage import lineage_of_files

        return lineage_of_files(writes=[self.started]) if self.started else None


class StopClusterOperator(BaseOperator):
    """Shut a cluster down, if it still runs."""

    template_fields: Sequence[str] = ("address",)

    def __init__(self, *, address: str, **options: Any) -> None:
        super().__init__(**options)
        self.address = address

    def execute(self, context: Context) -> None:
        """Shut the cluster down."""
        from gnnflow_airflow.local_cluster import stop

        if self.address:
            asyncio.run(stop(self.address))

    def get_openlineage_facets_on_complete(self, _: Any) -> Any:
        """Return the cluster as an input; None if there was none to stop."""
        from gnnflow_airflow.lineage import lineage_of_files

        return lineage_of_files(reads=[self.address]) if self.address else None
