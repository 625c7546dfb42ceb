"""A forecast of a run's cost from its rehearsals: time, bytes written and memory of each stage.

The cost of a stage on the whole graph lies on the line through the rehearsals: a fixed part, and a part in proportion
to the graph. If the run has more partitions, one more rehearsal, of as many nodes in twice the partitions, gives the
cost of a partition. Memory is bounded by a partition: it lies on the line over the nodes of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gnnflow.ingest.subsample import STEP
from gnnflow.report.formats import bytes_text, count_text, seconds_text
from gnnflow.stages.rehearsal import RUN, Cost, Rehearsal

_GROWS = 1.25  # growth of bytes per node that is worth a warning
_SCATTER = 0.1  # of the seconds of rehearsals, by which they differ from a line at least
_PER_BYTE = 3.0  # bytes of memory for a byte of a partition's files, which a task holds several times over
_PER_SHARD_BYTE = {"flat": 9.0, "train": 9.0}  # bytes of memory for a byte of a shard's file
_KEPT = 24 << 20  # bytes that a process keeps of earlier work, more or less
_SMALL_PART = 16  # ratio of the graph to the largest rehearsal, which multiplies the error of a second


@dataclass(frozen=True)
class StageForecast:
    """The cost of a stage, forecast or, if it is done, measured: seconds, and bytes of its artifact.

    exchanged: bytes that its tasks send each other. disk: the most bytes of its files at the end of a round, those
    between rounds too. memory: bytes of this process. worker_memory: bytes of the largest worker, 0 without workers.
    Both are None for done stages; worker_memory also for workers elsewhere. epochs, epoch_seconds: of a training,
    included in its seconds; it may end earlier. growth: bytes written per node in the largest rehearsal over those in
    the one before; above 1, the figures are lower bounds.
    """

    stage: str
    is_done: bool
    seconds: float
    num_bytes: int
    memory: int | None = None
    worker_memory: int | None = None
    epochs: int = 0
    epoch_seconds: float = 0.0
    growth: float = 1.0
    exchanged: int = 0
    disk: int = 0

    @property
    def most_memory(self) -> int | None:
        """The memory of the largest process that is known."""
        return max((each for each in (self.memory, self.worker_memory) if each is not None), default=None)


@dataclass(frozen=True)
class Forecast:
    """The forecast of a run: its stages in order, the seconds until workers are ready, and its rehearsals.

    uri: of the run's folder. one_in: each rehearsal had one node in so many; rehearsed_seconds: of all rehearsals.
    error_seconds: the standard error of the time (`error_of`).
    budget: a sentence about `train.memory` or a hybrid rank's part, or empty. machine_memory: bytes of this machine;
    memory_limit: bytes that a worker may have, 0 for no limit. scoring: how rows reach the tasks of `infer`.
    """

    uri: str
    num_nodes: int
    num_edges: int
    partitions: int
    stages: tuple[StageForecast, ...]
    startup_seconds: float = 0.0
    one_in: tuple[int, ...] = ()
    rehearsed_seconds: float = 0.0
    error_seconds: float = 0.0
    budget: str = ""
    machine_memory: int = 0
    memory_limit: int = 0
    scoring: str = ""

    @property
    def to_do(self) -> tuple[StageForecast, ...]:
        """The stages that are not done."""
        return tuple(each for each in self.stages if not each.is_done)

    @property
    def seconds(self) -> float:
        """The seconds of the remaining stages."""
        return self.startup_seconds + sum(each.seconds for each in self.to_do)

    @property
    def num_bytes(self) -> int:
        """The bytes that remaining stages write to the workspace, without temporary files between rounds."""
        return sum(each.num_bytes for each in self.to_do)

    @property
    def memory(self) -> int | None:
        """The memory of the largest process of the remaining stages; None if it is not known."""
        return max((each.most_memory for each in self.to_do if each.most_memory is not None), default=None)

    @property
    def disk(self) -> int:
        """The most bytes of the workspace while a stage that remains runs; the tables are not counted.

        At the end of the run there is a copy of the predictions.
        """
        held, most = 0, 0
        for each in self.stages:
            held += each.num_bytes
            if not each.is_done:
                copied = sum(other.num_bytes for other in self.stages[-2:-1]) if each.stage == RUN else 0
                most = max(most, held - each.num_bytes + max(each.disk, each.num_bytes), held + copied)
        return most

    @property
    def warnings(self) -> tuple[str, ...]:
        """Messages about stages that may fail, or cost more than the forecast."""
        found, machine, is_part = [], bytes_text(self.machine_memory), self.one_in[-1:] > (1,)
        for each in self.to_do:
            if self.memory_limit and (each.worker_memory or 0) > self.memory_limit:
                limit = bytes_text(self.memory_limit)
                found.append(f"{each.stage} may take more memory than a worker has ({limit}, cluster.memory_limit)")
            if (each.memory or 0) > self.machine_memory:
                found.append(f"{each.stage} may take more memory than this machine has ({machine})")
            if is_part and each.growth > _GROWS:
                found.append(f"{each.stage} will write more: its bytes grow faster than the graph")
        return tuple(found)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        stages = {each.stage: {k: v for k, v in asdict(each).items() if k != "stage"} for each in self.stages}
        own = {key: value for key, value in asdict(self).items() if key not in ("uri", "stages")}
        totals = {"seconds": self.seconds, "num_bytes": self.num_bytes, "memory": self.memory, "disk": self.disk}
        return {"run": self.uri, **own, **totals, "warnings": self.warnings, "stages": stages}

    def lines(self) -> Iterator[str]:
        """Yield lines of text."""
        yield f"{count_text(self.num_nodes)} nodes, {count_text(self.num_edges)} edges, {self.partitions} partitions"
        yield ""
        yield _row("stage", "state", "time", "writes", "memory")
        for each in self.stages:
            more = f"   {each.epochs} epochs of {seconds_text(each.epoch_seconds)} at most" if each.epochs else ""
            figures = (seconds_text(each.seconds), bytes_text(each.num_bytes), _memory(each.most_memory))
            yield _row(each.stage, "done" if each.is_done else "to do", *figures) + more
        if not self.to_do:
            yield "nothing to do: this run is complete"
            return
        yield _row("", "to do", seconds_text(self.seconds), bytes_text(self.num_bytes), _memory(self.memory))
        yield ""
        exchanged = bytes_text(sum(each.exchanged for each in self.to_do))
        yield f"disk: {bytes_text(self.disk)} of the workspace at most, {exchanged} go from task to task"
        if self.startup_seconds >= 1:
            yield f"time: {seconds_text(self.startup_seconds)} of it until libraries and workers are ready"
        shares = ", ".join("all" if one_in == 1 else f"1/{one_in}" for one_in in self.one_in)
        yield f"rehearsed on {shares} of the nodes in {seconds_text(self.rehearsed_seconds)}"
        yield f"the time may be wrong by {seconds_text(self.error_seconds)}, as far as rehearsals differ"
        if self.one_in[-1] > _SMALL_PART:
            longer = int(10 * np.ceil(STEP * self.rehearsed_seconds / 10))
            yield f"that is a small part of them: --seconds {longer} gives a better forecast"
        if self.scoring:
            yield f"infer: {self.scoring}"
        if self.budget:
            yield self.budget
        yield from (f"warning: {each}" for each in self.warnings)


def _row(stage: str, state: str, seconds: str, num_bytes: str, memory: str) -> str:
    return f"{stage:<12}{state:<8}{seconds:>12}{num_bytes:>12}{memory:>12}"


def _memory(num_bytes: int | None) -> str:
    return "-" if num_bytes is None else bytes_text(num_bytes)


def full_cost(rehearsals: Sequence[Rehearsal], stage: str, *, partitions: int) -> Cost:
    """Return the cost of a stage on all nodes in this number of partitions.

    rehearsals: from small to large, at least two; the last one may have more partitions than the others.
    """
    own = rehearsals[0].partitions
    sizes = [each for each in rehearsals if each.partitions == own]
    more = rehearsals[-1] if rehearsals[-1].partitions != own else None
    last = sizes[-1] if more is None else next(each for each in sizes if each.one_in == more.one_in)
    if stage == RUN:  # a report reads samples, whose sizes have bounds
        return next(each.costs[RUN] for each in sizes if RUN in each.costs)

    def figure(of: Callable[[Cost], float], *, is_exact: bool = False) -> float:
        points = [(1 / each.one_in, of(each.costs[stage])) for each in sizes]
        found = _at(points[-2:] if is_exact else points, 1.0)
        if more is None:
            return found
        grown = of(more.costs[stage]) - of(last.costs[stage])
        return found + max(0.0, grown) / (more.partitions - last.partitions) * (partitions - last.partitions)

    disk = figure(lambda cost: cost.disk, is_exact=True)

    def memory(of: Callable[[Cost], float]) -> int:
        points = [(1 / (each.one_in * each.partitions), of(each.costs[stage])) for each in rehearsals]
        where, expected = 1 / partitions, _PER_BYTE * disk
        return round(_memory_at(points, where, expected=expected) if expected else _at(points, where))

    return Cost(
        figure(lambda cost: cost.seconds),
        round(figure(lambda cost: cost.num_bytes, is_exact=True)),
        memory(lambda cost: cost.memory),
        memory(lambda cost: cost.worker_memory),
        figure(lambda cost: cost.epoch_seconds),
        round(figure(lambda cost: cost.exchanged, is_exact=True)),
        round(disk),
    )


def seconds_at(rehearsals: Sequence[Rehearsal], one_in: int) -> float:
    """Return about how many seconds a larger rehearsal takes."""
    return _at([(1 / each.one_in, each.seconds) for each in rehearsals], 1 / one_in)


def error_of(rehearsals: Sequence[Rehearsal], *, epochs: int) -> float:
    """Return the standard error of the seconds of all stages on the whole graph.

    It is the error of a prediction from the line through the rehearsals, whose scatter about the line is taken to be a
    tenth of their seconds at least, since few points may lie on a line by chance.
    """
    sizes = [each for each in rehearsals if each.partitions == rehearsals[0].partitions]
    share = np.array([1 / each.one_in for each in sizes])
    value = np.array(
        [sum(cost.seconds + epochs * cost.epoch_seconds for cost in each.costs.values()) for each in sizes]
    )
    points = list(zip(share.tolist(), value.tolist(), strict=True))
    apart = value - [_at(points, each) for each in share]
    scatter = max(float(np.sqrt(np.mean(apart**2))), _SCATTER * float(value.mean()))
    spread = share - share.mean()
    return scatter * float(np.sqrt(1 / len(sizes) + (1 - share.mean()) ** 2 / (spread @ spread)))


def growth_of(rehearsals: Sequence[Rehearsal], stage: str) -> float:
    """Return the bytes per node that a stage writes in the largest rehearsal, over those in the one before."""
    if stage == RUN:
        return 1.0
    sizes = [each for each in rehearsals if each.partitions == rehearsals[0].partitions][-2:]
    before, last = (each.costs[stage].num_bytes * each.one_in for each in sizes)
    return last / before if before else 1.0


def shard_memory(rehearsals: Sequence[Rehearsal], stage: str, *, shard_size: int) -> int:
    """Return about the bytes of memory that shards take in a stage, where GraphFlat gives them; 0 in other stages.

    Shards have as many targets in any large graph, so rehearsals, of fewer targets, do not show this.
    """
    flat = rehearsals[-1].costs.get("flat")
    if stage not in _PER_SHARD_BYTE or flat is None or not flat.rows:
        return 0
    targets = min(shard_size, flat.rows * rehearsals[-1].one_in)
    return round(_PER_SHARD_BYTE[stage] * flat.num_bytes / flat.rows * targets)


def _memory_at(points: Sequence[tuple[float, float]], where: float, *, expected: float) -> float:
    """Return the bytes of memory for a share of the graph, on a line through points (share, bytes).

    Its slope is the expected one where points scatter more than they grow, as in small graphs, where a process keeps
    some of what it had: the best estimate of both, for errors of `_KEPT` bytes and of half the expected slope.
    """
    share, value = np.asarray(points, np.float64).T
    spread = share - share.mean()
    weight = (_KEPT / (expected / 2)) ** 2
    slope = float(spread @ (value - value.mean()) + weight * expected) / float(spread @ spread + weight)
    return float(value.mean() + max(slope, 0.0) * (where - share.mean()))


def _at(points: Sequence[tuple[float, float]], where: float) -> float:
    """Return the value somewhere on a least-squares line through points (share, value), with slope and intercept >= 0.

    The points are not weighted: the error of a short stage is as many seconds as of a long one.
    """
    share, value = np.asarray(points, np.float64).T
    spread = share - share.mean()
    slope = max(0.0, float(spread @ (value - value.mean()) / (spread @ spread)))
    if value.mean() < slope * share.mean():
        return where * float(share @ value / (share @ share))
    return float(value.mean() + slope * (where - share.mean()))
