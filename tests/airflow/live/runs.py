"""Triggering, watching and disturbing runs of a live Airflow, and what they should have given."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import s3fs

from gnnflow.stages import pipeline
from operators import jobs
from tests.airflow.live.services import System, wait_for
from tests.airflow.running import form_of
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

DAG = "gnnflow_pipeline"
ENDED = {"success", "failed"}


class Case:
    """One run of the pipeline on a small graph whose tables and workspace lie in a bucket."""

    def __init__(self, live: System, folder: Path, name: str, **train: Any) -> None:
        self.live, self.name = live, name
        files = s3fs.S3FileSystem(skip_instance_cache=True)
        files.mkdirs(f"live-{name}", exist_ok=True)
        write_graph(folder)
        for table in ("nodes.parquet", "edges.parquet"):
            files.put(str(folder / table), f"live-{name}/{table}")
        keys = {"batch_size": 16, "threads": 1, "epochs": 3, **train}
        graph = {table: f"s3://live-{name}/{table}.parquet" for table in ("nodes", "edges")}
        self.config = graph_config(folder, graph=graph, train=keys).model_copy(
            update={"name": name, "workspace": f"s3://live-{name}/runs"}
        )
        self.conf = form_of(self.config, **{f"train.{key}": value for key, value in keys.items()})
        self.folder = folder
        self.run_id = ""

    @property
    def path(self) -> str:
        return f"/api/v2/dags/{DAG}/dagRuns/{self.run_id}"

    def trigger(self) -> None:
        wait_for("the DAG", lambda: self.live.request("GET", f"/api/v2/dags/{DAG}"))
        asked = {"logical_date": None, "conf": self.conf}
        self.run_id = self.live.request("POST", f"/api/v2/dags/{DAG}/dagRuns", asked)["dag_run_id"]

    def state(self) -> str:
        return str(self.live.request("GET", self.path)["state"])

    def tasks(self) -> dict[str, str]:
        found = self.live.request("GET", f"{self.path}/taskInstances")["task_instances"]
        return {task["task_id"]: task["state"] for task in found}

    def wait(self, *, seconds: float = 180) -> str:
        return str(wait_for("the run's end", lambda: self.state() in ENDED and self.state(), seconds=seconds))

    def until_training(self) -> str:
        """Wait until the training job runs on the cluster and return the worker it runs on."""
        wait_for("deferred training", lambda: self.tasks().get("train") == "deferred", seconds=120)
        return str(wait_for("a training worker", lambda: next(iter(self.workers_of("gnnflow-train")), None)))

    def workers_of(self, prefix: str) -> list[str]:
        """Return the workers that run a job whose name starts with a prefix."""
        return [
            worker for worker, keys in processing(self.live).items() if any(str(k).startswith(prefix) for k in keys)
        ]

    def mark_failed(self, task: str) -> None:
        self.live.request("PATCH", f"{self.path}/taskInstances/{task}", {"new_state": "failed"})

    def clear(self, task: str, *, only_failed: bool) -> None:
        """Clear a task and those after it."""
        asked = {"dry_run": False, "task_ids": [task], "dag_run_id": self.run_id, "include_downstream": True}
        path = f"/api/v2/dags/{DAG}/clearTaskInstances"
        self.live.request("POST", path, {**asked, "only_failed": only_failed, "reset_dag_runs": True})

    def log(self, task: str, attempt: int = 1) -> str:
        found = self.live.request("GET", f"{self.path}/taskInstances/{task}/logs/{attempt}?full_content=true")
        return "\n".join(str(line) for line in found["content"])

    def xcom(self, task: str) -> Any:
        found = self.live.request("GET", f"{self.path}/taskInstances/{task}/xcomEntries/return_value?deserialize=true")
        return found["value"]

    def objects_with(self, needle: str) -> list[str]:
        """Return what the run's bucket holds (manifests, configs, reports) that contains a text."""
        files = s3fs.S3FileSystem(skip_instance_cache=True)
        names = files.find(f"live-{self.name}")
        assert names
        return [name for name in names if needle.encode() in files.cat_file(name)]

    def predictions(self) -> pa.Table:
        return pq.read_table(self.xcom("run")["predictions"])

    def expected(self) -> pa.Table:
        """Return what the command line gives for the same config, in a workspace of its own."""
        config = self.config.model_copy(update={"workspace": str(self.folder / "cli")})
        return pq.read_table(pipeline.run_quietly(config).predictions)


def processing(live: System) -> dict[str, Any]:
    """Return what each worker of the cluster is running."""

    async def ask() -> dict[str, Any]:
        async with jobs.connect(f"tcp://127.0.0.1:{live.ports['dask']}") as client:
            found: dict[str, Any] = await client.processing()
            return found

    return asyncio.run(ask())


def kill_worker(live: System, address: str) -> None:
    """SIGKILL the process of a worker; its nanny starts another."""

    async def pid() -> int:
        async with jobs.connect(f"tcp://127.0.0.1:{live.ports['dask']}") as client:
            found: dict[str, int] = await client.run(os.getpid, workers=[address])
            return found[address]

    os.kill(asyncio.run(pid()), signal.SIGKILL)


def seconds_until_free(live: System, *, limit: float) -> float:
    """Return how long the cluster takes until no worker runs anything."""
    begin = time.monotonic()
    wait_for("a free cluster", lambda: not any(processing(live).values()), seconds=limit)
    return time.monotonic() - begin


def grep(needle: str, folder: Path) -> list[str]:
    """Return the files below a folder that hold a text."""
    done = subprocess.run(["grep", "-rlaF", needle, str(folder)], capture_output=True, text=True, check=False)
    return done.stdout.split()
