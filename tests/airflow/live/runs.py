"""Triggering, watching and disturbing runs of a live Airflow, and what they should have given."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import fsspec
import pyarrow.parquet as pq
import s3fs

from gnnflow.config import config_from_dict
from gnnflow.remote.handover import HANDED_OVER, TAKEN_OVER, topic_of
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import is_done, run_stage
from gnnflow.storage.filesystem import read_bytes
from gnnflow.storage.manifest import read_manifest
from gnnflow.storage.run_folder import PREDICTIONS, files_of, read_metrics, read_run
from gnnflow_airflow import submissions
from gnnflow_airflow.form import nested
from tests.airflow.live.services import System, wait_for
from tests.airflow.running import form_of
from tests.command_line import printed
from tests.small_graphs import graph_config, write_graph
from tests.typed_graphs import typed_tables, write_tables

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from gnnflow.config import Config

PIPELINE = "gnnflow_pipeline"
ENDED = {"success", "failed"}


class LiveRun:
    """A run of a DAG of a live Airflow."""

    def __init__(self, live: System, dag: str, run_id: str) -> None:
        self.live, self.dag, self.run_id = live, dag, run_id

    @property
    def path(self) -> str:
        return f"/api/v2/dags/{self.dag}/dagRuns/{quote(self.run_id)}"

    def state(self) -> str:
        return str(self.live.request("GET", self.path)["state"])

    def instances(self) -> list[dict[str, Any]]:
        """Return what Airflow has of each task."""
        found: list[dict[str, Any]] = self.live.request("GET", f"{self.path}/taskInstances")["task_instances"]
        return found

    def tasks(self) -> dict[str, str]:
        return {task["task_id"]: task["state"] for task in self.instances()}

    def most_at_once(self, pool: str) -> int:
        """Return how many tasks of a pool were under way together at most, running or deferred."""
        under_way = [task for task in self.instances() if task["pool"] == pool and task["start_date"]]
        starts = [task["start_date"] for task in under_way]
        return max(sum(task["start_date"] <= start < task["end_date"] for task in under_way) for start in starts)

    def wait(self, *, seconds: float = 400) -> str:
        return str(wait_for("the run's end", lambda: self.state() in ENDED and self.state(), seconds=seconds))

    def mark_failed(self, task: str) -> None:
        self.live.request("PATCH", f"{self.path}/taskInstances/{task}", {"new_state": "failed"})

    def clear(self, task: str, *, only_failed: bool) -> None:
        """Clear a task and those after it."""
        asked = {"dry_run": False, "task_ids": [task], "dag_run_id": self.run_id, "include_downstream": True}
        path = f"/api/v2/dags/{self.dag}/clearTaskInstances"
        self.live.request("POST", path, {**asked, "only_failed": only_failed, "reset_dag_runs": True})

    def log(self, task: str, attempt: int | None = None) -> str:
        """Return the log of a task's attempt, of its last one by default: Airflow may try a task again on its own."""
        if attempt is None:
            attempt = self.live.request("GET", f"{self.path}/taskInstances/{task}")["try_number"]
        found = self.live.request("GET", f"{self.path}/taskInstances/{task}/logs/{attempt}?full_content=true")
        return "\n".join(str(line) for line in found["content"])

    def xcom(self, task: str) -> Any:
        found = self.live.request("GET", f"{self.path}/taskInstances/{task}/xcomEntries/return_value?deserialize=true")
        return found["value"]

    def predictions(self) -> pa.Table:
        return read_parquet(self.xcom("run")["predictions"])


def read_parquet(uri: str) -> pa.Table:
    """Return the table at a path or URL. (pyarrow's own S3 may remember the server of an earlier test.)"""
    files, path = fsspec.url_to_fs(uri, skip_instance_cache=True)
    return pq.read_table(path, filesystem=files)


