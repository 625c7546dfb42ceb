"""Rows written in the background are all there when their task is done, and what fails is raised in the task."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from gnnflow.mapreduce import exchange
from gnnflow.mapreduce.exchange import Emit, Inbox, write_exchange
from gnnflow.mapreduce.rounds import Round, RoundRunner, TaskOutput
from gnnflow.mapreduce.schedulers import Synchronous

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

RUNS = 7


def numbers(task: int, run: int) -> Emit:
    """Return two rows, one for each partition."""
    table = pa.table({"number": np.array([100 * task + run, 1000 + 100 * task + run])})
    return Emit("numbers", table, np.arange(2))


def runs(task: int) -> Generator[Emit]:
    for run in range(RUNS):
        yield numbers(task, run)
        yield Emit("own", pa.table({"run": [run]}), np.array([task]))


def written(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "send" / "numbers").glob("*"))


def send(index: int, inbox: Inbox) -> TaskOutput:
    return TaskOutput(coming=runs(index), counts={"rows": 2 * RUNS})


def read(index: int, inbox: Inbox) -> TaskOutput:
    pieces = [piece["number"].to_pylist() for piece in inbox.pieces("numbers")]
    return TaskOutput(counts={"numbers": pieces, "own": inbox.read("own", tasks=(index,))["run"].to_pylist()})


STEPS = (Round("send", 2, 2, send), Round("read", 2, 2, read, reads={"numbers": "send", "own": "send"}))


def found(folder: Path) -> list[dict[str, object]]:
    runner = RoundRunner(str(folder), Synchronous())
    return [[record.counts for record in runner.run(step)] for step in STEPS][-1]


EXPECTED = [
    {"numbers": [[1000 * at + 100 * task + run for run in range(RUNS)] for task in range(2)], "own": list(range(RUNS))}
    for at in range(2)
]


def test_runs_are_read_as_one_piece_in_their_order(tmp_path: Path) -> None:
    assert found(tmp_path) == EXPECTED
    assert len(written(tmp_path)) == 2 * RUNS


def test_a_task_is_done_only_when_its_last_write_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def slowly(uri: str, emit: Emit, num_destinations: int) -> int:
        time.sleep(0.02)
        assert not (tmp_path / "send" / f"{int(uri.rsplit('/', 1)[-1][:5]):05d}.json").exists()
        done.append(uri)
        return write_exchange(uri, emit, num_destinations)

    monkeypatch.setattr(exchange, "write_exchange", slowly)
    assert found(tmp_path) == EXPECTED
    assert len(done) == 4 * RUNS


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()], ids=["error", "kill"])
def test_an_error_of_a_write_is_raised_and_the_next_attempt_writes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    # an index is bound to the name of the folder
    undisturbed, folder = tmp_path / "undisturbed" / "work", tmp_path / "disturbed" / "work"
    found(undisturbed)
    left = [3]

    def failing(uri: str, emit: Emit, num_destinations: int) -> int:
        left[0] -= 1
        if not left[0]:
            raise error
        return write_exchange(uri, emit, num_destinations)

    before = threading.active_count()
    with monkeypatch.context() as patch:
        patch.setattr(exchange, "write_exchange", failing)
        with pytest.raises(type(error)):
            found(folder)
    assert not list((folder / "send").glob("*.json"))
    assert threading.active_count() == before
    assert found(folder) == EXPECTED
    for file in (undisturbed / "send" / "numbers").iterdir():
        assert (folder / "send" / "numbers" / file.name).read_bytes() == file.read_bytes()


def test_an_error_of_making_a_later_run_leaves_no_record_and_ends_the_generator(tmp_path: Path) -> None:
    ended: list[bool] = []

    def broken(index: int, inbox: Inbox) -> TaskOutput:
        def some() -> Generator[Emit]:
            try:
                yield numbers(index, 0)
                raise ValueError("cannot go on")
            finally:
                ended.append(True)

        return TaskOutput(coming=some())

    with pytest.raises(ValueError, match="cannot go on"):
        RoundRunner(str(tmp_path), Synchronous()).run(Round("send", 1, 2, broken))
    assert ended == [True]
    assert not list((tmp_path / "send").glob("*.json"))


def test_no_more_than_a_few_emits_wait_to_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, finished, most = [0], [0], [0]

    def counting(uri: str, emit: Emit, num_destinations: int) -> int:
        time.sleep(0.01)
        finished[0] += 1
        return write_exchange(uri, emit, num_destinations)

    def many(index: int, inbox: Inbox) -> TaskOutput:
        def some() -> Generator[Emit]:
            for run in range(20):
                most[0] = max(most[0], made[0] - finished[0])
                made[0] += 1
                yield numbers(index, run)

        return TaskOutput(coming=some())

    monkeypatch.setattr(exchange, "write_exchange", counting)
    RoundRunner(str(tmp_path), Synchronous()).run(Round("send", 1, 2, many))
    assert 1 < most[0] <= exchange._UNWRITTEN
    assert finished == [20]
