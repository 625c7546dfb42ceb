"""A Dask cluster without workers is waited for, and then told of."""

from __future__ import annotations

import time
from itertools import chain, repeat
from typing import Any

import pytest

from gnnflow.graph.errors import ClusterError
from gnnflow.mapreduce import schedulers
from gnnflow.mapreduce.schedulers import Dask


class Done:
    """A task's future."""

    def result(self) -> int:
        return 7


class Client:
    """A client whose scheduler says, look by look, how many workers it has. Tasks end once it has one."""

    def __init__(self, *workers: int) -> None:
        self.said = chain(workers, repeat(workers[-1]))
        self.has_workers = False

    def map(self, *_: Any, **__: Any) -> list[Done]:
        return [Done()]

    def scheduler_info(self) -> dict[str, Any]:
        self.has_workers = next(self.said) > 0
        return {"workers": dict.fromkeys(range(self.has_workers))}

    def cancel(self, *_: Any, **__: Any) -> None:
        """Nothing runs."""


def results(client: Client, monkeypatch: pytest.MonkeyPatch, *, look_seconds: float) -> tuple[list[int], list[str]]:
    """Return a task's results and what is said meanwhile. look_seconds: how long each look takes by the clock."""
    now, said = [0.0], list[str]()

    def ended(waiting: set[Done]) -> list[Done]:
        now[0] += look_seconds
        return list(waiting) if client.has_workers else []

    monkeypatch.setattr(schedulers, "_ended", ended)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return list(Dask(client, say=said.append).run(abs, [0])), said  # type: ignore[arg-type]


def test_a_pause_is_no_time_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a long one the scheduler starts all workers again, since none of them was heard meanwhile."""
    found, said = results(Client(0, 1), monkeypatch, look_seconds=3600.0)
    assert found == [7]
    assert said == ["the Dask cluster has no workers; 1 tasks wait for one"]


def test_two_minutes_without_workers_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterError, match="has had no workers for 120 s, with 1 tasks waiting"):
        results(Client(0), monkeypatch, look_seconds=15.0)
    assert results(Client(*[0] * 7, 1), monkeypatch, look_seconds=15.0)[0] == [7]
