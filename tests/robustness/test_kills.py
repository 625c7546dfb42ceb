"""Whatever is killed, wherever it was: the next run gives the same bytes, and nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gnnflow.cluster import Cluster
from gnnflow.mapreduce.schedulers import Dask
from gnnflow.progress import Silent
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from tests.killing import of_a_killed_process
from tests.robustness.processes import Running, start
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.config import Config

pytestmark = [
    of_a_killed_process,
    pytest.mark.slow,
    pytest.mark.distributed,
    pytest.mark.timeout(1800),
    # a worker that starts while its scheduler closes leaves a socket to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

IN_ALL = int(os.environ.get("GNNFLOW_KILLS", "20"))  # a search takes 100 or more
# Of a process without workers, of one with workers, and of workers with a task in their hands.
ALONE, DRIVERS, WORKERS = IN_ALL * 6 // 10, IN_ALL // 10, IN_ALL * 3 // 10
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def config_of(folder: Path, workspace: str, cluster: dict[str, Any]) -> Config:
    return graph_config(
        folder,
        workspace=str(folder / workspace),
        graph={"edge_features": ["amount", "hour"], "partitions": 2},
        neighbors={"sampling": {"kind": "weighted", "fanout": [4, 3]}, "hub_threshold": 20},
        flat={"shard_size": 32},
        model={"kind": "gat_e", "hidden": 4, "heads": 2},
        train={"epochs": 8, "batch_size": 16, "checkpoint_steps": 2, "threads": 1},
        infer={"parity_samples": 20},
        cluster=cluster,
    )


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kills")
    write_graph(folder, num_nodes=300, num_edges=3000, hub=7)
    return folder


@pytest.fixture(scope="module")
def undisturbed(graph: Path) -> dict[str, str]:
    return digests(pipeline.run_quietly(config_of(graph, "undisturbed", {"kind": "synchronous"})).summary())


def digests(summary: dict[str, Any]) -> dict[str, str]:
    return {name: stage["digest"] for name, stage in summary["stages"].items()}


def left_in_work(workspace: Path) -> list[Path]:
    return [file for file in (workspace / "work").rglob("*") if file.is_file()]


def whole(graph: Path, config: Config, name: str) -> tuple[Running, dict[str, Any]]:
    """Run a config to its end in a process of its own."""
    running = start(arguments(graph, config, name), graph, name)
    code = running.wait()
    assert code == 0, running.said
    return running, json.loads(running.out.read_text())


def arguments(graph: Path, config: Config, name: str) -> list[str]:
    file = graph / f"{name}.yaml"
    file.write_text(config.model_dump_json(exclude_none=True))
    return ["run", str(file), "--json"]


def kill_at_random(graph: Path, config: Config, name: str, *, lines: int, pick: random.Random) -> tuple[int, int]:
    """Start a run, send a signal in the middle of its work, and return the signal and the exit code."""
    sent = pick.choice(SIGNALS)
    running = start(arguments(graph, config, name), graph, name)
    if running.wait_for_lines(pick.randrange(1, lines)):
        time.sleep(pick.uniform(0, 0.05))
        with contextlib.suppress(ProcessLookupError):
            os.kill(running.process.pid, sent)
    code = running.wait()
    assert not (left := running.orphans()), f"{sent.name} left {left} running"
    assert "Traceback" not in running.said, f"{sent.name}:\n{running.said}"
    if sent is signal.SIGINT and code != 0:
        assert code == 130, f"exit code {code} after ^C:\n{running.said}"
        assert "again" in running.said.splitlines()[-1], f"^C says nothing of how to go on:\n{running.said}"
    return sent, code


@pytest.mark.parametrize(
    ("cluster", "kills"),
    [({"kind": "synchronous"}, ALONE), ({"kind": "local", "workers": 2, "memory_limit": "2GiB"}, DRIVERS)],
    ids=["synchronous", "local"],
)
def test_a_killed_run_goes_on_to_the_same_bytes(
    graph: Path,
    undisturbed: dict[str, str],
    cluster: dict[str, Any],
    kills: int,
    record_property: Callable[[str, object], None],
) -> None:
    pick, ends, wrong = random.Random(kills), Counter[str](), []
    first, _ = whole(graph, config_of(graph, f"whole-{kills}", cluster), f"whole-{kills}")
    lines = first.said.count("\n")
    for attempt in range(kills):
        config = config_of(graph, f"killed-{kills}-{attempt}", cluster)
        try:
            sent, code = kill_at_random(graph, config, f"killed-{kills}-{attempt}", lines=lines, pick=pick)
            ends[f"{signal.Signals(sent).name} {'too late' if code == 0 else 'hit'}"] += 1
        except AssertionError as error:
            wrong.append(str(error))
        _, summary = whole(graph, config, f"again-{kills}-{attempt}")
        assert digests(summary) == undisturbed
        assert left_in_work(Path(config.workspace)) == []
    record_property("kills", dict(ends))
    assert not wrong, "\n".join([f"{len(wrong)} of {kills}", *wrong[:5]])
    assert sum(count for end, count in ends.items() if "hit" in end) >= 0.8 * kills


class KillBusyWorkers(Silent):
    """Sends a signal to a worker that has a task in its hands, a moment after a round began."""

    def __init__(self, cluster: Cluster, pick: random.Random) -> None:
        self.pick = pick
        scheduler = cluster.scheduler()  # started before there is more than one thread
        assert isinstance(scheduler, Dask)
        self.client = scheduler.client
        self.hit: Counter[str] = Counter()
        self._threads: list[threading.Thread] = []

    def round_started(self, name: str, num_tasks: int, num_done: int) -> None:
        if self.pick.random() < 0.3:
            self._threads.append(threading.Thread(target=self._kill_one, args=(name,), daemon=True))
            self._threads[-1].start()

    def _kill_one(self, name: str) -> None:
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            workers = dict(self.client.cluster.workers)
            busy = [key for key, tasks in self.client.processing().items() if tasks]
            pids = {nanny.worker_address: nanny.pid for nanny in workers.values() if nanny.pid}
            held = [pids[address] for address in busy if address in pids]
            if held:
                sent = self.pick.choice(SIGNALS)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pick.choice(held), sent)
                    self.hit[f"{sent.name} in {name}"] += 1
                return

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()


def test_busy_workers_are_killed_and_no_byte_changes(
    graph: Path, undisturbed: dict[str, str], record_property: Callable[[str, object], None]
) -> None:
    pick, hit = random.Random(1), Counter[str]()
    local = {"kind": "local", "workers": 2, "memory_limit": "2GiB"}
    for attempt in range(WORKERS):
        config = config_of(graph, f"workers-{attempt}", local)
        with Cluster(config.cluster) as cluster:
            progress = KillBusyWorkers(cluster, pick)
            result = pipeline.run(StageContext.of(config, cluster, progress))
            progress.wait()
        hit += progress.hit
        assert digests(result.summary()) == undisturbed
        assert left_in_work(Path(config.workspace)) == []
        if hit.total() >= WORKERS:
            break
    record_property("kills", dict(hit))
    assert hit.total() >= WORKERS
