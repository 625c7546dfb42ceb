"""One round: a function over partitions, whose output is rows for partitions of later rounds, files, and counts.

A task reads its inbox, computes, writes its exchange files and artifact files, and last a small record: its commit. A
round that runs again skips the tasks with a record, so a lost worker costs only its tasks and a killed driver costs the
running tasks. A record that cannot be read, or whose artifact files differ, does not count: its task runs again. Rows
that no later round reads are deleted once the last round that reads them is complete. Tasks are pure functions of their
index and inbox: running one twice writes the same bytes.
(The programming model is MapReduce's, Dean and Ghemawat, OSDI 2004; reduce and the next map share a task.)
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnflow import __version__
from gnnflow.graph.errors import StorageError
from gnnflow.mapreduce.exchange import Emit, ExchangeWriter, Inbox, channel_folder
from gnnflow.mapreduce.mapped import ArrayWriter, Kept, this_boot
from gnnflow.progress import Silent
from gnnflow.storage.documents import read_document, write_document
from gnnflow.storage.filesystem import join, list_names
from gnnflow.storage.verified import entries_of, is_whole
from gnnflow.storage.writing import FileEntry, remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from gnnflow.mapreduce.schedulers import Scheduler
    from gnnflow.progress import Progress

_KIB = 1024
_VERSION = "gnnflow"


@dataclass(frozen=True)
class TaskOutput:
    """The output of a task: rows to send or keep, files it committed below the artifact, small JSON-ready counts.

    coming: more rows to send or keep, computed one by one while earlier ones are written. It may return an output whose
    files and counts are added.
    """

    emits: tuple[Emit | Kept, ...] = ()
    coming: Generator[Emit | Kept, None, TaskOutput | None] | None = None
    files: tuple[FileEntry, ...] = ()
    counts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Round:
    """num_tasks runs of `function(index, inbox)`; emitted rows go to num_destinations partitions.

    reads maps each channel that the tasks read to the round that emitted it. reads_last: the channels that no later
    round reads; their files are deleted once every task of this round is done. keeps: whether tasks keep arrays.
    """

    name: str
    num_tasks: int
    num_destinations: int
    function: Callable[[int, Inbox], TaskOutput]
    reads: dict[str, str] = field(default_factory=dict)
    reads_last: frozenset[str] = frozenset()
    keeps: bool = False


@dataclass(frozen=True)
class TaskRecord:
    """A task's commit. peak_bytes is the largest resident size of the process that ran it, so far.

    sent: the number of files for each channel, and exchanged their bytes. boot: of the machine, where the task keeps
    arrays there.
    """

    index: int
    files: tuple[FileEntry, ...]
    counts: dict[str, Any]
    seconds: float
    peak_bytes: int
    exchanged: dict[str, int]
    sent: dict[str, int]
    boot: str = ""


@dataclass(frozen=True)
class RoundTiming:
    """The start of a round, in seconds since the runner's work began, and its duration.

    exchanged_bytes: sent by its tasks; peak_bytes: the largest resident size of a process that ran one; task_seconds:
    the duration of each task, in their order. disk_bytes: of the stage's files at its end, those between rounds too.
    """

    name: str
    start: float
    seconds: float
    tasks: int
    exchanged_bytes: int
    peak_bytes: int
    task_seconds: tuple[float, ...] = ()
    disk_bytes: int = 0


class RoundRunner:
    """Runs the rounds of one stage in its work folder, and resumes an earlier attempt.

    artifact: where the tasks commit files, which are checked where an earlier attempt wrote them; "" checks none.
    earlier: the seconds that earlier attempts took; `started`: the begin of the work as if there had been no break.
    remarks: about the way the work was done, which the manifest keeps with the seconds.
    """

    def __init__(
        self,
        work: str,
        scheduler: Scheduler,
        progress: Progress | None = None,
        *,
        artifact: str = "",
        earlier: float = 0.0,
    ) -> None:
        self.work = work
        self.artifact = artifact
        self.scheduler = scheduler
        self.progress: Progress = progress or Silent()
        self.timings: list[RoundTiming] = []
        self.remarks: dict[str, str] = {}
        self._sent: dict[str, list[dict[str, int]]] = {}
        # bytes of the files of each round's channels, and of those below the artifact
        self._held: Counter[tuple[str, str]] = Counter()
        self._committed_bytes = 0
        self._forgotten: set[tuple[str, str]] = set()
        self.earlier = earlier
        self.started = time.monotonic() - earlier

    def run(self, step: Round) -> list[TaskRecord]:
        """Run a round's missing tasks and return all records in task order."""
        begin = time.monotonic()
        assert self._forgotten.isdisjoint(step.reads.items()), f"round {step.name} reads a deleted channel"
        assert step.reads_last <= step.reads.keys(), f"round {step.name} ends channels that it does not read"
        channels = {
            channel: (name, tuple(sent.get(channel, 0) for sent in self._sent[name]))
            for channel, name in step.reads.items()
        }
        records = self._committed(step)
        missing = [index for index in range(step.num_tasks) if index not in records]
        self.progress.round_started(step.name, step.num_tasks, len(records))
        run_one = partial(run_task, step=step, work=self.work, channels=channels)
        for record in self.scheduler.run(run_one, missing):
            records[record.index] = record
            self.progress.task_finished(step.name, record.index, record.counts)
        ordered = [records[index] for index in range(step.num_tasks)]
        self._sent[step.name] = [record.sent for record in ordered]
        disk = self._count(step, ordered)
        self._forget(step)
        self._time(step, begin, ordered, disk=disk)
        return ordered

    def _committed(self, step: Round) -> dict[int, TaskRecord]:
        """Return the records of an earlier attempt by task."""
        names = [name for name in list_names(join(self.work, step.name)) if name.endswith(".json")]
        found = (_read_record(join(self.work, step.name, name)) for name in names)
        return {record.index: record for record in found if record is not None and self._stands(record, step)}

    def _stands(self, record: TaskRecord, step: Round) -> bool:
        """Return whether a record belongs to a task of this round, and its artifact files are whole.

        Arrays that a task kept are not synced: they do not outlast the machine's next start. A task that sent rows is
        no task of a round that keeps them.
        """
        if record.boot != (this_boot() if step.keeps else ""):
            return False
        whole = not self.artifact or all(is_whole(self.artifact, entry) for entry in record.files)
        return whole and record.index < step.num_tasks

    def _forget(self, step: Round) -> None:
        """Delete the channels that no later round reads."""
        for channel in sorted(step.reads_last):
            remove_tree(channel_folder(self.work, step.reads[channel], channel))
            self._forgotten.add((channel, step.reads[channel]))
            del self._held[step.reads[channel], channel]

    def _count(self, step: Round, records: Sequence[TaskRecord]) -> int:
        """Count a round's files, and return the bytes of all that the stage has now."""
        for record in records:
            self._held.update({(step.name, channel): size for channel, size in record.exchanged.items()})
            self._committed_bytes += sum(entry.size for entry in record.files)
        return sum(self._held.values()) + self._committed_bytes

    def _time(self, step: Round, begin: float, records: Sequence[TaskRecord], *, disk: int) -> None:
        seconds = time.monotonic() - begin
        sent = sum(sum(record.exchanged.values()) for record in records)
        peak = max((record.peak_bytes for record in records), default=0)
        of_tasks = tuple(round(record.seconds, 6) for record in records)
        start = begin - self.started
        self.timings.append(RoundTiming(step.name, start, seconds, step.num_tasks, sent, peak, of_tasks, disk))
        self.progress.round_finished(step.name, seconds)


