"""`gnnflow sweep`: all combinations, shared stages, one table; failures are listed, and a killed sweep goes on."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from gnnflow.graph.errors import TrainingError
from tests.command_line import run_cli
from tests.conftest import REPOSITORY
from tests.killing import of_a_killed_process
from tests.small_graphs import write_graph

TRAIN = {"epochs": 2, "batch_size": 16}


def written(folder: Path, matrix: Any, **more: Any) -> str:
    """Write a small graph and the experiment on it, and return the experiment's path."""
    write_graph(folder)
    content = {
        "name": "small",
        "workspace": str(folder / "runs"),
        "graph": {"nodes": str(folder / "nodes.parquet"), "edges": str(folder / "edges.parquet"), "partitions": 2},
        "cluster": {"kind": "synchronous"},
        "infer": {"parity_samples": 5},
        "train": TRAIN,
        "matrix": matrix,
        **more,
    }
    file = folder / "sweep.yaml"
    file.write_text(json.dumps(content))
    return str(file)


def table_of(summary: dict[str, Any]) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(summary["table"]).read_text().splitlines()))


def test_combinations_share_stages_and_the_table_is_sorted_by_the_metric(tmp_path: Path) -> None:
    config = written(tmp_path, {"model.kind": ["gcn", "sage"], "train.lr": [0.01, 0.1]})
    shown = run_cli(["sweep", config, "--json"])
    assert shown.code == 0, shown.err
    summary = json.loads(shown.out)
    scores = [run["metrics"]["valid.accuracy"] for run in summary["runs"]]
    assert len(scores) == 4
    assert scores == sorted(scores, reverse=True)
    assert summary["metric"] == "valid.accuracy"
    assert summary["failed"] == []
    assert [(row["kind"], row["lr"]) for row in table_of(summary)] == [
        tuple(run["keys"].values()) for run in summary["runs"]
    ]
    for stage, number in (("ingest", 1), ("select", 1), ("flat", 1), ("train", 4)):
        assert len(list((tmp_path / "runs" / "artifacts" / stage).iterdir())) == number
    assert Path(summary["plot"]).read_text().startswith("<svg")
    again = run_cli(["sweep", config])
    lines = again.out.splitlines()
    assert lines[0].split() == ["kind", "lr", "valid.accuracy", "test.accuracy", "seeds"]
    assert [line.split()[:2] for line in lines[1:5]] == [[*run["keys"].values()] for run in summary["runs"]]
    assert again.err.count("nothing to do: this run is complete") == 4
    assert "run 4 of 4: kind=sage lr=0.1" in again.err


def test_a_broken_combination_is_listed_and_the_others_go_on(tmp_path: Path) -> None:
    matrix = {"train": [{"lr": 1e30, "optimizer": "sgd"}, {"lr": -1}, {"lr": 0.01}]}
    shown = run_cli(["sweep", written(tmp_path, matrix), "--json"])
    assert shown.code == 2
    summary = json.loads(shown.out)
    assert [run["label"] for run in summary["runs"]] == ["lr=0.01"]
    found = {each["label"]: each["error"] for each in summary["failed"]}
    assert found["lr=-1"]["kind"] == "ConfigError"
    assert found["lr=1e+30 optimizer=sgd"]["kind"] == "TrainingError"
    assert [row["variant"] for row in table_of(summary)] == ["lr=0.01", "lr=-1", "lr=1e+30 optimizer=sgd"]
    told = run_cli(["sweep", str(tmp_path / "sweep.yaml")])
    assert told.code == 2
    assert "lr=-1  failed: " in told.out
    assert "Traceback" not in told.err


