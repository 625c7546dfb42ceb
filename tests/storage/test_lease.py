"""Two runs of one config do the shared work once, and a dead one blocks nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from gnnflow.progress import Silent
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.storage import lease
from gnnflow.storage.filesystem import create_exclusive
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest


class Counting(Silent):
    """Counts the tasks a run committed itself."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, int]] = []

    def task_finished(self, name: str, index: int, counts: Mapping[str, float]) -> None:
        self.tasks.append((name, index))


def test_concurrent_runs_do_the_shared_work_once(tmp_path: Path) -> None:
    write_graph(tmp_path)
    train = {"epochs": 2}
    config = graph_config(tmp_path, train=train)
    heard = [Counting(), Counting()]
    results: dict[int, pipeline.RunResult] = {}

    def start(number: int) -> None:
        results[number] = pipeline.run(StageContext.of(config, progress=heard[number]))

    runs = [threading.Thread(target=start, args=(number,)) for number in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    alone = Counting()
    pipeline.run(
        StageContext.of(graph_config(tmp_path, workspace=str(tmp_path / "alone"), train=train), progress=alone)
    )
    assert sorted(heard[0].tasks + heard[1].tasks) == sorted(alone.tasks)
    digests = [{name: stage.digest for name, stage in results[n].stages.items()} for n in range(2)]
    assert digests[0] == digests[1]
    assert [results[0].stages[s].reused + results[1].stages[s].reused for s in results[0].stages] == [1] * 5


def test_a_lease_of_a_dead_process_is_taken_at_once(tmp_path: Path) -> None:
    code = "import os,sys; from gnnflow.storage import lease; sys.stdout.buffer.write(lease._content('x', 0))"
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert json.loads(dead)["pid"] != os.getpid()
    create_exclusive(str(tmp_path / "lease.json"), dead)
    begin = time.monotonic()
    with lease.sole_worker(str(tmp_path), done=lambda: False, progress=Silent()) as alone:
        assert alone
    assert time.monotonic() - begin < 3
    assert not (tmp_path / "lease.json").exists()


def test_a_lease_that_is_not_renewed_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_EXPIRE_SECONDS", 1.0)
    held = {"owner": "x", "count": 3, "host": "another-host", "pid": 1, "born": "1"}
    create_exclusive(str(tmp_path / "lease.json"), json.dumps(held).encode())
    with lease.sole_worker(str(tmp_path), done=lambda: False, progress=Silent()) as alone:
        assert alone


def test_a_waiter_is_told_and_leaves_when_the_work_is_done(tmp_path: Path) -> None:
    held = {"owner": "x", "count": 3, "host": "another-host", "pid": 1, "born": "1"}
    create_exclusive(str(tmp_path / "lease.json"), json.dumps(held).encode())
    asked: list[bool] = []
    messages: list[str] = []

    class Heard(Silent):
        def message(self, text: str) -> None:
            messages.append(text)

    def done() -> bool:
        asked.append(True)
        return len(asked) > 2

    with lease.sole_worker(str(tmp_path), done=done, progress=Heard()) as alone:
        assert not alone
    assert messages == ["another run is doing this work; waiting for it"]
