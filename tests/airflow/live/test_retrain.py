"""Retraining on a live Airflow: new edges arrive, their asset triggers, and only a better model goes into service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3fs
import yaml
from typer.testing import CliRunner

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow import registry
from gnnflow.cli.commands import build_app
from tests.airflow.live.runs import ENDED, LiveRun
from tests.airflow.live.services import System, wait_for
from tests.small_graphs import write_graph

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.filterwarnings("default"), pytest.mark.timeout(2000)]

DAG = "gnnflow_retrain"
BUCKET = "s3://live-retrain"
MODEL = (f"{BUCKET}/runs", "live-retrain")


class Retraining:
    """The tables, the config and the runs of gnnflow_retrain."""

    def __init__(self, live: System, folder: Path) -> None:
        self.live, self.folder = live, folder
        self.files = s3fs.S3FileSystem(skip_instance_cache=True)
        self.files.mkdirs("live-retrain", exist_ok=True)
        write_graph(folder, num_nodes=160, num_edges=800)
        self.files.put(str(folder / "nodes.parquet"), "live-retrain/nodes.parquet")
        edges = pq.read_table(folder / "edges.parquet")
        self.partitions = [edges.slice(0, 600), edges.slice(600, 100), edges.slice(700)]
        self.seen: set[str] = set()

    def arrive(self, **train: Any) -> None:
        """Write the next partition of the edge table, and plant what the next model is trained with."""
        number = len(self.files.find("live-retrain/edges"))
        with self.files.open(f"live-retrain/edges/part-{number:05}.parquet", "wb") as file:
            pq.write_table(self.partitions[number], file)
        config = {
            "name": MODEL[1],
            "workspace": MODEL[0],
            "graph": {"nodes": f"{BUCKET}/nodes.parquet", "edges": f"{BUCKET}/edges", "partitions": 3},
            "model": {"kind": "sage", "hidden": 16, "dropout": 0.0},
            "train": {"batch_size": 16, "threads": 1, "patience": 0, **train},
        }
        self.live.retrain_config.write_text(yaml.safe_dump(config))

    def announce(self) -> None:
        """Say that the graph changed, as a loader does."""
        found = self.live.request("GET", "/api/v2/assets?name_pattern=live-retrain/graph")["assets"]
        self.live.request("POST", "/api/v2/assets/events", {"asset_id": found[0]["id"], "extra": {}})

    def next_run(self) -> dict[str, Any]:
        """Wait until a run that new edges began and that was not seen before has ended, and return it.

        A DAG that starts its clock also runs for the last date of it, before or after the first edges are announced. It
        trains on what lies there, so it changes no outcome, and must not be taken for a run of theirs.
        """

        def ended() -> dict[str, Any] | None:
            runs = self.live.request("GET", f"/api/v2/dags/{DAG}/dagRuns?order_by=run_after")["dag_runs"]
            theirs = [run for run in runs if run["run_type"] == "asset_triggered"]
            return next((r for r in theirs if r["dag_run_id"] not in self.seen and r["state"] in ENDED), None)

        run: dict[str, Any] = wait_for("a retraining run's end", ended, seconds=500)
        self.seen.add(run["dag_run_id"])
        return run


@pytest.fixture
def retraining(live, tmp_path):
    return Retraining(live, tmp_path)


def test_new_edges_retrain_and_only_a_better_model_goes_into_service(live, retraining):
    wait_for("the DAG", lambda: live.request("GET", f"/api/v2/dags/{DAG}"))
    retraining.arrive(epochs=2, lr=0.001)
    live.request("PATCH", f"/api/v2/dags/{DAG}?update_mask=is_paused", {"is_paused": False})
    retraining.announce()
    first = retraining.next_run()
    assert first["state"] == "success"
    assert registry.read_aliases(*MODEL).champion == 1

    retraining.arrive(epochs=1, lr=1e-7)
    retraining.announce()
    worse = retraining.next_run()
    assert worse["state"] == "success"
    assert registry.read_aliases(*MODEL).champion == 1
    assert "version 1 stays: test.accuracy is" in log_of(live, worse, "publish")

    retraining.arrive(epochs=80, lr=0.02)
    retraining.announce()
    better = retraining.next_run()
    assert better["state"] == "success"
    assert registry.read_aliases(*MODEL).champion == 3
    assert "promoted: test.accuracy is" in log_of(live, better, "publish")
    promoted = outcome_of(live, better, "score")
    assert promoted["version"] == 3

    rolled_back(live, better, before=promoted)


def rolled_back(live: System, run: dict[str, Any], *, before: dict[str, Any]) -> None:
    """Roll back by the command line, clear the scoring task, and see the former model's predictions."""
    old = registry.read_version(*MODEL, 1)
    kept = pq.read_table(old.predictions)
    done = CliRunner().invoke(build_app(), ["models", "rollback", MODEL[1], "--workspace", MODEL[0]])
    assert done.exit_code == 0, done.output
    assert registry.read_aliases(*MODEL).champion == 1
    assert pq.read_table(registry.find_version(*MODEL, "champion").predictions).equals(kept)
    again = LiveRun(live, DAG, run["dag_run_id"])
    again.clear("score", only_failed=False)
    wait_for("the cleared task", lambda: again.state() not in ENDED, seconds=200)
    assert again.wait() == "success"
    restored = again.xcom("score")
    assert restored["version"] == 1
    now, then = by_id(restored["predictions"]), by_id(before["predictions"])
    assert now["id"].equals(then["id"])
    assert not now.equals(then)


def by_id(uri: str) -> pa.Table:
    return pq.read_table(uri).sort_by("id")


def log_of(live: System, run: dict[str, Any], task: str) -> str:
    return LiveRun(live, DAG, run["dag_run_id"]).log(task)


def outcome_of(live: System, run: dict[str, Any], task: str) -> dict[str, Any]:
    found: dict[str, Any] = LiveRun(live, DAG, run["dag_run_id"]).xcom(task)
    return found
