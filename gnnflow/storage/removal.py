"""Deletion of files and folders at a URI. It names exact keys: no text is expanded as a pattern."""

from __future__ import annotations

import contextlib
import errno
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
from fsspec.implementations.local import LocalFileSystem

from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import has_pattern, resolve
from gnnflow.storage.refusals import located

if TYPE_CHECKING:
    from collections.abc import Collection

_REMOVALS = 20
_REMOVAL_PAUSE_SECONDS = 0.05


@located
def remove_tree(uri: str, *, keep: Collection[str] = ()) -> None:
    """Delete a folder and everything below it; a missing one is fine, and so are files that come meanwhile.

    keep: names of files directly below that stay, and the folder with them.
    """
    fs, path = resolve(uri)
    if isinstance(fs, LocalFileSystem):
        _remove_local(Path(path), keep)
        return
    below = [str(key) for key in fs.find(path) if str(key).startswith(path.rstrip("/") + "/")]
    kept = {f"{path.rstrip('/')}/{name}" for name in keep}
    _remove_keys(fs, [key for key in below if key not in kept])


def _remove_keys(fs: fsspec.AbstractFileSystem, keys: list[str]) -> None:
    """Delete exactly these keys. fsspec expands patterns where it deletes many: a name that reads as one goes alone."""
    literal = [key for key in keys if not has_pattern(key)]
    if literal:
        with contextlib.suppress(FileNotFoundError):
            fs.rm(literal)
    for key in keys:
        if has_pattern(key):
            with contextlib.suppress(FileNotFoundError):
                fs.rm_file(key)


def _remove_local(folder: Path, keep: Collection[str]) -> None:
    """Delete a local folder, again where a file came while it was emptied."""
    for _ in range(_REMOVALS):
        try:
            # A file is written under a temporary name that holds its own.
            for entry in [entry for entry in folder.iterdir() if not any(name in entry.name for name in keep)]:
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
            if not keep:
                folder.rmdir()
        except FileNotFoundError:
            if not folder.exists():
                return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            time.sleep(_REMOVAL_PAUSE_SECONDS)
        else:
            return
    raise StorageError(
        f"files are still written to this folder after {_REMOVALS} attempts to delete it",
        where=str(folder),
        fix="Stop what writes there, then run again.",
    )


def remove_empty_folder(uri: str) -> None:
    """Delete a local folder that holds nothing; one that holds something stays. Object stores have no folders."""
    fs, path = resolve(uri)
    if isinstance(fs, LocalFileSystem):
        with contextlib.suppress(OSError):
            Path(path).rmdir()


@located
def remove_file(uri: str) -> None:
    """Delete a file; a missing one is fine."""
    fs, path = resolve(uri)
    with contextlib.suppress(FileNotFoundError):
        fs.rm_file(path)
