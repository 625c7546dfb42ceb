"""Confines what a thread opens to one folder, for processes that open folders in which others write.

Whoever writes into a workspace can put a link in it to a place that the reader may open and the writer may not, or a
pipe, which a reader waits for without an end. In a block of `confined` such a place, and every other place outside of
the folder, is empty: nothing is found, read, written or deleted there.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from gnnflow.graph.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER: ContextVar[tuple[fsspec.AbstractFileSystem, str] | None] = ContextVar("folder", default=None)


class EmptyFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc] # fsspec has no types
    """A filesystem without any file, which takes none."""

    protocol = "empty"
    cachable = False

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Raise FileNotFoundError."""
        raise FileNotFoundError(path)

    def ls(self, path: str, **_: Any) -> list[Any]:
        """Raise FileNotFoundError."""
        raise FileNotFoundError(path)

    def modified(self, path: str) -> Any:
        """Raise FileNotFoundError."""
        raise FileNotFoundError(path)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Raise StorageError."""
        raise StorageError(
            "lies outside of the workspace, once links are followed, or is no file",
            where=path,
            fix="Nothing is written there. Put files and folders in the place of links.",
        )

    def open(self, path: str, *_: Any, **__: Any) -> Any:
        """Raise FileNotFoundError."""
        raise FileNotFoundError(path)


@contextmanager
def confined(fs: fsspec.AbstractFileSystem, folder: str) -> Iterator[None]:
    """Confine to a folder of a filesystem what this thread opens in the block."""
    token = _FOLDER.set((fs, _real(fs, folder)))
    try:
        yield
    finally:
        _FOLDER.reset(token)


def is_closed(fs: fsspec.AbstractFileSystem, path: str) -> bool:
    """Return whether this thread may not open a path: outside of its folder, a pipe or a device."""
    if (held := _FOLDER.get()) is None:
        return False
    other, folder = held
    place = _real(fs, path)
    if fs.protocol != other.protocol or not f"{place.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/"):
        return True
    return isinstance(fs, LocalFileSystem) and _is_special(place)


def _real(fs: fsspec.AbstractFileSystem, path: str) -> str:
    return os.path.realpath(path) if isinstance(fs, LocalFileSystem) else path


def _is_special(path: str) -> bool:
    with suppress(OSError):
        mode = os.stat(path).st_mode  # noqa: PTH116 - a text, as all paths here are
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return False
