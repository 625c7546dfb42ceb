"""The connection type `dask`: the address of a scheduler and, for TLS, the files to present.

host and port give the address (by default `tcp://`, or `tls://` with certificates). Only the id of a connection is
stored, logged or sent: the trigger reads the connection again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from distributed import Security

_PORT = 8786
_TLS_KEYS = ("tls_ca_file", "tls_client_cert", "tls_client_key")


@dataclass(frozen=True, repr=False)
class DaskEndpoint:
    """The address of a scheduler, and its TLS settings, if any."""

    address: str
    security: Security | None = None


class DaskHook(BaseHook):
    """Read a Dask connection."""

    conn_name_attr = "dask_conn_id"
    default_conn_name = "dask_default"
    conn_type = "dask"
    hook_name = "Dask"

    def __init__(self, dask_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.dask_conn_id = dask_conn_id

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return the fields of the connection form."""
        return {
            "hidden_fields": ["login", "password", "schema"],
            "relabeling": {"host": "Scheduler"},
            "placeholders": {
                "host": "scheduler.example.com",
                "port": str(_PORT),
                "extra": '{"tls_ca_file": "ca.pem", "tls_client_cert": "cert.pem", "tls_client_key": "key.pem"}',
            },
        }

    def get_conn(self) -> DaskEndpoint:
        """Return the endpoint of the connection."""
        return _endpoint(self.get_connection(self.dask_conn_id))

    async def aget_conn(self) -> DaskEndpoint:
        """Return the endpoint of the connection, from inside an event loop."""
        return _endpoint(await self.aget_connection(self.dask_conn_id))

    def test_connection(self) -> tuple[bool, str]:
        """Connect and ask the workers what they have; return True if stages can run there, and a message."""
        import asyncio

        from gnnflow.config import AddressCluster
        from gnnflow.graph.errors import ClusterError
        from gnnflow.mapreduce.fit_workers import FitWorkers
        from gnnflow_airflow.submissions import connect

        async def look() -> tuple[bool, str]:
            endpoint = self.get_conn()
            async with connect(endpoint.address, endpoint.security) as client:
                asked = AddressCluster(address=endpoint.address)
                fit = FitWorkers(client, asked, marker="", say=lambda _: None)
                able, unfit = await fit.look(), fit.unfit_text()
                return bool(able) or not unfit, f"connected; {len(able)} workers can run gnnflow's tasks.{unfit}"

        try:
            return asyncio.run(look())
        except ClusterError as error:
            return False, str(error)


def _endpoint(connection: Connection) -> DaskEndpoint:
    host = connection.host or "localhost"
    scheme, _, rest = host.rpartition("://")
    tls = {key: value for key in _TLS_KEYS if (value := connection.extra_dejson.get(key))}
    address = f"{scheme or ('tls' if tls else 'tcp')}://{rest}:{connection.port or _PORT}"
    if not tls:
        return DaskEndpoint(address)
    from distributed import Security

    return DaskEndpoint(address, Security(**tls, require_encryption=True))
