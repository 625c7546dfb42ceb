"""Reading and writing places of files on a local disk, and which disk a folder is on."""

from __future__ import annotations

import os
import platform
import zlib
from pathlib import Path
from typing import Protocol

_AT_ONCE = 1 << 30  # bytes that one call of the system reads or writes at most


class Disk(Protocol):
    """What bytes go through: the system's own calls, or what stands for them in tests and benchmarks."""

    def read(self, file: int, into: memoryview, at: int) -> None:
        """Fill memory from a place of a file."""

    def write(self, file: int, held: memoryview, at: int) -> None:
        """Write memory to a place of a file."""


class LocalDisk:
    """The system's own calls."""

    def read(self, file: int, into: memoryview, at: int) -> None:
        """Fill memory from a place of a file."""
        done = 0
        while done < len(into):
            got = os.preadv(file, [into[done : done + _AT_ONCE]], at + done)
            if not got:
                raise OSError(f"a file of the scratch folder ends at byte {at + done}")
            done += got

    def write(self, file: int, held: memoryview, at: int) -> None:
        """Write memory to a place of a file."""
        done = 0
        while done < len(held):
            done += os.pwritev(file, [held[done : done + _AT_ONCE]], at + done)


def disk_of(folder: str | None) -> int:
    """Return what tells the disk of a folder, or for None a machine's memory, from those of others."""
    place = "memory" if folder is None else Path(folder).stat().st_dev
    return zlib.crc32(f"{platform.node()} {place}".encode())
