"""Pieces fetched in the background come in the order asked for, and what fails is raised where it is taken."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from gnnflow.mapreduce.exchange import Emit, ExchangeError, Inbox, exchange_file, fetching, write_exchange

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TASKS = 6


class SlowInbox(Inbox):
    """Reads early pieces last: each waits until those after it were begun."""

    def read(self, channel: str, *, tasks: Sequence[int] | None = None, partition: int | None = None) -> pa.Table:
        assert tasks is not None
        time.sleep(0.01 * (TASKS - tasks[0]))
        return super().read(channel, tasks=tasks, partition=partition)


def inbox(folder: Path) -> SlowInbox:
    for task in range(TASKS):
        emit = Emit("numbers", pa.table({"number": [task]}), np.zeros(1, np.int64))
        write_exchange(exchange_file(str(folder), "first", "numbers", task), emit, 1)
    return SlowInbox(str(folder), 0, {"numbers": ("first", (1,) * TASKS)})


@pytest.mark.parametrize("ahead", [0, 1, 2, TASKS, 100])
def test_pieces_come_in_the_order_asked_for(tmp_path: Path, ahead: int) -> None:
    wanted = [("numbers", task) for task in (3, 0, 5, 1)]
    with fetching(inbox(tmp_path), wanted, ahead=ahead) as pieces:
        assert [piece["number"].to_pylist() for piece in pieces] == [[3], [0], [5], [1]]


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_piece_that_is_gone_is_raised_where_it_is_taken(tmp_path: Path, ahead: int) -> None:
    held = inbox(tmp_path)
    (tmp_path / "first" / "numbers" / "00001.arrow").unlink()
    with fetching(held, [("numbers", 0), ("numbers", 1)], ahead=ahead) as pieces:
        assert next(pieces)["number"].to_pylist() == [0]
        with pytest.raises(ExchangeError, match="no such file"):
            next(pieces)


def test_leaving_early_drops_the_rest_and_ends_the_threads(tmp_path: Path) -> None:
    before = threading.active_count()
    with fetching(inbox(tmp_path), [("numbers", task) for task in range(TASKS)], ahead=TASKS) as pieces:
        next(pieces)
    for _ in range(100):
        if threading.active_count() == before:
            break
        time.sleep(0.02)
    assert threading.active_count() == before
