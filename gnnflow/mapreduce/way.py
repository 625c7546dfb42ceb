"""The way of rows to the tasks that read them: mapped where they lie, or sent in exchange files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from gnnflow.storage.filesystem import is_local

if TYPE_CHECKING:
    from gnnflow.mapreduce.rounds import RoundRunner

MAPPED_SHARES = 2
"""Rows are mapped where all of them take at most one of so many shares of the machine's memory."""
_CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True)
class Way:
    """The way on which rows reach the tasks that read them, and the reason."""

    mapped: bool
    why: str

    @property
    def text(self) -> str:
        """The way and its reason as half a sentence."""
        how = "are read where they lie" if self.mapped else "come in files that their owners send"
        return f"rows of other partitions {how}: {self.why}"


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container that this process runs in."""
    limits = [int(psutil.virtual_memory().total)]
    for file in _CONTAINER:
        try:
            limits.append(int(file.read_text()))
        except (OSError, ValueError):  # there is none, or it is "max"
            continue
    return min(limits)


def way_of(*, on_this_machine: bool, local_files: bool, mapped_bytes: int = 0) -> Way:
    """Choose the way of rows: tasks map each other's files where all run on one machine and the files lie there.

    mapped_bytes: of the rows of all nodes that are there at once. All workers share them in the system's cache, and
    they are no part of a worker's memory (`local_cluster.py`); but rows that the cache cannot hold would be read from
    the disk again and again.
    """
    if not on_this_machine:
        return Way(mapped=False, why="tasks may run on other machines")
    if not local_files:
        return Way(mapped=False, why="the workspace does not lie on this machine's disk")
    if mapped_bytes * MAPPED_SHARES > (memory := machine_memory()):
        mib, of = mapped_bytes / 2**20, memory / 2**20
        why = f"the rows of all nodes, {mib:,.0f} MiB, would take more than half of this machine's {of:,.0f} MiB"
        return Way(mapped=False, why=why)
    return Way(mapped=True, why="all tasks run on this machine, where the workspace lies")


def way_in(runner: RoundRunner, *, mapped_bytes: int, asked: bool | None) -> Way:
    """Return the way of rows in a stage's rounds. asked: whether they are mapped, to compare; None chooses."""
    if asked is not None:
        return Way(asked, "to compare")
    here, local = runner.scheduler.on_this_machine, is_local(runner.work)
    return way_of(on_this_machine=here, local_files=local, mapped_bytes=mapped_bytes)
