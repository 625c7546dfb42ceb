"""Resources a test may leave behind: descriptors, threads, processes, shared memory, files, variables."""

from __future__ import annotations

import gc
import os
import re
import tempfile
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path

_SECONDS = 10  # until a thread or a process that is ending has ended; only a leak takes them
_EVERY = 0.01
_COLLECT_EVERY = 0.25
_SHARED = Path("/dev/shm")
# One a process, started when it is first needed and never ended: fsspec's event loop, the threads of its libraries.
_LASTING_THREADS = ("fsspecIO", "Dask-Offload", "Profile", "asyncio_", "AsyncProcess", "pymp-", "QueueFeeder")
# The tracker of named semaphores and the server that forks processes: one a process, both end with it.
_LASTING_PROCESSES = (b"resource_tracker", b"forkserver")
# Set when a library is first used: by pytest, OpenMP, torch's compiler, Dask's workers, Polars' allocator, matplotlib
# where HOME cannot be written to and, as our docs say, for MLflow's client.
_LASTING_VARIABLES = (
    "PYTEST_",
    "KMP_",
    "TORCHINDUCTOR_",
    "__DASK_PARENT_PID",
    "MLFLOW_HTTP_",
    "MLFLOW_SUPPRESS_",
    "MPLCONFIGDIR",
    "_RJEM_MALLOC_CONF",
)
# Written or opened once by a library: PyG's functions and their bytecode, what torch compiles, matplotlib's fonts and
# folder, and archives on Python's path, which stay open for those who look for packages. Dask keeps the folder of its
# workers, and multiprocessing that of its server's socket.
_LASTING_FILES = re.compile(
    r"_propagate_|_edge_updater_|torchinductor_|/mpl-data/|\.ttf$|\.zip$|^dask-scratch-space$|^__pycache__$|^pymp-|^matplotlib-"
)


SHARED: list[str] = []
"""Clusters that outlive a test: while there is one, its connections, threads and workers come and go by themselves."""
OF_CLUSTERS = ("descriptors", "threads", "processes", "variables", "shared_memory")


@dataclass(frozen=True)
class Held:
    """Resources that this process holds, by name."""

    descriptors: frozenset[str]
    threads: frozenset[str]
    processes: frozenset[str]
    shared_memory: frozenset[str]
    temporary_files: frozenset[str]
    variables: frozenset[str]
    folder: frozenset[str]

    def more_than(self, before: Held) -> dict[str, list[str]]:
        """Return, by kind, the resources that were not held before, or were and are not now where that is a change."""
        found = {}
        for field in fields(self):
            now, then = getattr(self, field.name), getattr(before, field.name)
            more = set(now - then)
            if field.name == "variables":
                more |= {f"{each} before" for each in then - now}
            if field.name == "processes":  # by their numbers: one that starts has no command for a moment
                numbers = {each.partition(" ")[0] for each in then}
                more = {each for each in more if each.partition(" ")[0] not in numbers}
            if more:
                found[field.name] = sorted(more)
        return found


def held() -> Held:
    """List the resources of this process."""
    children = _children()
    return Held(
        descriptors=frozenset(_descriptors()),
        threads=frozenset(
            f"{each.name} {each.ident}" for each in threading.enumerate() if not each.name.startswith(_LASTING_THREADS)
        ),
        processes=frozenset(f"{number} {command}" for number, command in children.items()),
        shared_memory=frozenset(_listed(_SHARED)),
        temporary_files=frozenset(
            name for name in _listed(Path(tempfile.gettempdir())) if not _LASTING_FILES.search(name)
        ),
        variables=frozenset(
            f"{name}={value}" for name, value in os.environ.items() if not name.startswith(_LASTING_VARIABLES)
        ),
        folder=frozenset([str(Path.cwd())]),
    )


def left_behind(before: Held, *, beside: Collection[str] = ()) -> dict[str, list[str]]:
    """Return the resources held beyond `before`, once threads and processes that are ending had time to.

    beside: kinds that are not compared.
    """
    if not _more(before, beside):
        return {}
    deadline, collects = time.monotonic() + _SECONDS, 0.0
    while (found := _more(before, beside)) and time.monotonic() < deadline:
        if time.monotonic() > collects:
            # what only an error's traceback holds, also that of a thread which has just ended; Python warns of files
            # that end so, which fails the test
            gc.collect()
            collects = time.monotonic() + _COLLECT_EVERY
        time.sleep(_EVERY)
    return found


def _more(before: Held, beside: Collection[str]) -> dict[str, list[str]]:
    found = {kind: names for kind, names in held().more_than(before).items() if kind not in beside}
    if "shared_memory" in found:
        found["shared_memory"] = _own_memory(found["shared_memory"])
    return {kind: names for kind, names in found.items() if names}


def _own_memory(names: Collection[str]) -> list[str]:
    """Return the names that this process may have left: all processes of a machine share their folder.

    A killed process leaves the names of its semaphores, so one counts where this process maps it. Other memory counts
    unless another user owns it, or another process maps it: one of other tests, or one that is told of itself.
    """
    own, others, found = _mapped("self"), set[int](), []
    if any(not name.startswith("sem.") for name in names):
        for process in Path("/proc").glob("[0-9]*"):
            others |= _mapped(process.name) if process.name != str(os.getpid()) else set()
    for name in names:
        try:
            memory = (_SHARED / name).stat()
        except FileNotFoundError:
            continue
        is_own = memory.st_uid == os.getuid() and memory.st_ino not in others
        if memory.st_ino in own if name.startswith("sem.") else is_own:
            found.append(name)
    return found


def _mapped(process: str) -> set[int]:
    """Return the inodes of the shared memory that a process maps, since a semaphore is mapped under another name."""
    try:
        text = Path(f"/proc/{process}/maps").read_text(errors="replace")
    except OSError:  # it has ended, or is another user's
        return set()
    return {int(inode) for inode in re.findall(rf" (\d+) +{_SHARED}/", text)}


def _descriptors() -> list[str]:
    """Name each open descriptor by its number and what it leads to.

    Pipes are left out: pyarrow and torch open theirs anew after a fork, and Python itself warns of one left open.
    """
    found = []
    for opened in Path("/proc/self/fd").iterdir():
        try:
            target = str(opened.readlink())
        except FileNotFoundError:  # that of the listing itself
            continue
        if not target.startswith("pipe:") and not _LASTING_FILES.search(target):
            found.append(f"{opened.name} {target}")
    return found


def _children() -> dict[int, str]:
    """Return the command of each process that this one started and that still runs."""
    found = {}
    for listed in Path("/proc/self/task").glob("*/children"):
        try:
            numbers = listed.read_text().split()
        except OSError:  # a thread that has ended
            continue
        for number in numbers:
            try:
                command = Path(f"/proc/{number}/cmdline").read_bytes()
                state = Path(f"/proc/{number}/stat").read_text(errors="replace").rpartition(") ")[2][0]
            except OSError:  # it has ended
                continue
            # Of one that ended and was not waited for there is no command, and of one that starts there is none yet.
            if state != "Z" and not any(each in command for each in _LASTING_PROCESSES):
                found[int(number)] = command.replace(b"\0", b" ").decode(errors="replace")[:120] or "(starting)"
    return found


def _listed(folder: Path) -> list[str]:
    try:
        return [each.name for each in folder.iterdir()]
    except FileNotFoundError:
        return []
