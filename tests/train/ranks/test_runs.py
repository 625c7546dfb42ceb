"""Whole runs on ranks: what is killed goes on to the same bytes, and no process, task or file is left."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from gnnflow.cluster import Cluster
from gnnflow.config import LocalCluster, SynchronousCluster
from gnnflow.graph.errors import ClusterError, ConfigError
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import run_stage
from tests.killing import of_a_killed_process
from tests.robustness.processes import start
from tests.small_graphs import graph_config, write_graph
from tests.train.ranks.test_gang import nothing_is_left, nothing_is_left_soon

LOCAL = {"kind": "local", "workers": 2, "memory_limit": "2GiB"}
SECONDS = 300
STRATEGIES = {
    "shards": {},
    "store": {"source": "store"},
    "clusters": {"strategy": "cluster-batch", "boundary_hops": 1},
}
"""Keys of `train` of each way to train."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    write_graph(folder, num_nodes=300, num_edges=3000)
    return folder


def config_of(folder: Path, workspace: str, cluster=LOCAL, **train: object):
    size = {} if "strategy" in train else {"batch_size": 16}
    return graph_config(
        folder,
        workspace=str(folder / workspace),
        graph={"partitions": 6},
        model={"kind": "sage", "hidden": 8},
        train={"epochs": 60, "patience": 0, "checkpoint_steps": 2, "workers": 2, "start_seconds": 120, **size, **train},
        infer={"parity_samples": 20},
        cluster=cluster,
    )


def run_of(folder: Path, config, name: str):
    (folder / f"{name}.yaml").write_text(config.model_dump_json(exclude_none=True))
    return start(["run", str(folder / f"{name}.yaml"), "--json"], folder, name)


def digests(out: Path) -> dict[str, str]:
    return {name: stage["digest"] for name, stage in json.loads(out.read_text())["stages"].items()}


def killed_in_training(running, workspace: Path) -> None:
    """Wait until a run has written a checkpoint, and kill it."""
    deadline = time.monotonic() + SECONDS
    # os.walk, unlike rglob, goes on where a folder is removed meanwhile
    while not any("train.safetensors" in files for _, _, files in os.walk(workspace / "work")):
        assert time.monotonic() < deadline, running.said
        assert running.alive, running.said
        time.sleep(0.02)
    os.kill(running.process.pid, signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL


def test_ranks_without_a_dask_cluster_are_refused_when_the_config_is_read(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(folder, "none", cluster={"kind": "synchronous"})
    assert caught.value.where == "train.workers"
    assert "Set cluster to {kind: local, workers: 2}" in caught.value.fix


def test_ranks_on_a_scheduler_without_a_cluster_are_refused(folder: Path) -> None:
    config = config_of(folder, "in-process")
    context = StageContext.of(config, Cluster(SynchronousCluster()))
    for stage in ("ingest", "select", "flat"):
        run_stage(context, stage)
    with pytest.raises(ClusterError, match="2 ranks are tasks of a Dask cluster, and this stage runs without one"):
        run_stage(context, "train")


@of_a_killed_process
@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.timeout(3 * SECONDS)  # three runs, each with a limit of its own
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_killed_run_leaves_no_process_and_goes_on_to_the_same_bytes(folder: Path, strategy: str) -> None:
    names = {name: f"{strategy}-{name}" for name in ("undisturbed", "killed", "again")}
    keys = STRATEGIES[strategy]
    undisturbed = run_of(folder, config_of(folder, names["undisturbed"], **keys), names["undisturbed"])
    assert undisturbed.wait() == 0, undisturbed.said
    config = config_of(folder, names["killed"], **keys)
    killed = run_of(folder, config, names["killed"])
    killed_in_training(killed, folder / names["killed"])
    assert not killed.orphans()
    again = run_of(folder, config, names["again"])
    assert again.wait() == 0, again.said
    assert "goes on from epoch" in again.said
    assert digests(again.out) == digests(undisturbed.out)
    assert not [file for file in (folder / names["killed"] / "work").rglob("*") if file.is_file()]


@of_a_killed_process
@pytest.mark.distributed
@pytest.mark.slow
def test_ranks_on_a_shared_cluster_end_with_the_run_that_started_them(folder: Path) -> None:
    with Cluster(LocalCluster(workers=2, memory_limit="2GiB")) as cluster:
        client = cluster.dask_client()
        client.wait_for_workers(2, timeout=60)
        there = {"kind": "address", "address": client.scheduler.address}
        config = config_of(folder, "shared", there, epochs=5000)
        killed = run_of(folder, config, "shared")
        killed_in_training(killed, folder / "shared")
        nothing_is_left_soon(client, events=1000)
        short = config_of(folder, "shared", there, epochs=10)
        context = StageContext.of(short, cluster)
        assert pipeline.run(context).metrics["train.epochs"] == 10
        facts = context.artifact("train").facts(TrainFacts)
        assert [attempt.ranks for attempt in facts.attempts] == [2]
        nothing_is_left(client, events=1000)
