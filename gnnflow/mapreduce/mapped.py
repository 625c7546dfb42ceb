"""Arrays that tasks leave where they lie, for tasks on the same machine: plain files, which readers map into memory.

A task writes one `.npy` file per array of a channel, whole or in runs of its rows, next to its exchange files. The
files get their names when the task has written all of them, before its record. A reader maps arrays and picks the rows
that it needs: nothing is grouped, compressed or copied for it. Mapped rows are the kernel's page cache.

An array may also be one that all tasks of a round write to, each its own rows, in a file from the first write on. A
task that runs again writes the same rows again; rows that no task writes are a hole in the file.

A file is not synced and has no checksum, since it lives for minutes in the memory of one machine. So a task whose
record is from before a restart of the machine runs again (`this_boot`), and a reader checks the size that the header
promises.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import join, list_names, resolve
from gnnflow.storage.writing import open_output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    import pyarrow as pa

    from gnnflow.graph.arrays import Array

_SUFFIX, _OF_ALL = ".npy", "all"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Kept:
    """Arrays of a channel that stay with the task that made them, or a run of their rows.

    num_rows: of all runs together; None where these are all rows. begin: where these rows begin in an array of num_rows
    rows that all tasks write to; None for an array of this task.
    """

    channel: str
    arrays: Mapping[str, Array]
    num_rows: int | None = None
    begin: int | None = None


class ArrayWriter:
    """Writes the arrays that one task keeps; they get their names at the end of its `with` block.

    arrays: their number for each channel; num_bytes: of these.
    """

    def __init__(self, folder: str, task: int) -> None:
        self._folder, self._task = folder, task
        self._sinks: dict[tuple[str, str], pa.NativeFile] = {}
        self._shared: dict[tuple[str, str], int] = {}
        self._stack = ExitStack()
        self.arrays: Counter[str] = Counter()
        self.num_bytes: Counter[str] = Counter()

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Name the files; where the block raises there are none."""
        self._stack.__exit__(kind, error, trace)

    def write(self, kept: Kept) -> None:
        """Append rows to the arrays of a channel."""
        for name, rows in kept.arrays.items():
            content = np.ascontiguousarray(rows)
            self.num_bytes[kept.channel] += content.nbytes
            if kept.begin is not None:
                self._write_at(kept, name, content)
                continue
            if (kept.channel, name) not in self._sinks:
                self._begin(kept.channel, name, content, len(rows) if kept.num_rows is None else kept.num_rows)
            if content.nbytes:
                self._sinks[kept.channel, name].write(content.reshape(-1).view(np.uint8).data)

    def _write_at(self, kept: Kept, name: str, content: Array) -> None:
        """Write rows to an array of all tasks. Raises StorageError where that fails, as on a full disk."""
        assert kept.num_rows is not None
        assert kept.begin is not None
        uri = join(self._folder, kept.channel, f"{_OF_ALL}.{name}{_SUFFIX}")
        header = _header(content, kept.num_rows)
        row_bytes = content.nbytes // max(len(content), 1)
        try:
            if (kept.channel, name) not in self._shared:
                path = Path(resolve(uri).path)
                path.parent.mkdir(parents=True, exist_ok=True)
                file = self._shared[kept.channel, name] = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
                self._stack.callback(os.close, file)
                whole = content.dtype.itemsize * kept.num_rows * int(np.prod(content.shape[1:], dtype=np.int64))
                os.truncate(file, len(header) + whole)
                os.pwrite(file, header, 0)
                self.arrays[kept.channel] += 1
            left, at = content.reshape(-1).view(np.uint8).data, len(header) + kept.begin * row_bytes
            while left:
                written = os.pwrite(self._shared[kept.channel, name], left, at)
                left, at = left[written:], at + written
        except OSError as error:
            raise StorageError(f"cannot be written ({error.strerror})", where=uri, fix="") from error

    def _begin(self, channel: str, name: str, rows: Array, num_rows: int) -> None:
        uri = join(self._folder, channel, f"{self._task:05d}.{name}{_SUFFIX}")
        sink = self._stack.enter_context(open_output(uri))
        sink.write(_header(rows, num_rows))
        self._sinks[channel, name] = sink
        self.arrays[channel] += 1


def _header(rows: Array, num_rows: int) -> bytes:
    """Return the header of an array's file."""
    header, shape = io.BytesIO(), (num_rows, *rows.shape[1:])
    described = {"descr": np.lib.format.dtype_to_descr(rows.dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    return header.getvalue()


def map_arrays(folder: str, task: int | None, names: Sequence[str] | None = None) -> dict[str, Array]:
    """Return arrays of a channel's folder by name: that a task keeps there, or with None that all tasks write to.

    names: None for all.

    Nobody may write to them; torch wants memory that could be written to, so they are private copies on write.
    Raises StorageError where one is gone or cut off.
    """
    begin = f"{_OF_ALL}." if task is None else f"{task:05d}."
    if names is None:
        found = (name for name in list_names(folder) if name.startswith(begin) and name.endswith(_SUFFIX))
        names = [name.removeprefix(begin).removesuffix(_SUFFIX) for name in found]
    return {name: _map(join(folder, f"{begin}{name}{_SUFFIX}")) for name in names}


def _map(uri: str) -> Array:
    try:
        mapped: Array = np.lib.format.open_memmap(resolve(uri).path, mode="c").view(np.ndarray)
    except (OSError, ValueError, EOFError) as error:
        raise StorageError(f"is damaged ({error})", where=uri, fix="") from error
    return mapped


@cache
def this_boot() -> str:
    """Return a text that changes when the machine starts anew, where it tells."""
    try:
        return _BOOT.read_text().strip()
    except OSError:  # not Linux
        return "unknown"
