"""One run does a stage's work; another that wants the same waits for it.

The lease is a file in the stage's work folder that its holder renews. A waiter takes it over when it stops changing, or
at once when its holder was a process of this host that is gone, so a killed run never blocks the next. A lease only
saves work: stages write the same bytes whoever runs them, so two holders for a moment (a stalled disk, a split network)
corrupt nothing.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import create_exclusive, join, read_bytes, remove_file, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gnnflow.progress import Progress

_RENEW_SECONDS = 5.0
_EXPIRE_SECONDS = 45.0
_POLL_SECONDS = 0.5


@contextmanager
def sole_worker(work: str, *, done: Callable[[], bool], progress: Progress) -> Iterator[bool]:
    """Yield True once this process holds the lease of a work folder, or False when the work got done meanwhile."""
    uri = join(work, "lease.json")
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
        remove_file(uri)


def _acquire(uri: str, owner: str, done: Callable[[], bool], progress: Progress) -> bool:
    seen, changed, announced = None, time.monotonic(), False
    while not create_exclusive(uri, _content(owner, 0)):
        if done():
            return False
        held = _read(uri)
        if held != seen:
            seen, changed = held, time.monotonic()
        if held is not None and _is_gone(held):
            break
        if time.monotonic() - changed > _EXPIRE_SECONDS:
            break
        if not announced:
            progress.message("another run is doing this work; waiting for it")
            announced = True
        time.sleep(_POLL_SECONDS)
    else:
        return True
    write_atomic(uri, _content(owner, 0))
    return True


def _renew(uri: str, owner: str, stop: threading.Event) -> None:
    count = 0
    while not stop.wait(_RENEW_SECONDS):
        count += 1
        write_atomic(uri, _content(owner, count))


def _content(owner: str, count: int) -> bytes:
    holder = {
        "owner": owner,
        "count": count,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "born": _start_ticks(os.getpid()),
    }
    return json.dumps(holder).encode()


def _read(uri: str) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(read_bytes(uri))
    except (StorageError, ValueError):
        return None  # released, or being written, just now
    return content


def _is_gone(held: dict[str, Any]) -> bool:
    """Return whether the holder was a process of this host that no longer runs."""
    return bool(held["host"] == socket.gethostname() and _start_ticks(held["pid"]) != held["born"])


def _start_ticks(pid: int) -> str:
    """Return when a process of this host started, in the kernel's ticks; "" where it does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""
