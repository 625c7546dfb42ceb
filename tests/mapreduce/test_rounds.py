"""Rounds, their exchange and their commits, on the synchronous scheduler."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from gnnflow.graph.errors import StorageError
from gnnflow.mapreduce.exchange import Emit, Inbox, exchange_file, read_exchange, write_exchange
from gnnflow.mapreduce.rounds import Round, RoundRunner, TaskOutput
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.storage.columns import from_matrix, to_matrix, to_numpy

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ["the cat the dog", "a dog", "the end"]


def count_words(index: int, inbox: Inbox) -> TaskOutput:
    """Map: send each word to the partition of its length."""
    words = np.array(WORDS[index].split())
    destination = np.char.str_len(words) % 2
    return TaskOutput(emits=(Emit("words", pa.table({"word": words}), destination),), counts={"words": len(words)})


def collect(index: int, inbox: Inbox) -> TaskOutput:
    """Reduce: count what arrived."""
    return TaskOutput(counts=dict(Counter(inbox.read("words")["word"].to_pylist())))


def rounds() -> tuple[Round, Round]:
    return (
        Round("map", len(WORDS), 2, count_words),
        Round("reduce", 2, 2, collect, reads={"words": "map"}),
    )


def test_words_meet_at_their_destination(tmp_path: Path) -> None:
    runner = RoundRunner(str(tmp_path), Synchronous())
    first, second = rounds()
    runner.run(first)
    records = runner.run(second)
    assert records[1].counts == {"the": 3, "cat": 1, "dog": 2, "a": 1, "end": 1}
    assert records[0].counts == {}


def test_a_second_attempt_runs_only_missing_tasks(tmp_path: Path) -> None:
    first, _ = rounds()
    RoundRunner(str(tmp_path), Synchronous()).run(first)
    (tmp_path / "map" / "00001.json").unlink()
    ran: list[int] = []

    class Recording(Synchronous):
        def run(self, function, indices):  # type: ignore[no-untyped-def]
            ran.extend(indices)
            return super().run(function, indices)

    records = RoundRunner(str(tmp_path), Recording()).run(first)
    assert ran == [1]
    assert [record.counts["words"] for record in records] == [4, 2, 2]


def test_exchange_keeps_row_order_within_a_destination(tmp_path: Path) -> None:
    matrix = np.arange(20, dtype=np.float32).reshape(10, 2)
    table = pa.table({"row": np.arange(10), "x": from_matrix(matrix)})
    destination = np.array([2, 0, 2, 1, 0, 2, 2, 1, 0, 0])
    uri = exchange_file(str(tmp_path), "r", "c", 0)
    write_exchange(uri, Emit("c", table, destination), 4)
    for partition in range(4):
        expected = np.flatnonzero(destination == partition)
        got = read_exchange(uri, partition)
        assert to_numpy(got["row"]).tolist() == expected.tolist()
        assert to_matrix(got["x"]).tolist() == matrix[expected].tolist()


def test_picked_rows_are_sent_as_often_as_they_are_picked(tmp_path: Path) -> None:
    table = pa.concat_tables([pa.table({"row": np.arange(3)}), pa.table({"row": np.arange(3, 5)})])
    picked, destination = np.array([4, 0, 4, 2, 0]), np.array([1, 0, 0, 1, 1])
    uri = exchange_file(str(tmp_path), "r", "c", 0)
    write_exchange(uri, Emit("c", table, destination, picked=picked), 3)
    assert [to_numpy(read_exchange(uri, part)["row"]).tolist() for part in range(3)] == [[0, 4], [4, 2, 0], []]


def test_a_truncated_exchange_file_names_itself(tmp_path: Path) -> None:
    uri = exchange_file(str(tmp_path), "r", "c", 0)
    write_exchange(uri, Emit("c", pa.table({"a": np.arange(1000)}), np.zeros(1000, np.int64)), 1)
    file = tmp_path / "r" / "c" / "00000.arrow"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(StorageError, match=r"00000\.arrow"):
        read_exchange(uri, 0)
