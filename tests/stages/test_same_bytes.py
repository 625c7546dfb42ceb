"""Same seed, same bytes: whatever the number of workers, and whoever is killed while they work."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from gnnflow.datasets.typed_payments import PAYS, write_typed_payments
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from tests.conftest import ClusterOf
from tests.hearing import Heard
from tests.killing import KillAWorkerInEveryRound, of_a_killed_process
from tests.robustness.processes import Running, start
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gnnflow.config import Config

# Of a graph of several types each takes two to four times as long.
KILLS = {"one type": 20, "several types": 6, "edges of a relation": 6}
SAMPLED = {"sampling": {"kind": "weighted", "fanout": [4, 3]}, "hub_threshold": 20}


def small(folder: Path, workspace: str, **cluster: Any) -> Config:
    graph, kind, task, batch = {"edge_features": ["amount", "hour"]}, "gat_e", {"kind": "node"}, 8
    if (section := folder / "graph.json").exists():
        graph, kind = json.loads(section.read_text()), "han"
        if graph["target"] == PAYS:
            task, batch = {"kind": "edge", "split": {"kind": "random"}}, 32  # there are more edges than nodes
    return graph_config(
        folder,
        workspace=str(folder / workspace),
        graph=graph,
        task=task,
        neighbors=SAMPLED,
        flat={"shard_size": 16},
        model={"kind": kind, "hidden": 4, "heads": 2},
        train={"epochs": 3, "batch_size": batch, "checkpoint_steps": 1},
        infer={"parity_samples": 20, "sampling": "none"},  # every in-edge, so that those of hubs are split
        cluster=cluster or {"kind": "synchronous"},
    )


def digests(result: pipeline.RunResult) -> dict[str, str]:
    return {name: stage.digest for name, stage in result.stages.items()}


def write(folder: Path, kind: str) -> Path:
    if kind == "one type":
        write_graph(folder, num_nodes=120, num_edges=1500, hub=7)
    else:
        section = write_typed_payments(str(folder), num_nodes=150, num_edges=1500)
        if kind == "edges of a relation":
            section |= {"target": PAYS, "label": "illicit"}
        (folder / "graph.json").write_text(json.dumps(section))
    return folder


@pytest.fixture(scope="session")
def graph_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of each graph, written once. Every test has workspaces of its own there."""
    return cache(lambda kind: write(tmp_path_factory.mktemp("graph"), kind))


@pytest.fixture(scope="session")
def digests_of() -> Callable[[Path], dict[str, str]]:
    """What an undisturbed run on a graph makes, run once: on some it takes as long as a test."""
    return cache(lambda graph: digests(pipeline.run_quietly(small(graph, "undisturbed"))))


@pytest.fixture(params=["one type", "several types", "edges of a relation"])
def graph(request: pytest.FixtureRequest, graph_of: Callable[[str], Path]) -> Path:
    return graph_of(request.param)


@pytest.fixture
def undisturbed(graph: Path, digests_of: Callable[[Path], dict[str, str]]) -> dict[str, str]:
    return digests_of(graph)


@pytest.mark.distributed
@pytest.mark.parametrize("workers", [1, 2, 4], scope="session")
def test_worker_count_changes_no_byte(
    graph: Path, undisturbed: dict[str, str], workers: int, cluster_of: ClusterOf
) -> None:
    config = small(graph, f"workers-{workers}", kind="local", workers=workers, memory_limit="2GiB")
    assert digests(pipeline.run(StageContext.of(config, cluster_of(config.cluster)))) == undisturbed


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.parametrize("workers", [2], scope="session")
def test_killing_a_worker_in_every_round_changes_no_byte(
    graph: Path, undisturbed: dict[str, str], workers: int, cluster_of: ClusterOf
) -> None:
    config = small(graph, "killed", kind="local", workers=workers, memory_limit="2GiB")
    cluster = cluster_of(config.cluster)
    progress = KillAWorkerInEveryRound(cluster)
    assert digests(pipeline.run(StageContext.of(config, cluster, progress))) == undisturbed
    # on a typed graph a relation has rounds of its own
    killed = {name.partition("-")[0] for name in progress.killed}
    of_select, of_infer = {"select", "select_hubs", "select_merge"}, {"hubs_1", "slice_2"}
    assert {"nodes_read", "edges_dst", "hop_2", "shards"} | of_select | of_infer <= killed


def started(config: Config, folder: Path, name: str) -> Running:
    file = folder / f"{name}.yaml"
    file.write_text(config.model_dump_json(exclude_none=True))
    return start(["run", str(file), "--json"], folder, name)


@of_a_killed_process
@pytest.mark.slow
@pytest.mark.timeout(1200)  # forty-one processes
@pytest.mark.parametrize(("graph", "kills"), KILLS.items(), ids=KILLS, indirect=["graph"])
def test_killing_the_process_anywhere_and_running_again_gives_the_same_predictions(
    graph: Path, kills: int, undisturbed: dict[str, str]
) -> None:
    first = started(small(graph, "process-0"), graph, "first")
    assert first.wait() == 0, first.said
    lines, pick, interrupted = first.said.count("\n"), random.Random(0), 0
    for attempt in range(1, kills + 1):
        config = small(graph, f"process-{attempt}")
        killed = started(config, graph, f"killed-{attempt}")
        # At a line and up to a fifth of a second later: how busy the machine is does not decide where it is then.
        killed.wait_for_lines(pick.randrange(1, lines))
        time.sleep(pick.uniform(0, 0.2))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(killed.process.pid, signal.SIGKILL)
        interrupted += killed.wait() == -signal.SIGKILL
        again = started(config, graph, f"again-{attempt}")
        assert again.wait() == 0, again.said
        stages = json.loads(again.out.read_text())["stages"]
        assert {name: stage["digest"] for name, stage in stages.items()} == undisturbed
    assert interrupted >= kills // 2


@pytest.mark.table(3)
def test_the_second_run_does_nothing_and_says_so(graph: Path) -> None:
    config = small(graph, "twice")
    first = pipeline.run_quietly(config)

    class Idle(Heard):
        def round_started(self, name: str, num_tasks: int, num_done: int) -> None:
            pytest.fail(f"round {name} ran again")

    idle = Idle()
    second = pipeline.run(StageContext.of(config, progress=idle))
    assert all(stage.reused for stage in second.stages.values())
    assert any("nothing to do" in text for text in idle.messages)
    assert digests(second) == digests(first)
    assert second.seconds < 5


@pytest.mark.parametrize("graph", ["one type"], indirect=True)
def test_another_model_reuses_ingest_and_graphflat(graph: Path) -> None:
    first = pipeline.run_quietly(small(graph, "shared"))
    config = small(graph, "shared")
    wider = config.model_copy(update={"model": config.model.model_copy(update={"hidden": 8})})
    second = pipeline.run_quietly(wider)
    assert {name: stage.reused for name, stage in second.stages.items()} == {
        "ingest": True,
        "select": True,
        "flat": True,
        "train": False,
        "infer": False,
    }
    assert second.uri != first.uri
