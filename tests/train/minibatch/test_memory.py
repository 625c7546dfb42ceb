"""What is kept in memory: never more than the budget, never fewer shards than are open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from gnnflow.train.minibatch.memory import Memory, array_bytes


@dataclass(frozen=True)
class Part:
    name: str
    values: np.ndarray


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    more: np.ndarray | None


@dataclass(frozen=True)
class Entry:
    name: str
    num_bytes: int = 80


class Reads:
    """Counts what is read; every shard takes 80 bytes."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, entry: Entry) -> Part:
        self.names.append(entry.name)
        return Part(entry.name, np.zeros(10))


def ask(memory: Memory, reads: Reads, names: str) -> None:
    for name in names:
        memory.shard(Entry(name), reads)  # type: ignore[arg-type]


def test_bytes_of_nested_arrays() -> None:
    assert array_bytes(Whole((Part("a", np.zeros(3)), Part("b", np.zeros(3))), None)) == 48
    assert array_bytes(Whole((), np.zeros(1, np.int32))) == 4


def test_memory_that_arrays_and_tensors_share_counts_once() -> None:
    part = Part("a", np.zeros(3))
    assert array_bytes((part, part, {"view": torch.from_numpy(part.values)[:2]})) == 24


def test_the_least_recently_used_shard_leaves() -> None:
    memory, reads = Memory(160, open_shards=1), Reads()
    ask(memory, reads, "abacab")
    assert "".join(reads.names) == "abcb"
    assert memory.num_bytes == 160


def test_no_budget_still_holds_the_open_shards() -> None:
    memory, reads = Memory(0, open_shards=2), Reads()
    ask(memory, reads, "abababcdcd")
    assert "".join(reads.names) == "abcd"


def test_batches_stay_and_take_at_most_half() -> None:
    memory = Memory(400, open_shards=1)
    batch = Part("", np.zeros(10))
    for key in ("a", "b", "c", ""):
        memory.keep(key, batch)  # type: ignore[arg-type]
    assert [memory.batch(key) is not None for key in ("a", "b", "c", "")] == [True, True, False, False]


def test_batches_push_shards_out() -> None:
    memory, reads = Memory(320, open_shards=1), Reads()
    ask(memory, reads, "abcd")
    memory.keep("x", Part("", np.zeros(20)))  # type: ignore[arg-type]
    assert memory.num_bytes == 320
    ask(memory, reads, "dcab")
    assert "".join(reads.names) == "abcdab"


def test_room_is_made_before_a_shard_is_read() -> None:
    for budget in (0, 240):
        memory: Memory[Part, Part] = Memory(budget, open_shards=3)
        held = []

        def read(entry: Entry, memory: Memory[Part, Part] = memory, saw: Callable[[int], None] = held.append) -> Part:
            saw(memory.num_bytes)
            return Part(entry.name, np.zeros(10))

        for name in "abcdefg":
            memory.shard(Entry(name), read)  # type: ignore[arg-type]
        assert max(held) == 160, "with the one being read there are as many as before"
        assert memory.num_bytes == 240
