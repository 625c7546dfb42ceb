"""Two journeys that go on by themselves once begun, beside whatever else is tested: retraining and an experiment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import s3fs
import yaml

from gnnflow import registry
from gnnflow.config import config_from_dict
from gnnflow.config.experiments import read_experiment
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import run_stage
from tests.airflow.live.runs import ENDED, LiveRun, in_bucket, read_parquet
from tests.airflow.live.services import System, wait_for
from tests.small_graphs import write_graph

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    import pyarrow as pa

RETRAIN = "gnnflow_retrain"
BUCKET = "s3://live-retrain"
MODEL = (f"{BUCKET}/runs", "live-retrain")
FIRST, BETTER, WORSE = {"epochs": 2, "lr": 0.001}, {"epochs": 80, "lr": 0.02}, {"epochs": 1, "lr": 1e-7}

EXPERIMENT = "gnnflow_experiments.layers"
DIVERGES = "003-lr-1e30-optimizer-sgd"  # the group of the third variant
_LAYERS = {
    "name": "layers",
    "workspace": "s3://live-layers/runs",
    "graph": {"nodes": "s3://live-layers/nodes.parquet", "edges": "s3://live-layers/edges.parquet", "partitions": 3},
    "cluster": {"kind": "synchronous"},
    "train": {"epochs": 3, "batch_size": 16, "threads": 1},
    "matrix": [{"model.kind": "gcn"}, {"model.kind": "sage"}, {"train.optimizer": "sgd", "train.lr": 1e30}],  # diverges
}


def write_configs(live: System) -> None:
    """Write what DAGs are made of when they are first read: one experiment, and the config of the retraining."""
    (live.home / "experiments").mkdir()
    (live.home / "experiments" / "layers.yaml").write_text(yaml.safe_dump(_LAYERS))
    live.retrain_config.write_text(yaml.safe_dump(_retrain_config()))


def begin_experiment(live: System, folder: Path) -> LiveRun:
    """Do by the command line what comes before training, trigger the experiment, which finds it done, and return it."""
    write_graph(folder)
    in_bucket("layers", folder, {})
    first = read_experiment(_LAYERS, source="layers.yaml").runs[0]
    for stage in ("ingest", "select", "flat"):
        run_stage(StageContext.of(first.config), stage)
    wait_for("the DAG", lambda: live.request("GET", f"/api/v2/dags/{EXPERIMENT}"))
    begun = live.request("POST", f"/api/v2/dags/{EXPERIMENT}/dagRuns", {"logical_date": None, "conf": {}})
    return LiveRun(live, EXPERIMENT, begun["dag_run_id"])


def _retrain_config(
    *, tables: str = BUCKET, edges: str = "edges", workspace: str = MODEL[0], **train: Any
) -> dict[str, Any]:
    return {
        "name": MODEL[1],
        "workspace": workspace,
        "graph": {"nodes": f"{tables}/nodes.parquet", "edges": f"{tables}/{edges}", "partitions": 3},
        "model": {"kind": "sage", "hidden": 16, "dropout": 0.0},
        "train": {"batch_size": 16, "threads": 1, "patience": 0, **train},
    }


class Retraining:
    """The tables, the config and the runs of gnnflow_retrain.

    Its clock starts first, and the run for its last date trains the first model. When that has ended new edges arrive,
    whose run trains a better one. Both go on in a thread of their own.
    """

    def __init__(self, live: System, folder: Path) -> None:
        self.live, self.folder = live, folder
        self.files = s3fs.S3FileSystem(skip_instance_cache=True)
        self.files.mkdirs("live-retrain", exist_ok=True)
        write_graph(folder, num_nodes=160, num_edges=800)
        self.files.put(str(folder / "nodes.parquet"), "live-retrain/nodes.parquet")
        edges = pq.read_table(folder / "edges.parquet")
        self.partitions = [edges.slice(0, 600), edges.slice(600, 100), edges.slice(700)]
        self.seen: set[str] = set()
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self.first: Future[LiveRun] = self._pool.submit(self._start_clock)
        self.better: Future[LiveRun] = self._pool.submit(self._go_on)

    def stop(self) -> None:
        """Wait for no further run."""
        self._over.set()
        self._pool.shutdown(cancel_futures=True)

    def retrain(self, **train: Any) -> LiveRun:
        """Let the next edges arrive, say so as a loader does, and return the run that they begin, ended.

        train: what its model is trained with.
        """
        self._arrive(**train)
        found = self.live.request("GET", "/api/v2/assets?name_pattern=live-retrain/graph")["assets"]
        self.live.request("POST", "/api/v2/assets/events", {"asset_id": found[0]["id"], "extra": {}})
        return self._next_run("asset_triggered")

    def expected_first(self) -> pa.Table:
        """Return what the command line predicts from the tables that the first run found."""
        pq.write_table(self.partitions[0], self.folder / "first.parquet")
        places = {"tables": str(self.folder), "edges": "first.parquet", "workspace": str(self.folder / "cli")}
        config = config_from_dict({**_retrain_config(**places, **FIRST), "cluster": {"kind": "synchronous"}})
        return read_parquet(pipeline.run_quietly(config).predictions)

    def champion(self) -> int | None:
        """Return the version that is in service."""
        return registry.read_aliases(*MODEL).champion

    def _start_clock(self) -> LiveRun:
        path = f"/api/v2/dags/{RETRAIN}"
        wait_for("the DAG", lambda: self.live.request("GET", path))
        self._arrive(**FIRST)
        self.live.request("PATCH", f"{path}?update_mask=is_paused", {"is_paused": False})
        return self._next_run("scheduled")

    def _go_on(self) -> LiveRun:
        self.first.result()
        return self.retrain(**BETTER)

    def _arrive(self, **train: Any) -> None:
        number = len(self.files.find("live-retrain/edges"))
        with self.files.open(f"live-retrain/edges/part-{number:05}.parquet", "wb") as file:
            pq.write_table(self.partitions[number], file)
        self.live.retrain_config.write_text(yaml.safe_dump(_retrain_config(**train)))

    def _next_run(self, kind: str) -> LiveRun:
        """Wait until a run of a kind that was not seen before has ended, and return it."""

        def ended() -> str | None:
            if self._over.is_set():
                raise RuntimeError("nobody waits for this retraining any more")
            runs = self.live.request("GET", f"/api/v2/dags/{RETRAIN}/dagRuns?order_by=run_after")["dag_runs"]
            new = [run for run in runs if run["run_type"] == kind and run["dag_run_id"] not in self.seen]
            return next((run["dag_run_id"] for run in new if run["state"] in ENDED), None)

        run_id = str(wait_for(f"the end of a retraining that is {kind}", ended, seconds=500))
        self.seen.add(run_id)
        return LiveRun(self.live, RETRAIN, run_id)
