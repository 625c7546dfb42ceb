"""Recognises a lost Dask scheduler by the several errors that Dask's client raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gnnflow.graph.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client


class SchedulerLostError(ClusterError):
    """The Dask scheduler is gone, and with it every rank."""


@contextmanager
def needing_scheduler(client: Client) -> Iterator[None]:
    """Raise SchedulerLostError for what the client's calls raise in the block where its scheduler is gone.

    That is a closed connection at first. A client that has given up looking is closed; its calls that name the
    scheduler find none.
    """
    from distributed.client import ClosedClientError

    try:
        yield
    except (OSError, ClosedClientError) as error:
        raise _lost(error) from error
    except AttributeError as error:
        if client.scheduler is not None:
            raise
        raise _lost(error) from error


def _lost(error: Exception) -> SchedulerLostError:
    return SchedulerLostError(
        f"the Dask scheduler was lost ({type(error).__name__})",
        where="cluster",
        fix="Run again: the last checkpoint is kept.",
    )
