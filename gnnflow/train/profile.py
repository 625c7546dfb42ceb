"""Measures where the seconds of an epoch go: whether the reader waits for the trainer, or the other way round.

Two sides work at the same time: the reader makes batches ready, the trainer computes on them. Each measures its own
parts with a `Stopwatch`, around batches and never around single operations: twelve readings of the clock per step. What
is measured decides no result, and is in no fingerprint and no file that is compared.

A profile is a row of figures: `<part>_seconds`, of the parts that `gnnflow.graph.run_facts` names, and `seconds`, of
the whole epoch. Of global-batch training it has the stages of the layers too (`gnnflow.executions.stages`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import NamedTuple

from gnnflow.graph.run_facts import READER_PARTS, READER_WAIT, STAGE_PARTS, TRAINER_PARTS, has_reader, has_stages
from gnnflow.train.state import Row


class Stopwatch:
    """Seconds by part of one thread's work; threads may use it one after the other."""

    def __init__(self) -> None:
        self._spent: dict[str, int] = {}
        self._at = 0

    def start(self) -> None:
        """Begin to measure now."""
        self._at = perf_counter_ns()

    def lap(self, part: str) -> None:
        """Count the time since the start, or since the last lap, to a part."""
        now = perf_counter_ns()
        self._spent[part] = self._spent.get(part, 0) + now - self._at
        self._at = now

    def seconds(self) -> Row:
        """Return the seconds of each part so far, also while another thread measures."""
        return {f"{part}_seconds": spent / 1e9 for part, spent in self._spent.copy().items()}


def added(*rows: Mapping[str, float]) -> Row:
    """Return the sum of rows, key by key."""
    return {key: sum(row.get(key, 0.0) for row in rows) for key in dict.fromkeys(key for row in rows for key in row)}


def since(now: Mapping[str, float], before: Mapping[str, float]) -> Row:
    """Return `now` minus `before`, figure by figure."""
    return {key: now.get(key, 0.0) - before.get(key, 0.0) for key in {**before, **now}}


def profile_of(spent: Mapping[str, float], *, seconds: float) -> Row:
    """Return an epoch's profile from the seconds of its parts: the rest of the reader's time is its waiting.

    If no batch was made ready, as with a graph that is one batch, no reader waits.
    """
    busy = sum(spent.get(f"{part}_seconds", 0.0) for part in READER_PARTS)
    waited = {f"{READER_WAIT}_seconds": max(0.0, seconds - busy)} if has_reader(spent) else {}
    return {"seconds": seconds, **spent, **waited}


def mean_profile(history: Sequence[Mapping[str, float]]) -> Row:
    """Return the mean profile of the epochs after the first, which also checks files; of that where it is alone."""
    rows = history[1:] or history
    parts = [f"{part}_seconds" for part in (*TRAINER_PARTS, *STAGE_PARTS, *READER_PARTS, READER_WAIT)]
    found = {key: sum(row.get(key, 0.0) for row in rows) / len(rows) for key in ("seconds", *parts)}
    return {key: value for key, value in found.items() if value > 0 or key == "seconds"}


class Wait(NamedTuple):
    """The side that waits longer, `reader` or `trainer`, or `rank` for rows of others, and its share of the time."""

    side: str
    share: float


def longer_wait(profile: Mapping[str, float]) -> Wait | None:
    """Return the longer wait; None without a reader, unless ranks compute layers together."""
    if has_stages(profile):
        return Wait("rank", min(1.0, profile.get("mirrors_seconds", 0.0) / max(profile["seconds"], 1e-9)))
    if not has_reader(profile):
        return None
    waits = {side: profile.get(f"{key}_seconds", 0.0) for side, key in (("trainer", "wait"), ("reader", READER_WAIT))}
    side = max(waits, key=lambda name: waits[name])
    return Wait(side, min(1.0, waits[side] / max(profile["seconds"], 1e-9)))
