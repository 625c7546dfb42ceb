"""One round: a function over partitions, whose output is rows for partitions of later rounds, files, and counts.

A task reads its inbox, computes, writes its exchange files and artifact files, and last a small record: its commit. A
round that is run again skips the tasks whose record exists, so a lost worker costs its own tasks and a killed driver
costs the tasks in flight. Tasks are pure functions of their index and inbox: running one twice writes the same bytes.
(The programming model is MapReduce's, Dean and Ghemawat, OSDI 2004; reduce and the next map share a task.)
"""

from __future__ import annotations

import resource
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnflow.mapreduce.exchange import Emit, Inbox, exchange_file, write_exchange
from gnnflow.progress import Silent
from gnnflow.storage.filesystem import FileEntry, join, list_names, read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gnnflow.mapreduce.schedulers import Scheduler
    from gnnflow.progress import Progress

_KIB = 1024


@dataclass(frozen=True)
class TaskOutput:
    """What a task made: rows to send, files it committed below the artifact, and small JSON-ready counts."""

    emits: tuple[Emit, ...] = ()
    files: tuple[FileEntry, ...] = ()
    counts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Round:
    """num_tasks runs of `function(index, inbox)`; emitted rows go to num_destinations partitions.

    reads maps each channel the tasks read to the round that emitted it.
    """

    name: str
    num_tasks: int
    num_destinations: int
    function: Callable[[int, Inbox], TaskOutput]
    reads: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskRecord:
    """A task's commit. peak_bytes is the largest resident size of the process that ran it, so far."""

    index: int
    files: tuple[FileEntry, ...]
    counts: dict[str, Any]
    seconds: float
    peak_bytes: int
    exchanged_bytes: int


@dataclass(frozen=True)
class RoundTiming:
    """When a round ran, in seconds since the runner started, and how long.

    exchanged_bytes is what its tasks sent, peak_bytes the largest resident size of a process that ran one.
    """

    name: str
    start: float
    seconds: float
    tasks: int
    exchanged_bytes: int
    peak_bytes: int


class RoundRunner:
    """Runs the rounds of one stage in its work folder, resuming what an earlier attempt left."""

    def __init__(self, work: str, scheduler: Scheduler, progress: Progress | None = None) -> None:
        self.work = work
        self.scheduler = scheduler
        self.progress: Progress = progress or Silent()
        self.timings: list[RoundTiming] = []
        self._tasks: dict[str, int] = {}
        self.started = time.monotonic()

    def run(self, step: Round) -> list[TaskRecord]:
        """Run a round's missing tasks and return all records in task order."""
        begin = time.monotonic()
        channels = {channel: (name, self._tasks[name]) for channel, name in step.reads.items()}
        records = self._committed(step)
        missing = [index for index in range(step.num_tasks) if index not in records]
        self.progress.round_started(step.name, step.num_tasks, len(records))
        run_one = partial(run_task, step=step, work=self.work, channels=channels)
        for record in self.scheduler.run(run_one, missing):
            records[record.index] = record
            self.progress.task_finished(step.name, record.index, record.counts)
        self._tasks[step.name] = step.num_tasks
        ordered = [records[index] for index in range(step.num_tasks)]
        self._time(step, begin, ordered)
        return ordered

    def _committed(self, step: Round) -> dict[int, TaskRecord]:
        names = [name for name in list_names(join(self.work, step.name)) if name.endswith(".json")]
        contents = [read_json(join(self.work, step.name, name)) for name in names]
        files = [tuple(FileEntry(**entry) for entry in content["files"]) for content in contents]
        return {
            content["index"]: TaskRecord(**{**content, "files": held})
            for content, held in zip(contents, files, strict=True)
        }

    def _time(self, step: Round, begin: float, records: Sequence[TaskRecord]) -> None:
        seconds = time.monotonic() - begin
        sent = sum(record.exchanged_bytes for record in records)
        peak = max((record.peak_bytes for record in records), default=0)
        self.timings.append(RoundTiming(step.name, begin - self.started, seconds, step.num_tasks, sent, peak))
        self.progress.round_finished(step.name, seconds)


def run_task(index: int, *, step: Round, work: str, channels: dict[str, tuple[str, int]]) -> TaskRecord:
    """Run one task and commit it. Runs on a worker; all it needs is in its arguments and the workspace."""
    begin = time.monotonic()
    output = step.function(index, Inbox(work, index, channels))
    sent = 0
    for emit in output.emits:
        sent += write_exchange(exchange_file(work, step.name, emit.channel, index), emit, step.num_destinations)
    record = TaskRecord(
        index=index,
        files=output.files,
        counts=output.counts,
        seconds=time.monotonic() - begin,
        peak_bytes=_peak_bytes(),
        exchanged_bytes=sent,
    )
    write_json(join(work, step.name, f"{index:05d}.json"), asdict(record))
    return record


def _peak_bytes() -> int:
    """Return the largest resident size of this process. getrusage would count that of the process that started it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
    return next(int(line.split()[1]) * _KIB for line in lines if line.startswith("VmHWM:"))