class PipelineRun(LiveRun):
    """A run of gnnflow_pipeline with these values of the form."""

    def __init__(self, live: System, conf: dict[str, Any]) -> None:
        super().__init__(live, PIPELINE, "")
        self.conf = conf

    def trigger(self) -> None:
        wait_for("the DAG", lambda: self.live.request("GET", f"/api/v2/dags/{self.dag}"))
        asked = {"logical_date": None, "conf": self.conf}
        self.run_id = self.live.request("POST", f"/api/v2/dags/{self.dag}/dagRuns", asked)["dag_run_id"]

    def made(self) -> dict[str, Any]:
        """Return the fingerprints and digests of what this run made."""
        return content_of(self.xcom("run")["run"])

    def made_by_command_line(self, folder: Path) -> dict[str, Any]:
        """Return what `gnnflow run` makes of this run's YAML, in a workspace of its own in a folder."""
        kept = str(self.xcom("prepare"))
        file = folder / kept.rsplit("/", 1)[1]
        file.write_bytes(read_bytes(kept))
        options = ["--workspace", str(folder / "cli"), "--set", "cluster={kind: synchronous}", "--json"]
        return content_of(json.loads(printed(["run", str(file), *options]))["run"])

    def config_here(self, **keys: Any) -> Config:
        """Return the config of the same values for this process, with other values of some keys."""
        return config_from_dict(nested({**self.conf, "cluster.kind": "synchronous", **keys}))


def in_bucket(name: str, tables: Path, conf: dict[str, Any]) -> dict[str, Any]:
    """Put a node and an edge table into a bucket of their own and return the form's values for them."""
    files = s3fs.S3FileSystem(skip_instance_cache=True)
    files.mkdirs(f"live-{name}", exist_ok=True)
    for table in ("nodes.parquet", "edges.parquet"):
        files.put(str(tables / table), f"live-{name}/{table}")
    places = {f"graph.{table}": f"s3://live-{name}/{table}.parquet" for table in ("nodes", "edges")}
    return {**conf, **places, "name": name, "workspace": f"s3://live-{name}/runs"}


def maps_in_bucket(name: str, graph: dict[str, Any]) -> dict[str, Any]:
    """Put the tables of a typed graph into a bucket of their own and return the form's values: maps by type."""
    files = s3fs.S3FileSystem(skip_instance_cache=True)
    files.mkdirs(f"live-{name}", exist_ok=True)
    places: dict[str, dict[str, str]] = {"nodes": {}, "edges": {}}
    for kind, held in places.items():
        for table, path in graph[kind].items():
            held[table] = f"s3://live-{name}/{table}.parquet"
            files.put(path, held[table])
    return {
        "name": name,
        "workspace": f"s3://live-{name}/runs",
        "graph.nodes": places["nodes"],
        "graph.edges": places["edges"],
        "graph.target": graph["target"],
    }


def typed_in_bucket(name: str, folder: Path) -> dict[str, Any]:
    """Return the form's values for a small typed graph in a bucket of its own."""
    maps = maps_in_bucket(name, write_tables(folder, typed_tables()))
    return {
        **maps,
        "graph.features": {"account": ["x"], "merchant": ["x"]},
        "graph.edge_features": {"account__pays__merchant": ["amount"]},
        "graph.partitions": 2,
        "neighbors.sampling.kind": "uniform",
        "neighbors.sampling.fanout": {relation: [4, 2] for relation in maps["graph.edges"]},
        "model.kind": "han",
        "model.hidden": 4,
        "model.heads": 2,
        "train.epochs": 3,
        "train.batch_size": 16,
        "train.threads": 1,
    }


