"""A Dask cluster for the time of a DAG run: a separate process on this machine.

`python -m gnnflow_airflow.local_cluster FOLDER` starts it and writes the scheduler's address to FOLDER/address. It ends
when a client shuts it down, or after `idle_seconds` without work, and removes the folder, so that a run without its
teardown leaves nothing behind. FOLDER/cluster.json, if it is there, is a config's section `cluster` with a class that
starts it; such a cluster's own process closes it when `stop` sets an event there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnflow.mapreduce.submitting import PREFIX
from gnnflow_airflow.service import VARIABLE

_ADDRESS = "address"
_OWN = "cluster.json"
_START_SECONDS = 300.0  # a busy machine needs long to start three processes
_STOP = f"{PREFIX}stop"  # of an event, and of the note that somebody waits for it
_LOOK_SECONDS = 5.0


def start(*, workers: int, memory_limit: str, idle_seconds: float) -> str:
    """Start a cluster and return its address. Raises TimeoutError if it does not start."""
    options = ["--workers", str(workers), "--memory-limit", memory_limit, "--idle-seconds", str(idle_seconds)]
    return _start(_new_folder(), options, seconds=_START_SECONDS)


def start_own(section: Mapping[str, Any], *, idle_seconds: float) -> str:
    """Start a cluster by its class and return its address. Raises TimeoutError if it does not start.

    section: as a config's section `cluster`. It goes by a file, since everybody on this machine can read a command.
    """
    folder = _new_folder()
    (folder / _OWN).write_text(json.dumps(section))
    # as long for the class as for its workers, and for the process itself
    seconds = 2 * float(section["start_seconds"]) + _START_SECONDS
    return _start(folder, ["--idle-seconds", str(idle_seconds)], seconds=seconds)


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="gnnflow-cluster-"))  # which nobody else can read


def _start(folder: Path, options: Sequence[str], *, seconds: float) -> str:
    file = folder / _ADDRESS
    with (folder / "log").open("wb") as log:
        # In a new session: the task that starts it ends, the cluster stays.
        process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "gnnflow_airflow.local_cluster", str(folder), *options],
            stdout=log,
            stderr=log,
            env={**os.environ, VARIABLE: os.environ.get(VARIABLE, "1")},
            cwd=folder,
            start_new_session=True,
        )
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if file.exists() and (address := file.read_text().strip()):
            return address
        time.sleep(0.1)
    reason = f"after {seconds:.0f} s" if process.poll() is None else f"since it ended with {process.returncode}"
    process.kill()
    log_end = (folder / "log").read_text()[-2000:]
    shutil.rmtree(folder)
    raise TimeoutError(f"no cluster {reason}: {log_end}")


async def stop(address: str) -> None:
    """Shut a cluster down, if it still runs."""
    from distributed import Event

    from gnnflow.graph.errors import ClusterError
    from gnnflow_airflow.submissions import connect

    try:
        async with connect(address) as client:
            if await client.get_metadata(_STOP, default=None):
                await Event(_STOP, client=client).set()
            else:
                await client.shutdown()
    except ClusterError:
        return


async def _serve(file: Path, workers: int, memory_limit: str, idle_seconds: float) -> None:
    import dask
    from distributed import LocalCluster

    # A stage's driver leaves the worker's task thread, and must be able to start processes there.
    with dask.config.set({"distributed.worker.daemon": False, "distributed.scheduler.idle-timeout": idle_seconds}):
        async with LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=memory_limit,
            dashboard_address="127.0.0.1:0",
            asynchronous=True,
        ) as cluster:
            await asyncio.to_thread(file.write_text, f"{cluster.scheduler_address}\n")
            await cluster.scheduler.finished()


def _serve_own(file: Path, section: Mapping[str, Any], idle_seconds: float) -> None:
    """Run a cluster that a class starts, until it is stopped or its scheduler has ended."""
    import dask
    import distributed

    from gnnflow.config import OwnCluster
    from gnnflow.mapreduce.own_cluster import start_cluster

    # a scheduler in this process ends when it is idle; of others, their class has an option
    with (
        dask.config.set({"distributed.worker.daemon": False, "distributed.scheduler.idle-timeout": idle_seconds}),
        contextlib.ExitStack() as stack,
    ):
        client = start_cluster(OwnCluster.model_validate(section), stack, say=print)
        client.set_metadata(_STOP, value=True)
        scheduler: Any = client.scheduler
        file.write_text(f"{scheduler.address}\n")
        stopped = distributed.Event(_STOP, client=client)
        with contextlib.suppress(OSError, RuntimeError):  # of a client whose scheduler has ended
            while client.status != "closed" and not stopped.wait(_LOOK_SECONDS):
                continue


@contextlib.contextmanager
def _as_last_words() -> Iterator[None]:
    """End the process with an error for people as the last line of its log."""
    from gnnflow.graph.errors import GnnflowError

    try:
        yield
    except GnnflowError as error:
        sys.exit(str(error))


def main() -> None:
    """Run a cluster until it is shut down."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory-limit", default="2GiB")
    parser.add_argument("--idle-seconds", type=float, default=3600)
    given = parser.parse_args()
    address = given.folder / _ADDRESS
    own = given.folder / _OWN
    try:
        if own.exists():
            with _as_last_words():
                _serve_own(address, json.loads(own.read_text()), given.idle_seconds)
        else:
            asyncio.run(_serve(address, given.workers, given.memory_limit, given.idle_seconds))
    finally:
        if address.exists():  # without an address, `start` reads the log in this folder
            shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
