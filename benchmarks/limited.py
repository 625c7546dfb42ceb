"""A filesystem in memory behind one link of a given rate and latency, as an object store is: `limited://`.

    with link(mib_per_second=50, seconds_per_request=0.01) as carried:
        ...                                  # what is read and written below limited:// takes its time
    carried.read, carried.written            # bytes
    carried.used                             # when it carried them: from and until, as `time.monotonic` counts

All threads of the process share the link. A request waits for the latency, then for the bytes of those before it and
its own; waiting gives way to other threads, as waiting for a network does.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

PROTOCOL = "limited"


@dataclass
class Link:
    """What the link does, and the bytes it carried so far; a rate of 0 carries them at once."""

    bytes_per_second: float = 0.0
    seconds_per_request: float = 0.0
    read: int = 0
    written: int = 0
    used: list[tuple[float, float]] = field(default_factory=list)
    _free_at: float = 0.0
    _lock: Any = field(default_factory=threading.Lock)

    def carry(self, *, read: int = 0, written: int = 0) -> None:
        """Wait as long as a request of so many bytes takes."""
        with self._lock:
            self.read += read
            self.written += written
            if not self.bytes_per_second:
                return
            begin = max(time.monotonic() + self.seconds_per_request, self._free_at)
            self._free_at = begin + (read + written) / self.bytes_per_second
            until = self._free_at
            self.used.append((begin, until))
        time.sleep(max(until - time.monotonic(), 0.0))


class _Reader(io.BytesIO):
    """A file of which each read is a request."""

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        LimitedFileSystem.link.carry(read=len(content))
        return content


class LimitedFileSystem(MemoryFileSystem):
    """Files in memory, read and written over the link."""

    protocol = PROTOCOL
    store: ClassVar[dict[str, MemoryFile]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    link: ClassVar[Link] = Link()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix(f"{PROTOCOL}://")))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Return a file or a part of it, as one request."""
        content = bytes(super().cat_file(path, start=start, end=end, **options))
        self.link.carry(read=len(content))
        return content

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Write a file, as one request."""
        self.link.carry(written=len(value))
        super().pipe_file(path, value, mode=mode, **options)

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        """Open a file; reads of it are requests."""
        opened = super().open(path, mode, **options)
        return _Reader(opened.getvalue()) if mode == "rb" else opened


@contextmanager
def link(*, mib_per_second: float, seconds_per_request: float = 0.0) -> Iterator[Link]:
    """Set the link for the length of a block; before and afterwards it takes no time."""
    LimitedFileSystem.link = Link(mib_per_second * 2**20, seconds_per_request)
    try:
        yield LimitedFileSystem.link
    finally:
        LimitedFileSystem.link = Link()


fsspec.register_implementation(PROTOCOL, LimitedFileSystem, clobber=True)
