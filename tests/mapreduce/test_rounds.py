"""Rounds, their exchange and their commits, on the synchronous scheduler."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from gnnflow.graph.errors import StorageError
from gnnflow.mapreduce.exchange import Emit, ExchangeError, Inbox, exchange_file, read_exchange, write_exchange
from gnnflow.mapreduce.rounds import Round, RoundRunner, TaskOutput
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.storage.columns import from_matrix, to_matrix, to_numpy
from gnnflow.storage.filesystem import join
from gnnflow.storage.writing import write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable
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


def test_rounds_tell_when_they_ran_how_long_and_how_much_memory_they_took(tmp_path: Path) -> None:
    begin = time.monotonic()
    runner = RoundRunner(str(tmp_path), Synchronous())
    for each in rounds():
        runner.run(each)
    took = time.monotonic() - begin
    first, second = runner.timings
    assert 0 <= first.start <= first.start + first.seconds <= second.start <= second.start + second.seconds <= took
    assert [len(each.task_seconds) for each in (first, second)] == [3, 2]
    assert 2**20 < first.peak_bytes < 2**40


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


def flipped(content: bytes, place: float) -> bytes:
    at = int(place * (len(content) - 1))
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9, 0.97, 0.99, 1])
def test_a_changed_bit_of_an_exchange_file_is_found(tmp_path: Path, place: float) -> None:
    uri = exchange_file(str(tmp_path), "r", "c", 0)
    write_exchange(uri, Emit("c", pa.table({"a": np.arange(1000)}), np.zeros(1000, np.int64)), 1)
    file = tmp_path / "r" / "c" / "00000.arrow"
    file.write_bytes(flipped(file.read_bytes(), place))
    with pytest.raises(ExchangeError, match="checksum") as caught:
        read_exchange(uri, 0)
    assert caught.value.where == uri


def test_an_exchange_file_in_the_place_of_another_is_found(tmp_path: Path) -> None:
    files = [exchange_file(str(tmp_path), "r", "c", task) for task in range(2)]
    for number, uri in enumerate(files):
        write_exchange(uri, Emit("c", pa.table({"a": [number]}), np.zeros(1, np.int64)), 1)
    first = (tmp_path / "r" / "c" / "00000.arrow").read_bytes()
    (tmp_path / "r" / "c" / "00001.arrow").write_bytes(first)
    assert read_exchange(files[0], 0)["a"].to_pylist() == [0]
    with pytest.raises(ExchangeError, match=r"00001\.arrow: is damaged: its index has the checksum"):
        read_exchange(files[1], 0)


class Recording(Synchronous):
    """Notes which tasks ran."""

    def __init__(self) -> None:
        self.ran: list[int] = []

    def run(self, function, indices):  # type: ignore[no-untyped-def]
        self.ran.extend(indices)
        return super().run(function, indices)


def other_keys(content: bytes) -> bytes:
    return json.dumps({"index": 1, "result": []}).encode()


def other_version(content: bytes) -> bytes:
    return content.replace(b'"gnnflow": "', b'"gnnflow": "0.0.')


def one_key_less(content: bytes) -> bytes:
    return json.dumps({key: held for key, held in json.loads(content).items() if key != "counts"}).encode()


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "other keys": other_keys,
    "another version": other_version,
    "a key less": one_key_less,
    "a changed count": lambda content: content.replace(b'"words": 2', b'"words": 3'),
    "truncated": lambda content: content[:40],
    "empty": lambda _: b"",
    "not an object": lambda _: b"[]",
    "not text": lambda _: b"\xff\xfe\x00",
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_task_whose_record_cannot_be_read_runs_again(tmp_path: Path, spoil: str) -> None:
    first, _ = rounds()
    RoundRunner(str(tmp_path), Synchronous()).run(first)
    file = tmp_path / "map" / "00001.json"
    content = SPOILT[spoil](file.read_bytes())
    assert content != file.read_bytes()
    file.write_bytes(content)
    scheduler = Recording()
    records = RoundRunner(str(tmp_path), scheduler).run(first)
    assert scheduler.ran == [1]
    assert [record.counts["words"] for record in records] == [4, 2, 2]


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_bytes(b"other")])
def test_a_task_whose_artifact_file_is_not_there_as_it_says_runs_again(
    tmp_path: Path, spoil: Callable[[Path], Any]
) -> None:
    artifact = tmp_path / "artifact"

    def write(index: int, _: Inbox) -> TaskOutput:
        return TaskOutput(files=(write_atomic(join(str(artifact), f"{index}.bin"), b"whole"),))

    step = Round("write", 3, 1, write)
    RoundRunner(str(tmp_path / "work"), Synchronous(), artifact=str(artifact)).run(step)
    spoil(artifact / "2.bin")
    scheduler = Recording()
    RoundRunner(str(tmp_path / "work"), scheduler, artifact=str(artifact)).run(step)
    assert scheduler.ran == [2]
    assert (artifact / "2.bin").read_bytes() == b"whole"


def test_a_channel_goes_when_no_later_round_reads_it_and_a_restart_does_without(tmp_path: Path) -> None:
    first, second = rounds()
    second = replace(second, reads_last=frozenset({"words"}))
    runner = RoundRunner(str(tmp_path), Synchronous())
    runner.run(first)
    sizes = [each.stat().st_size for each in (tmp_path / "map" / "words").iterdir()]
    assert len(sizes) == 3
    found = [record.counts for record in runner.run(second)]
    assert not (tmp_path / "map" / "words").exists()
    runner.run(Round("after", 1, 1, lambda *_: TaskOutput()))
    assert [each.disk_bytes for each in runner.timings] == [sum(sizes), sum(sizes), 0]
    scheduler = Recording()
    again = RoundRunner(str(tmp_path), scheduler)
    again.run(first)
    assert [record.counts for record in again.run(second)] == found
    assert scheduler.ran == []
    with pytest.raises(AssertionError, match="reads a deleted channel"):
        again.run(replace(second, name="later"))


def test_a_channel_stays_until_every_task_of_its_last_round_is_done(tmp_path: Path) -> None:
    first, second = rounds()

    def killed(index: int, inbox: Inbox) -> TaskOutput:
        if index == 1:
            raise KeyboardInterrupt
        return collect(index, inbox)

    runner = RoundRunner(str(tmp_path), Synchronous())
    runner.run(first)
    with pytest.raises(KeyboardInterrupt):
        runner.run(replace(second, function=killed, reads_last=frozenset({"words"})))
    again = RoundRunner(str(tmp_path), Synchronous())
    again.run(first)
    assert again.run(replace(second, reads_last=frozenset({"words"})))[1].counts["the"] == 3
