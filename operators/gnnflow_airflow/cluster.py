"""Setup and teardown of a Dask cluster for one DAG run, on the machine of the Airflow worker.

    start = StartClusterOperator(task_id="start_cluster").as_setup()
    train = TrainOperator(task_id="train", cluster_address="{{ ti.xcom_pull(task_ids='start_cluster') }}", ...)
    start >> train >> StopClusterOperator(task_id="stop_cluster", address=...).as_teardown(setups=start)

The tasks between them must run on the same machine (LocalExecutor, or one queue with one worker).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

if TYPE_CHECKING:
    from airflow.sdk import Context


class StartClusterOperator(BaseOperator):
    """Start a Dask cluster on this machine and return its address; it ends after idle_seconds without work."""

    template_fields: Sequence[str] = ("workers", "memory_limit")

    def __init__(
        self, *, workers: int = 2, memory_limit: str = "2GiB", idle_seconds: float = 3600, **options: Any
    ) -> None:
        super().__init__(**options)
        self.workers = workers
        self.memory_limit = memory_limit
        self.idle_seconds = idle_seconds
        self.started: str | None = None

    def execute(self, context: Context) -> str:
        """Return the scheduler's address."""
        from gnnflow_airflow.local_cluster import start

        try:
            address = start(workers=int(self.workers), memory_limit=self.memory_limit, idle_seconds=self.idle_seconds)
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