class Case(PipelineRun):
    """A run on a small graph in a folder, to be disturbed."""

    def __init__(self, live: System, folder: Path, name: str, **train: Any) -> None:
        write_graph(folder)
        keys = {"batch_size": 16, "threads": 1, "epochs": 3, **train}
        conf = form_of(graph_config(folder), **{f"train.{key}": value for key, value in keys.items()})
        super().__init__(live, {**conf, "name": name})
        self.folder = folder

    def begin_at_training(self) -> None:
        """Do by the command line what comes before training, and trigger the run, which finds it done."""
        context = StageContext.of(self.config_here())
        for stage in ("ingest", "select", "flat"):
            run_stage(context, stage)
        self.trigger()

    def is_trained(self) -> bool:
        """Say whether training has come to its end."""
        return is_done(StageContext.of(self.config_here()), "train")

    def until_training(self) -> str:
        """Wait until training runs on the cluster and a trigger waits for it; return the worker it runs on."""
        wait_for("deferred training", lambda: self.tasks().get("train") == "deferred", seconds=200)
        wait_for("its trigger", lambda: any(is_taken_over(self.live, key) for key in self.training().values()))
        return str(wait_for("a training worker", lambda: next(iter(self.training()), None)))

    def until_free(self) -> None:
        """Wait until no worker of the cluster trains this run."""
        wait_for("a free cluster", lambda: not self.training(), seconds=200)

    def training(self) -> dict[str, str]:
        """Return the workers that run this run's training, which other runs may train beside, and its names there."""
        training = submissions.Submission.new("train", self.config_here().model_dump(mode="json"))
        found = processing(self.live).items()
        return {worker: str(key) for worker, keys in found for key in keys if training.has_work_of(str(key))}


def content_of(run: str) -> dict[str, Any]:
    """Return a run's fingerprint, its stages' fingerprints and files' digests, and its own: all that tells no time.

    The report and some metrics tell seconds.
    """
    record = read_run(run)
    made = {stage: read_manifest(artifact) for stage, artifact in record["artifacts"].items()}
    return {
        "run": record["run"],
        "fingerprints": {stage: manifest.fingerprint for stage, manifest in made.items()},
        "files": {f"{stage}/{file.name}": file.sha256 for stage, held in made.items() for file in held.files},
        "predictions": {file.name: file.sha256 for file in files_of(run, record) if file.name.startswith(PREDICTIONS)},
        "metrics": {key: value for key, value in read_metrics(run).items() if "second" not in key},
    }


def objects_with(needle: str, bucket: str) -> list[str]:
    """Return what a bucket holds (manifests, configs, reports) that contains a text."""
    files = s3fs.S3FileSystem(skip_instance_cache=True)
    names = files.find(bucket)
    assert names
    return [name for name in names if needle.encode() in files.cat_file(name)]


def processing(live: System) -> dict[str, Any]:
    """Return what each worker of the cluster is running."""

    async def ask() -> dict[str, Any]:
        async with submissions.connect(f"tcp://127.0.0.1:{live.ports['dask']}") as client:
            found: dict[str, Any] = await client.processing()
            return found

    return asyncio.run(ask())


def is_taken_over(live: System, name: str) -> bool:
    """Return whether the task of a submission has left it and a trigger waits for it."""

    async def ask() -> list[str]:
        async with submissions.connect(f"tcp://127.0.0.1:{live.ports['dask']}") as client:
            return [event["kind"] for _, event in await client.get_events(topic_of(name))]

    kinds = asyncio.run(ask())  # submitting is a taking over too
    return HANDED_OVER in kinds and kinds[-1] == TAKEN_OVER


def kill_worker(live: System, address: str) -> None:
    """SIGKILL the process of a worker; its nanny starts another."""

    async def pid() -> int:
        async with submissions.connect(f"tcp://127.0.0.1:{live.ports['dask']}") as client:
            found: dict[str, int] = await client.run(os.getpid, workers=[address])
            return found[address]

    os.kill(asyncio.run(pid()), signal.SIGKILL)


def grep(needle: str, folder: Path) -> list[str]:
    """Return the files below a folder that hold a text."""
    done = subprocess.run(["grep", "-rlaF", needle, str(folder)], capture_output=True, text=True, check=False)
    return done.stdout.split()
