"""Learning curves go to those that show them as they come, and none of them can hold training up or end it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from gnnflow.train import curves as module
from gnnflow.train.curves import Curves, FitRow, HistoryFile
from gnnflow.train.state import Row
from gnnflow.train.tensorboard import TensorBoard
from gnnflow.train.trainer import train
from tests.train.planted import Recording, job_for, planted


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(module, "_SHARE", 0)


class Kept:
    """Keeps rows, once it is let."""

    def __init__(self, *, let: bool = True) -> None:
        self.rows: list[FitRow] = []
        self.ends: list[bool] = []
        self.let = threading.Event()
        if let:
            self.let.set()

    def write(self, rows: Sequence[FitRow]) -> None:
        assert self.let.wait(30)
        self.rows += rows

    def close(self, *, finished: bool) -> None:
        self.ends.append(finished)


class Broken(Kept):
    def write(self, rows: Sequence[FitRow]) -> None:
        raise ConnectionError("the server left")


def rows(first: int, stop: int) -> list[Row]:
    return [{"epoch": epoch, "train_loss": 1 / (1 + epoch)} for epoch in range(first, stop)]


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_epoch_of_every_fit_arrives_in_order() -> None:
    kept, graph = Kept(), planted()
    with Curves({"kept": kept}, say=print) as curves:
        result = train(
            job_for(graph, epochs=4, baseline=True), progress=Recording(), open_source=graph.open_source, log=curves
        )
    assert [row for fit, row in kept.rows if fit == "train"] == list(result.history)
    assert [(fit, row["epoch"]) for fit, row in kept.rows] == [
        (f, e) for f in ("train", "baseline") for e in range(1, 5)
    ]
    assert kept.ends == [True]


def test_a_training_that_goes_on_gives_its_earlier_epochs_again(tmp_path: Path) -> None:
    graph, uri = planted(), str(tmp_path / "checkpoints")
    job = job_for(graph, uri=uri, epochs=3)
    train(job, progress=Recording(), open_source=graph.open_source)
    with Curves({"file": HistoryFile(str(tmp_path / "history.jsonl"))}, say=print) as curves:
        result = train(job, progress=Recording(), open_source=graph.open_source, log=curves)
    assert lines(tmp_path / "history.jsonl") == [{"fit": "train", **row} for row in result.history]


def test_the_file_has_each_epoch_once(tmp_path: Path) -> None:
    file = HistoryFile(str(tmp_path / "h.jsonl"))
    file.write([("train", row) for row in rows(0, 3)])
    assert len(lines(tmp_path / "h.jsonl")) == 3
    file.write([("train", row) for row in [*rows(1, 5), *rows(0, 1)]])
    assert [line["epoch"] for line in lines(tmp_path / "h.jsonl")] == [0, 1, 2, 3, 4]


def test_a_slow_sink_holds_up_neither_training_nor_the_others() -> None:
    slow, quick = Kept(let=False), Kept()
    with Curves({"slow": slow, "quick": quick}, say=print) as curves:
        for row in rows(0, 50):
            curves.epochs("train", [row])
        while len(quick.rows) < 50:
            pass
        assert slow.rows == []
        slow.let.set()
    assert slow.rows == quick.rows


def test_a_sink_that_fails_is_told_once_and_the_others_go_on() -> None:
    said: list[str] = []
    kept = Kept()
    with Curves({"MLflow": Broken(), "kept": kept}, say=said.append) as curves:
        for row in rows(0, 50):
            curves.epochs("train", [row])
    assert said == ["learning curves are no longer sent to MLflow (ConnectionError: the server left)"]
    assert len(kept.rows) == 50


def test_a_sink_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAST_SECONDS", 0.2)
    said: list[str] = []
    hanging = Kept(let=False)
    with Curves({"MLflow": hanging}, say=said.append) as curves:
        curves.epochs("train", rows(0, 1))
    hanging.let.set()
    assert said == ["MLflow did not answer for 0 s and may lack the curves' last epochs"]


def test_a_failed_training_is_told_to_the_sinks() -> None:
    kept = Kept()
    with pytest.raises(ValueError, match="training's own"), Curves({"kept": kept}, say=print):
        raise ValueError("training's own")
    assert kept.ends == [False]


@pytest.mark.filterwarnings("default")  # TensorBoard warns of its own plans
def test_tensorboard_reads_each_epoch_once_after_a_kill(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is an extra: pip install 'gnnflow[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    killed = TensorBoard(str(tmp_path))
    killed.write([("train", row) for row in rows(0, 3)])
    again = TensorBoard(str(tmp_path))
    again.write([("train", row) for row in [*rows(0, 5)]])
    again.write([("baseline", row) for row in rows(0, 1)])
    again.close(finished=True)
    killed.close(finished=False)
    read = EventAccumulator(str(tmp_path / "train"))
    read.Reload()
    assert [(event.step, event.value) for event in read.Scalars("train_loss")] == [
        (row["epoch"], pytest.approx(row["train_loss"])) for row in rows(0, 5)
    ]
    assert {folder.name for folder in tmp_path.iterdir()} == {"train", "baseline"}
