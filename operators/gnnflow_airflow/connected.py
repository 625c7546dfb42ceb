"""The connections of a task, for the time of its work: credentials of its storage, and a default workspace."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from gnnflow.graph.variables import variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.storage.access import Access
    from gnnflow_airflow.endpoints import DaskEndpoint

_WORKSPACE = "GNNFLOW_WORKSPACE"


@contextlib.contextmanager
def connected(dask_conn_id: str | None = None, storage_conn_id: str | None = None) -> Iterator[None]:
    """Use the connections in the block, in this process and the workers that it starts meanwhile.

    The storage connection's credentials open its kind of URLs (s3://, gs://, az://). Without one, it is the one that
    the Dask connection names; so is the workspace of configs that name none. Fails without a retry where the storage
    connection cannot be used.
    """
    from airflow.sdk import BaseHook

    from gnnflow.storage.access import using
    from gnnflow_airflow.endpoints import endpoint_of

    endpoint = endpoint_of(BaseHook.get_connection(dask_conn_id)) if dask_conn_id else None
    with contextlib.ExitStack() as stack:
        if storage := storage_id(storage_conn_id, endpoint):
            stack.enter_context(using(_access(storage)))
        if endpoint is not None and endpoint.workspace:
            stack.enter_context(variable(_WORKSPACE, endpoint.workspace))
        yield


def access_in_use(storage_conn_id: str | None, endpoint: DaskEndpoint) -> Access | None:
    """Return the access to the storage within a block of `connected`."""
    from gnnflow.storage.access import held
    from gnnflow_airflow.storage_connections import name_of

    storage = storage_id(storage_conn_id, endpoint)
    return held(name_of(storage)) if storage else None


def access_to(storage_conn_id: str | None, endpoint: DaskEndpoint | None) -> Access | None:
    """Return the access to the storage that the connections give, if they name one."""
    storage = storage_id(storage_conn_id, endpoint)
    return _access(storage) if storage else None


async def find_access(storage_conn_id: str | None, endpoint: DaskEndpoint | None) -> Access | None:
    """Return the access to the storage, from inside an event loop."""
    return await asyncio.to_thread(access_to, storage_conn_id, endpoint)


def _access(storage_conn_id: str) -> Access:
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowFailException

    from gnnflow.graph.errors import GnnflowError
    from gnnflow_airflow.storage_connections import access_of

    try:
        return access_of(BaseHook.get_connection(storage_conn_id))
    except GnnflowError as error:
        raise AirflowFailException(str(error)) from None


def storage_id(storage_conn_id: str | None, endpoint: DaskEndpoint | None) -> str:
    """Return the id of the storage connection: the task's, else the one that the Dask connection names."""
    return storage_conn_id or (endpoint.storage_conn_id if endpoint else "")
