"""What a stage took is counted over all its attempts, however each of them ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gnnflow.graph.run_facts import InferFacts
from gnnflow.progress import Silent
from gnnflow.stages import pipeline, running
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path

_LONG = 0.4  # seconds


class Stopping(Silent):
    """Takes long over the first slice, and stops the run at the second."""

    def round_started(self, name: str, num_tasks: int, num_done: int) -> None:
        if name == "slice_1":
            time.sleep(_LONG)
        if name == "slice_2":
            raise KeyboardInterrupt


def test_a_resumed_stage_took_what_all_its_attempts_took(tmp_path: Path) -> None:
    write_graph(tmp_path)
    config = graph_config(tmp_path, train={"epochs": 1})
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(StageContext.of(config, progress=Stopping()))
    made = make_artifact(StageContext.of(config), "infer")
    metrics = made.facts(InferFacts).metrics
    assert metrics["infer.seconds"] > _LONG
    assert metrics["infer.nodes_per_second"] == pytest.approx(60 / metrics["infer.seconds"])
    assert made.manifest.timings["seconds"] > metrics["infer.seconds"]
    assert all(row["start"] > _LONG for row in made.manifest.timings["rounds"])
    assert not list((tmp_path / "runs" / "work").rglob(running.ELAPSED))


def test_an_attempt_that_is_killed_leaves_its_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_WRITE_SECONDS", 0.01)
    (tmp_path / "slice_1").mkdir()
    (tmp_path / "slice_1" / "0.json").write_text("{}")
    with running.keep_elapsed(str(tmp_path), started=time.monotonic() - 7):
        deadline = time.monotonic() + 60
        while not running.elapsed_before(str(tmp_path)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert running.elapsed_before(str(tmp_path)) > 7
    (tmp_path / running.ELAPSED).write_text('{"seconds": 12}x')
    assert running.elapsed_before(str(tmp_path)) == 0


def test_an_attempt_that_did_nothing_leaves_nothing(tmp_path: Path) -> None:
    with running.keep_elapsed(str(tmp_path / "work"), started=time.monotonic() - 7):
        pass
    assert not (tmp_path / "work").exists()