def test_a_bug_that_one_combination_meets_is_listed_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gnnflow.stages import train

    whole = train.work

    def careless(run: Any) -> Any:
        if run.config.seed:
            raise KeyError("missing")
        return whole(run)

    monkeypatch.setattr(train, "work", careless)
    shown = run_cli(["sweep", written(tmp_path, {"seed": [1, 0]}), "--json"])
    summary = json.loads(shown.out)
    assert [run["label"] for run in summary["runs"]] == ["seed=0"]
    (failed,) = summary["failed"]
    assert "bug of gnnflow (KeyError)" in failed["error"]["problem"]
    log = Path(failed["error"]["fix"].rpartition(" ")[2])
    assert "careless" in log.read_text()
    log.unlink()


def test_seeds_are_averaged_and_a_failed_seed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gnnflow.stages import train

    whole = train.work

    def failing(run: Any) -> Any:
        if (run.config.seed, run.config.model.kind) == (2, "sage"):
            raise TrainingError("the loss is nan", where="train", fix="")
        return whole(run)

    monkeypatch.setattr(train, "work", failing)
    matrix = [{"name": "simple", "model.kind": "gcn"}, {"name": "own", "model": {"kind": "sage", "hidden": 8}}]
    shown = run_cli(["sweep", written(tmp_path, matrix, seeds=3), "--json"])
    assert shown.code == 2
    summary = json.loads(shown.out)
    assert {(run["variant"], run["seed"]) for run in summary["runs"]} == {
        *(("simple", seed) for seed in range(3)),
        *(("own", seed) for seed in range(2)),
    }
    variants = {held["variant"]: held for held in summary["variants"]}
    assert variants["simple"]["mean"]["valid.accuracy"] == pytest.approx(
        fmean(run["metrics"]["valid.accuracy"] for run in summary["runs"] if run["variant"] == "simple")
    )
    assert (variants["own"]["seeds"], variants["own"]["failed_seeds"]) == ([0, 1], [2])
    assert variants["own"]["keys"] == {"bundle": "own", "kind": "sage", "hidden": "8"}
    assert [(each["label"], each["seed"]) for each in summary["failed"]] == [("own seed=2", 2)]
    told = run_cli(["sweep", str(tmp_path / "sweep.yaml")])
    lines = told.out.splitlines()
    assert lines[0].split() == ["bundle", "kind", "hidden", "valid.accuracy", "test.accuracy", "seeds"]
    assert any("own" in line and line.endswith("2 of 3") for line in lines)
    assert any(line.startswith("own seed=2  failed: ") for line in lines)


def test_where_all_combinations_fail_the_first_error_is_told(tmp_path: Path) -> None:
    shown = run_cli(["sweep", written(tmp_path, {"train.lr": [-1, -2]}), "--json"])
    assert shown.code == 2
    assert "train.lr" in json.loads(shown.out)["error"]["problem"] + json.loads(shown.out)["error"]["where"]


def test_set_and_workspace_hold_for_every_run(tmp_path: Path) -> None:
    config = written(tmp_path, {"seed": [0, 1]})
    elsewhere = ["--workspace", str(tmp_path / "elsewhere"), "--set", "train.epochs=1"]
    summary = json.loads(run_cli(["sweep", config, "--json", *elsewhere]).out)
    assert {run["metrics"]["train.epochs"] for run in summary["runs"]} == {1}
    assert all(run["run"].startswith(str(tmp_path / "elsewhere")) for run in summary["runs"])
    assert not (tmp_path / "runs").exists()
    refused = run_cli(["sweep", config, "--set", "seed=3"])
    assert refused.code == 2
    assert "sets what the matrix varies" in refused.err


@of_a_killed_process
@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    config = written(tmp_path, {"seed": list(range(4))}, train={**TRAIN, "epochs": 40, "patience": 0})
    process = subprocess.Popen(
        [sys.executable, "-m", "gnnflow.cli", "sweep", config], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 240
    while len(list(tmp_path.glob("runs/runs/small/*/run.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    complete = {str(file.parent) for file in tmp_path.glob("runs/runs/small/*/run.json")}
    summary = json.loads(run_cli(["sweep", config, "--json"]).out)
    assert len(summary["runs"]) == 4
    assert {run["run"] for run in summary["runs"] if run["reused"]} == complete
    assert len(complete) in {2, 3}
