"""What reading ahead gives, in which order, and that a thread which does not come to run keeps none of it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import thread as pool
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnflow.executions.streamed import read_ahead
from gnnflow.train.streamed.files import Scratch


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Threads of pools that tell of a result and then stand still, as one may beside other work, until this is set."""
    go_on, run = threading.Event(), pool._WorkItem.run

    def told_and_stopped(self: pool._WorkItem) -> None:
        set_result = self.future.set_result
        self.future.set_result = lambda result: (set_result(result), go_on.wait())  # type: ignore[method-assign]
        run(self)

    monkeypatch.setattr(pool._WorkItem, "run", told_and_stopped)
    yield go_on
    go_on.set()


def rows() -> torch.Tensor:
    return torch.ones(1000)


def test_what_was_taken_is_gone_once_it_is_dropped(stopped: threading.Event) -> None:
    with read_ahead([rows, rows], number=2) as found:
        first = next(found)
        held = weakref.ref(first)
        del first
        second = next(found)  # it is dropped before this is given
        is_gone = held() is None
        stopped.set()  # or leaving the block would wait
    assert is_gone
    assert len(second) == len(rows())


def test_what_is_written_is_gone_once_it_is_settled(tmp_path: Path, stopped: threading.Event) -> None:
    scratch = Scratch(str(tmp_path))
    file = scratch.rows([10, 10], width=100)
    written = rows()
    held = weakref.ref(written)
    file.write(1, [written])
    del written
    scratch.settle(file)
    is_gone = held() is None
    stopped.set()
    assert is_gone
    assert torch.equal(file.read(1), rows())
    scratch.close()


def test_results_come_in_order_and_an_error_where_its_result_is_taken() -> None:
    def fails() -> int:
        raise ValueError("third")

    for number in (1, 2, 5):
        with read_ahead([lambda: 1, lambda: 2, fails, lambda: 4], number=number) as found:
            assert [next(found), next(found)] == [1, 2]
            with pytest.raises(ValueError, match="third"):
                next(found)


@pytest.mark.parametrize("number", [1, 2, 4])
def test_no_more_are_begun_than_asked_for(number: int) -> None:
    begun: list[int] = []
    with read_ahead([lambda each=each: begun.append(each) or each for each in range(10)], number=number) as found:
        assert next(found) == 0
    assert set(begun) <= set(np.arange(number + 1).tolist())