def run_task(index: int, *, step: Round, work: str, channels: dict[str, tuple[str, tuple[int, ...]]]) -> TaskRecord:
    """Run one task and commit it, on a worker. It needs only its arguments and the workspace."""
    begin = time.monotonic()
    output = step.function(index, Inbox(work, index, channels))
    with ArrayWriter(join(work, step.name), index) as kept:
        writer = ExchangeWriter(work, step.name, index, step.num_destinations, kept=kept)
        for emit in output.emits:
            writer.write(emit)
        if output.coming is not None:
            output = _written(output, output.coming, writer)
    record = TaskRecord(
        index=index,
        files=output.files,
        counts=output.counts,
        seconds=time.monotonic() - begin,
        peak_bytes=peak_bytes(),
        exchanged=dict(writer.num_bytes + kept.num_bytes),
        sent=dict(writer.files + kept.arrays),
        boot=this_boot() if step.keeps else "",
    )
    # not synced: after a power failure a task without its record or files runs again
    document = {**vars(record), "files": [asdict(each) for each in record.files], _VERSION: __version__}
    write_document(join(work, step.name, f"{index:05d}.json"), document, durable=False)
    return record


def _written(
    output: TaskOutput, coming: Generator[Emit | Kept, None, TaskOutput | None], writer: ExchangeWriter
) -> TaskOutput:
    """Write the rows to come, and return the output with what their generator returns."""
    returned: list[TaskOutput | None] = []

    def noted() -> Generator[Emit | Kept]:
        returned.append((yield from coming))

    writer.write_behind(noted())
    last = returned[0] or TaskOutput()
    return replace(output, files=(*output.files, *last.files), counts={**output.counts, **last.counts})


def drained(coming: Generator[Emit, None, TaskOutput]) -> tuple[list[Emit], TaskOutput]:
    """Return all rows that a generator would send, and what it returns, for a task that works on with them."""
    returned: list[TaskOutput] = []

    def noted() -> Generator[Emit]:
        returned.append((yield from coming))

    return list(noted()), returned[0]


def _read_record(uri: str) -> TaskRecord | None:
    """Return a task's record; None where it is damaged, or of another version of gnnflow."""
    try:
        content = read_document(uri, fix="")
        if content.pop(_VERSION) != __version__:
            return None
        files = entries_of(content["files"], where=uri, fix="")
        record = TaskRecord(**{**content, "files": files})
        return record if uri.endswith(f"/{record.index:05d}.json") else None
    except (StorageError, TypeError, KeyError, ValueError):
        return None


def peak_bytes() -> int:
    """Return the largest resident size of this process. getrusage would include its parent's."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
    return next(int(line.split()[1]) * _KIB for line in lines if line.startswith("VmHWM:"))
