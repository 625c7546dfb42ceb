"""A Dask cluster for the time of a DAG run: a separate process on this machine.

`python -m gnnflow_airflow.local_cluster FOLDER` starts it and writes the scheduler's address to FOLDER/address. It ends
when a client shuts it down, or after `idle_seconds` without work, and removes the folder, so that a run without its
teardown leaves nothing behind.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gnnflow_airflow.service import VARIABLE

_ADDRESS = "address"
_START_SECONDS = 300.0  # a busy machine needs long to start three processes


def start(*, workers: int, memory_limit: str, idle_seconds: float) -> str:
    """Start a cluster and return its address. Raises TimeoutError if it does not start."""
    folder = Path(tempfile.mkdtemp(prefix="gnnflow-cluster-"))
    file = folder / _ADDRESS
    options = ["--workers", str(workers), "--memory-limit", memory_limit, "--idle-seconds", str(idle_seconds)]
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
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if file.exists() and (address := file.read_text().strip()):
            return address
        time.sleep(0.1)
    reason = f"after {_START_SECONDS:.0f} s" if process.poll() is None else f"since it ended with {process.returncode}"
    process.kill()
    log_end = (folder / "log").read_text()[-2000:]
    shutil.rmtree(folder)
    raise TimeoutError(f"no cluster {reason}: {log_end}")


async def stop(address: str) -> None:
    """Shut a cluster down, if it still runs."""
    from gnnflow.graph.errors import ClusterError
    from gnnflow_airflow.submissions import connect

    try:
        async with connect(address) as client:
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


def main() -> None:
    """Run a cluster until it is shut down."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory-limit", default="2GiB")
    parser.add_argument("--idle-seconds", type=float, default=3600)
    given = parser.parse_args()
    address = given.folder / _ADDRESS
    try:
        asyncio.run(_serve(address, given.workers, given.memory_limit, given.idle_seconds))
    finally:
        if address.exists():  # without an address, `start` reads the log in this folder
            shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
