"""The connection type `dask`: the address of a scheduler, and what stages on its workers need.

host and port give the address (by default `tcp://`, or `tls://` with certificates); `provider.py` lists the other
fields. Only the id of a connection is stored, logged or sent: the trigger reads the connection again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from distributed import Security

_PORT = 8786
_TLS_KEYS = ("tls_ca_file", "tls_client_cert", "tls_client_key")
_ASKED = ("resource", "workers")


@dataclass(frozen=True, repr=False)
class DaskEndpoint:
    """The address of a scheduler, and its TLS settings, if any.

    asked: keys of the config's section `cluster` that the connection sets. workspace: of configs that name none.
    """

    address: str
    security: Security | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    workspace: str = ""
    storage_conn_id: str = ""


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
        return _endpoint(self.get_connection(self.dask_conn_id))

    async def aget_conn(self) -> DaskEndpoint:
        """Return the endpoint of the connection, from inside an event loop."""
        return _endpoint(await self.aget_connection(self.dask_conn_id))

    def test_connection(self) -> tuple[bool, str]:
        """Connect, ask the workers what they have and write to the workspace.

        Return whether stages can run there, and a message. A cluster without any worker is good: it may scale.
        """
        from gnnflow.graph.errors import GnnflowError
        from gnnflow_airflow.connected import connected

        try:
            endpoint = self.get_conn()
            with connected(self.dask_conn_id):
                return _test(endpoint)
        except (AirflowException, GnnflowError, ValueError, OSError) as error:
            return False, str(error)


def _test(endpoint: DaskEndpoint) -> tuple[bool, str]:
    from gnnflow.mapreduce.fit_workers import mark, unmark

    if not endpoint.workspace:
        return asyncio.run(_look(endpoint, marker=""))
    marker = mark(endpoint.workspace)
    try:
        is_good, text = asyncio.run(_look(endpoint, marker=marker))
    finally:
        unmark(marker)
    return is_good, f"{text} The workspace {endpoint.workspace} can be written."


async def _look(endpoint: DaskEndpoint, *, marker: str) -> tuple[bool, str]:
    """Return whether enough workers are fit, and a text."""
    from gnnflow.mapreduce.fit_workers import FitWorkers, asked_of
    from gnnflow.storage.access import narrowed
    from gnnflow_airflow.connected import access_in_use
    from gnnflow_airflow.submissions import connect, new_name

    async with connect(endpoint.address, endpoint.security) as client:
        asked = asked_of({}, endpoint.address, endpoint.asked)
        whole = access_in_use(None, endpoint)
        access = whole and narrowed(whole, new_name("test"), endpoint.workspace)
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


def _security(tls: dict[str, str]) -> Security:
    """Return TLS settings. Raises AirflowException where a file is not there or not given."""
    from distributed import Security

    missing = [key for key in _TLS_KEYS if not Path(tls.get(key, "")).is_file()]
    if missing:
        told = ", ".join(f"{key} ({tls.get(key) or 'not given'})" for key in missing)
        raise AirflowException(f"TLS files of the Dask connection are not here: {told}")
    return Security(**tls, require_encryption=True)


def _endpoint(connection: Connection) -> DaskEndpoint:
    extra = connection.extra_dejson
    host = connection.host or "localhost"
    scheme, _, rest = host.rpartition("://")
    tls = {key: value for key in _TLS_KEYS if (value := extra.get(key))}
    security = _security(tls) if tls else None
    return DaskEndpoint(
        f"{scheme or ('tls' if tls else 'tcp')}://{rest}:{connection.port or _PORT}",
        security,
        asked={key: value for key in _ASKED if (value := extra.get(key))},
        workspace=extra.get("workspace") or "",
        storage_conn_id=extra.get("storage_conn_id") or "",
    )
