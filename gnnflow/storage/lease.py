"""One run does a stage's work; another that wants the same waits for it.

The lease is a file in the stage's work folder that its holder renews. A waiter takes it over when it stops changing, or
at once when its holder was a visible process that is gone, so a killed run never blocks the next. A process is visible
on the same boot of the machine and in the same pid namespace: host names and pids repeat between containers. The holder
of an unreadable lease is unknown, so only time ends it. A lease only saves work: every run of a stage writes the same
bytes, or keeps its attempts apart (`manifest.claim`), so two holders for a moment (a stalled disk, a split network, a
laptop that sleeps) corrupt nothing.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import age_of, join, list_names, read_bytes
from gnnflow.storage.writing import create_exclusive, remove_empty_folder, remove_file, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gnnflow.progress import Progress

LEASE = "lease.json"
_RENEW_SECONDS = 5.0
_EXPIRE_SECONDS = 45.0
_POLL_SECONDS = 0.5
_ABANDONED_SECONDS = 900.0  # by two machines' clocks, which may differ


@dataclass(frozen=True)
class _Holder:
    """The holder of a lease. place: where its pid is unique, "" where that is unknown; born: its start there."""

    owner: str
    place: str
    pid: int
    born: str


@contextmanager
def sole_worker(work: str, *, done: Callable[[], bool], progress: Progress) -> Iterator[bool]:
    """Yield True once this process holds the lease of a work folder, or False when another did the work meanwhile.

    A work folder that holds only the lease at the end of the block is deleted.
    """
    uri = join(work, LEASE)
    owner = uuid.uuid4().hex
    if not _acquire(uri, owner, done, progress):
        yield False
        return
    stop = threading.Event()
    renewer = threading.Thread(target=_renew, args=(uri, owner, stop), daemon=True)
    renewer.start()
    try:
        yield True
    finally:
        stop.set()
        renewer.join()
        # the work is over: if the store does not answer now, the lease expires
        with suppress(OSError, StorageError):
            if _holds(uri, owner):
                _remove_unfinished(work)
                remove_file(uri)
        remove_empty_folder(work)


def _remove_unfinished(work: str) -> None:
    """Delete temporary files of the lease from killed holders. A claimant that loses its file writes it again."""
    for name in list_names(work):
        if LEASE in name and name != LEASE:
            remove_file(join(work, name))


def is_abandoned(work: str) -> bool:
    """Return whether a work folder holds files and nobody works there.

    Nobody then holds the lease, or its holder is gone, or has not renewed it for long.
    """
    if not list_names(work):
        return False
    lease = join(work, LEASE)
    held = _read(lease)
    holder = _holder_of(held)
    if held is None or (holder is not None and _is_gone(holder)):
        return True
    age = age_of(lease)
    return age is not None and age > _ABANDONED_SECONDS


def this_process() -> dict[str, Any]:
    """Return what tells this process from others: a document for `is_holder_gone`."""
    return {**asdict(_Holder("", _place(), os.getpid(), _start_ticks(os.getpid()))), "host": socket.gethostname()}


def is_holder_gone(document: bytes) -> bool:
    """Return whether the process of a document was a visible one and no longer runs."""
    holder = _holder_of(document)
    return holder is not None and _is_gone(holder)


def _acquire(uri: str, owner: str, done: Callable[[], bool], progress: Progress) -> bool:
    seen, changed, announced = None, time.monotonic(), False
    while not create_exclusive(uri, _content(owner, 0)):
        if done():
            return False
        held = _read(uri)
        if held != seen:
            seen, changed = held, time.monotonic()
        holder = _holder_of(held)
        if (holder is not None and _is_gone(holder)) or time.monotonic() - changed > _EXPIRE_SECONDS:
            write_atomic(uri, _content(owner, 0), durable=False)
            time.sleep(_POLL_SECONDS)  # of several that take it over at once, the last to write holds it
            if _holds(uri, owner):
                return True
            continue
        if not announced:
            progress.message("another run is doing this work; waiting for it")
            announced = True
        time.sleep(_POLL_SECONDS)
    return True


def _renew(uri: str, owner: str, stop: threading.Event) -> None:
    count = 0
    while not stop.wait(_RENEW_SECONDS):
        count += 1
        try:
            if not _holds(uri, owner):
                return  # it stalled for so long that another took over
            write_atomic(uri, _content(owner, count), durable=False)
        except (OSError, StorageError):
            continue  # the next renewal may get through; if none does, the lease expires


def _holds(uri: str, owner: str) -> bool:
    holder = _holder_of(_read(uri))
    return holder is not None and holder.owner == owner


def _content(owner: str, count: int) -> bytes:
    return json.dumps({**this_process(), "owner": owner, "count": count}).encode()


def _read(uri: str) -> bytes | None:
    try:
        return read_bytes(uri)
    except StorageError:
        return None  # released just now


def _holder_of(content: bytes | None) -> _Holder | None:
    """Return the holder of a lease; None where the file is not as this version writes it."""
    try:
        held = json.loads(content or b"")
        holder = _Holder(str(held["owner"]), str(held["place"]), int(held["pid"]), str(held["born"]))
    except (ValueError, TypeError, KeyError):
        return None
    return holder if holder.pid > 0 else None


def _is_gone(holder: _Holder) -> bool:
    """Return whether the holder was a visible process and no longer runs."""
    if not holder.place or holder.place != _place():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass  # another user's process, or an invalid pid
    born = _start_ticks(holder.pid)
    return bool(born and holder.born and born != holder.born)


def _place() -> str:
    """Return an id of this boot of the machine and this pid namespace, in which a pid is unique.

    "" where the system does not say, or shows the processes of another namespace.
    """
    proc = Path("/proc")
    try:
        if (proc / "self").readlink() != Path(str(os.getpid())):
            return ""
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(proc / 'self/ns/pid').readlink()}" if boot else ""
    except OSError:
        return ""


def _start_ticks(pid: int) -> str:
    """Return a process's start in kernel ticks; "" where it is not visible."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""
