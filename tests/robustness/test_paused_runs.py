"""A run whose processes all pause until another has trained, with any updater: one model, and its predictions.

What `tests/stages/test_stalled_runs.py` cannot show with threads: ranks and servers that are paused too, and a cluster
whose scheduler finds its workers silent when it wakes up.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from gnnflow.config import Config
from gnnflow.storage.manifest import read_manifest
from gnnflow.storage.run_folder import damaged_files
from tests.robustness.processes import start
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.slow, pytest.mark.distributed, pytest.mark.timeout(1800)]

PAUSES = max(1, int(os.environ.get("GNNFLOW_KILLS", "20")) // 20)  # with each updater
LEASE_SECONDS = 2.0
SERVER = {"kind": "parameter_server"}
UPDATERS: dict[str, dict[str, Any]] = {
    "all_reduce": {"kind": "all_reduce"},
    "synchronous": SERVER,
    "bounded": {**SERVER, "mode": "bounded", "staleness": 1},
    "asynchronous": {**SERVER, "mode": "asynchronous"},
    "stealing": {**SERVER, "mode": "asynchronous", "stealing": True},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paused")
    write_graph(folder, num_nodes=300, num_edges=3000)
    return folder


def config_of(folder: Path, workspace: Path, updater: str) -> Config:
    return graph_config(
        folder,
        workspace=str(workspace),
        graph={"partitions": 2},
        train={"epochs": 40, "patience": 0, "batch_size": 8, "workers": 2, "threads": 1, "updater": UPDATERS[updater]},
        infer={"parity_samples": 20},
        cluster={"kind": "local", "workers": 2, "memory_limit": "2GiB"},
    )


@pytest.mark.parametrize("pause", range(PAUSES))
@pytest.mark.parametrize("updater", UPDATERS)
def test_one_model_and_its_predictions_are_committed(graph: Path, tmp_path: Path, updater: str, pause: int) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(config_of(graph, tmp_path / "runs", updater).model_dump_json(exclude_none=True))

    def begin(name: str) -> Any:
        return start(["run", str(file), "--json"], tmp_path, name, lease_seconds=LEASE_SECONDS)

    first = begin("first")
    assert first.wait_for(", train loss"), first.said
    time.sleep(random.Random(f"{updater} {pause}").uniform(0, 0.5))
    first.send(signal.SIGSTOP)
    second = begin("second")
    assert second.wait() == 0, second.said
    first.send(signal.SIGCONT)
    assert first.wait() == 0, first.said
    found = [json.loads(run.out.read_text()) for run in (first, second)]
    again = begin("again")
    assert again.wait() == 0, again.said
    found.append(json.loads(again.out.read_text()))
    assert len({json.dumps({name: each["digest"] for name, each in run["stages"].items()}) for run in found}) == 1
    stages = found[0]["stages"]
    for name, stage in stages.items():
        assert read_manifest(stage["artifact"]).digest == stage["digest"], name
    assert damaged_files(found[0]["run"]) == ()
    assert not first.orphans()
