"""Runs of one config at once do the shared work once, and the lease that sees to it is in nobody's way."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from gnnflow.progress import Silent
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.storage import lease
from gnnflow.storage.run_folder import damaged_files
from tests.hearing import Heard
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Counting(Silent):
    """Counts the tasks a run committed itself."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, int]] = []

    def task_finished(self, name: str, index: int, counts: Mapping[str, float]) -> None:
        self.tasks.append((name, index))


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_stage_ends_although_its_lease_is_renewed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_RENEW_SECONDS", 0.01)
    write_graph(tmp_path)
    config = graph_config(tmp_path, train={"epochs": 1}, infer={"parity_samples": 5})
    assert pipeline.run_quietly(config).stages["infer"].manifest.rows_out == 60
    assert not [path for path in (tmp_path / "runs" / "work").rglob("*") if path.parent.parent.name == "work"]


def test_a_run_that_another_completes_meanwhile_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(tmp_path)
    config = graph_config(tmp_path, train={"epochs": 1}, infer={"parity_samples": 5})
    heard, results, write = Heard(), list[pipeline.RunResult](), pipeline.write_record
    other = threading.Thread(target=lambda: results.append(pipeline.run(StageContext.of(config, progress=heard))))

    def write_later(*given: Any) -> None:
        """Write the record once the other run waits or has written its own report and record."""
        monkeypatch.setattr(pipeline, "write_record", write)
        other.start()
        while other.is_alive() and not heard.messages:
            time.sleep(0.01)
        write(*given)

    monkeypatch.setattr(pipeline, "write_record", write_later)
    first = pipeline.run_quietly(config)
    other.join()
    assert damaged_files(first.uri) == ()
    assert (first.reused, results[0].reused) == (False, True)
    assert not [path for path in (tmp_path / "runs" / "work").rglob("*") if path.is_file()]
