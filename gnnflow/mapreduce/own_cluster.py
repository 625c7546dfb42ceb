"""Starts a Dask cluster by its class (Kubernetes, SLURM, a cloud), and closes it.

Any class does that has Dask's `scale`, `close` and `scheduler_address`. Its start may wait for a queue or for pods as
long as it likes and cannot be interrupted, so it runs in another thread, which closes what comes too late.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeGuard

from gnnflow.config.own_code import own_module
from gnnflow.graph.errors import ClusterError, GnnflowError, LayerError
from gnnflow.mapreduce.local_cluster import restore_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client

    from gnnflow.config import OwnCluster

_KIND = "cluster.kind"
_METHODS = ("scale", "close")
_CLIENT_SECONDS = 30.0


def start_cluster(config: OwnCluster, stack: ExitStack, *, say: Callable[[str], None]) -> Client:
    """Start a cluster with the workers that a config asks for, and return its client; it is closed with the stack.

    Raises ClusterError where its class is missing or is none, and where it or its workers do not start in time.
    """
    from distributed import Client

    made = cluster_class(config.kind)
    say(f"starts {config.workers} workers of {config.kind}, for at most {config.start_seconds:g} s")
    with ExitStack() as started:
        started.callback(restore_environment, dict(os.environ))
        cluster = _made_in_time(made, config)
        started.callback(_close, cluster, config.kind, say)
        try:
            cluster.scale(config.workers)
            client: Client = started.enter_context(Client(cluster, timeout=_CLIENT_SECONDS))
        except Exception as error:
            raise _failed(config.kind, error) from error
        try:
            client.wait_for_workers(config.workers, timeout=max(config.start_seconds, 0.1))
        except TimeoutError as error:
            there = len(client.scheduler_info(n_workers=-1)["workers"])
            raise ClusterError(
                f"{there} of {config.workers} workers of {config.kind} have started after {config.start_seconds:g} s",
                where="cluster",
                fix="See why in its queue or its pods; or raise cluster.start_seconds, or lower cluster.workers.",
            ) from error
        stack.push(started.pop_all())
    return client


def cluster_class(kind: str) -> type[Any]:
    """Return the class `package.module:Cluster`. Raises ClusterError where it is missing or starts no Dask cluster.

    Raises ConfigError, before anything is imported, where its module is not allowed here.
    """
    try:
        module = own_module(kind, where=_KIND)
    except LayerError as error:
        raise ClusterError(error.problem, where=_KIND, fix=error.fix) from error
    name = kind.partition(":")[2]
    found = getattr(module, name, None)
    if _is_cluster(found):
        return found
    own = sorted(each for each, value in vars(module).items() if _is_cluster(value))
    raise ClusterError(
        f"{kind!r} does not exist" if found is None else f"{kind!r} is not a class of Dask clusters",
        where=_KIND,
        fix=f"It needs the methods {' and '.join(_METHODS)}. Its module's clusters are: {', '.join(own) or 'none'}.",
    )


def _is_cluster(value: object) -> TypeGuard[type[Any]]:
    return isinstance(value, type) and all(callable(getattr(value, name, None)) for name in _METHODS)


def _made_in_time(made: type[Any], config: OwnCluster) -> Any:
    """Return a cluster once its class has made it. Raises ClusterError where that fails or takes too long."""
    held: list[Any] = []
    over, lock = threading.Event(), threading.Lock()

    def make() -> None:
        try:
            cluster = made(**config.options)
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            held.append(error)
            return
        with lock:
            if not over.is_set():
                held.append(cluster)
                return
        cluster.close()

    thread = threading.Thread(target=make, name="gnnflow-cluster", daemon=True)
    thread.start()
    try:
        thread.join(config.start_seconds)
    finally:  # when interrupted too
        with lock:
            if not held:
                over.set()
    if over.is_set():
        raise ClusterError(
            f"{config.kind} has not started after {config.start_seconds:g} s",
            where="cluster",
            fix="See why in its queue or its pods; or raise cluster.start_seconds. It is closed if it still starts.",
        )
    if isinstance(held[0], BaseException):
        raise _failed(config.kind, held[0]) from held[0]
    return held[0]


def _failed(kind: str, error: BaseException) -> GnnflowError:
    if isinstance(error, GnnflowError):
        return error
    return ClusterError(
        f"{kind} did not start: {type(error).__name__}: {error}",
        where="cluster",
        fix="Start it with the same cluster.options in a Python shell; its own documentation says what they mean.",
    )


def _close(cluster: Any, kind: str, say: Callable[[str], None]) -> None:
    """Close a cluster. One that cannot be closed fails no work that is done."""
    try:
        cluster.close()
    except Exception as error:  # noqa: BLE001 - a library's own
        say(f"{kind} could not be closed, and may still run: {type(error).__name__}: {error}")
