"""The connection type `dask`: the address of a scheduler, and what stages on its workers need.

What its fields say is in `endpoints.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException

from gnnflow_airflow.endpoints import DaskEndpoint, endpoint_of

if TYPE_CHECKING:
    from gnnflow.storage.access import Access


class DaskHook(BaseHook):
    """Read a Dask connection."""

    conn_name_attr = "dask_conn_id"
    default_conn_name = "dask_default"
    conn_type = "dask"
    hook_name = "Dask (gnnflow)"

    def __init__(self, dask_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.dask_conn_id = dask_conn_id

    def get_conn(self) -> DaskEndpoint:
        """Return the endpoint of the connection."""
        return endpoint_of(self.get_connection(self.dask_conn_id))

    async def aget_conn(self) -> DaskEndpoint:
        """Return the endpoint of the connection, from inside an event loop."""
        return endpoint_of(await self.aget_connection(self.dask_conn_id))

    def test_connection(self) -> tuple[bool, str]:
        """Connect, ask the workers what they have and write to the workspace.

        Return whether stages can run there, and a message. A cluster without any worker is good: it may scale.
        """
        from gnnflow.graph.errors import GnnflowError
        from gnnflow.storage.access import using_here
        from gnnflow_airflow.connected import access_to

        try:
            endpoint = self.get_conn()
            access = access_to(None, endpoint)
            # Airflow tests connections in a thread of its server, which serves others meanwhile
            with using_here(access) if access else contextlib.nullcontext():
                return _test(endpoint, access)
        except (AirflowException, GnnflowError, ValueError, OSError) as error:
            return False, str(error)


def _test(endpoint: DaskEndpoint, access: Access | None) -> tuple[bool, str]:
    from gnnflow.mapreduce.fit_workers import mark, unmark

    if not endpoint.workspace:
        return asyncio.run(_look(endpoint, access, marker=""))
    marker = mark(endpoint.workspace)
    try:
        is_good, text = asyncio.run(_look(endpoint, access, marker=marker))
    finally:
        unmark(marker)
    return is_good, f"{text} The workspace {endpoint.workspace} can be written."


async def _look(endpoint: DaskEndpoint, whole: Access | None, *, marker: str) -> tuple[bool, str]:
    """Return whether enough workers are fit, and a text."""
    from gnnflow.mapreduce.fit_workers import FitWorkers, asked_of
    from gnnflow.storage.access import narrowed
    from gnnflow_airflow.submissions import connect, new_name

    async with connect(endpoint.address, endpoint.security) as client:
        asked = asked_of({}, endpoint.address, endpoint.asked)
        access = narrowed(new_name("test"), endpoint.workspace, [whole] if whole else [])
        workers = FitWorkers(client, asked, marker=marker, say=lambda _: None, access=access)
        try:
            fit, unfit = await workers.look(), workers.unfit_text()
        finally:
            await workers.release()
    there = f"The scheduler {endpoint.address} answers; "
    if not fit and not unfit:
        return True, f"{there}it has no workers yet."
    few = f", and {asked.workers} {'is' if asked.workers == 1 else 'are'} asked for" if len(fit) < asked.workers else ""
    return not few, f"{there}{len(fit)} of its workers can run gnnflow's tasks{few}.{unfit}"
