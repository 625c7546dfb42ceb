"""Endpoints that connections of type `dask` name: the address of a scheduler, and what stages on its workers need.

host and port give the address (by default `tcp://`, or `tls://` with certificates); `provider.py` lists the other
fields. Only the id of a connection is stored, logged or sent: the trigger reads the connection again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def _security(tls: dict[str, str]) -> Security:
    """Return TLS settings. Raises AirflowException where a file is not there or not given."""
    from distributed import Security

    missing = [key for key in _TLS_KEYS if not Path(tls.get(key, "")).is_file()]
    if missing:
        told = ", ".join(f"{key} ({tls.get(key) or 'not given'})" for key in missing)
        raise AirflowException(f"TLS files of the Dask connection are not here: {told}")
    return Security(**tls, require_encryption=True)


def endpoint_of(connection: Connection) -> DaskEndpoint:
    """Return the endpoint that a connection names. Raises AirflowException where its TLS files are not here."""
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
