"""What a work folder says of the work in it: which artifacts it reads, and for how long it has gone on.

The seconds of all attempts are written every few seconds and when an attempt ends, so that what a kill loses is little,
once there is anything that the next attempt goes on from. No result depends on them.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import StorageError
from gnnflow.storage.documents import read_document, write_document
from gnnflow.storage.filesystem import join, list_names
from gnnflow.storage.lease import LEASE
from gnnflow.storage.writing import remove_file, remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

ELAPSED = "elapsed.json"
INPUTS = "inputs.json"
"""The digests of the artifacts that the work reads."""
_WRITE_SECONDS = 5.0
_KEY = "seconds"


def elapsed_before(work: str) -> float:
    """Return the seconds that earlier attempts took in a work folder; 0 where none tells."""
    try:
        return float(read_document(join(work, ELAPSED), fix="")[_KEY])
    except (StorageError, KeyError, TypeError, ValueError):
        return 0.0


def has_work(work: str) -> bool:
    """Return whether tasks left anything in a work folder."""
    beside = (LEASE, ELAPSED, INPUTS)  # and what they are written as before they have their names
    return any(not any(each in name for each in beside) for name in list_names(work))


@contextmanager
def work_on(work: str, digests: dict[str, str]) -> Iterator[None]:
    """Work in a folder on artifacts of these digests, by stage; delete first what was done there on others.

    A folder in which nothing was done is left without a word of it.
    """
    where = join(work, INPUTS)
    try:
        held: dict[str, Any] | None = read_document(where, fix="")
    except StorageError:  # a new folder, or one of an earlier version
        held = None
    if held not in (None, digests):
        remove_tree(work, keep=(LEASE,))
    if held != digests:
        write_document(where, digests, durable=False)
    try:
        yield
    finally:
        with suppress(OSError, StorageError):
            if not has_work(work):
                remove_file(where)


@contextmanager
def keep_elapsed(work: str, *, started: float) -> Iterator[None]:
    """Keep in a work folder how long it is since `started`, by `monotonic`, while the block runs and at its end."""
    stop = threading.Event()
    writer = threading.Thread(target=_write_until, args=(stop, work, started), daemon=True)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()
        _write(work, started)


def _write_until(stop: threading.Event, work: str, started: float) -> None:
    while not stop.wait(_WRITE_SECONDS):
        _write(work, started)


def _write(work: str, started: float) -> None:
    with suppress(OSError, StorageError):  # a figure is no reason to fail
        if has_work(work):
            write_document(join(work, ELAPSED), {_KEY: time.monotonic() - started}, durable=False)
