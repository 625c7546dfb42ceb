"""Writes and deletes files at a URI: every file appears whole or not at all.

Object stores and `memory://` replace an object in one PUT; a local file is written under a temporary name, synced to
the disk and renamed, so that a name never precedes its content. Deletion names exact keys: no text is a pattern.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mimetypes
import os
import shutil
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import has_pattern, read_bytes, resolve
from gnnflow.storage.refusals import located, locating

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_memory_claims = threading.Lock()
_CLAIM_ATTEMPTS = 20
_CLAIM_PAUSE_SECONDS = 0.1
_REMOVALS = 20
_REMOVAL_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class FileEntry:
    """A committed file: its name below the artifact, its size in bytes and the sha256 of its content."""

    name: str
    size: int
    sha256: str


def write_atomic(uri: str, content: bytes | memoryview, *, durable: bool = True) -> FileEntry:
    """Write a file as `replace_file` does, and return its entry."""
    replace_file(uri, content, durable=durable)
    return FileEntry(uri.rsplit("/", 1)[-1], len(content), hashlib.sha256(content).hexdigest())


@located
def write_in_pieces(uri: str, write: Callable[[pa.NativeFile], None]) -> FileEntry:
    """Write a file as `write_atomic` does, from a function that writes it piece by piece, and return its entry.

    For an object store it is held in memory until the end.
    """
    fs, path = resolve(uri)
    if not isinstance(fs, LocalFileSystem):
        held = pa.BufferOutputStream()
        write(held)
        return write_atomic(uri, memoryview(held.getvalue()))
    with _renamed_at_the_end(path) as temporary:
        with pa.OSFile(str(temporary), "wb") as sink:
            write(sink)
        with temporary.open("rb+") as file, ThreadPoolExecutor(1) as disk:
            synced = disk.submit(os.fsync, file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            synced.result()
        size = temporary.stat().st_size
    return FileEntry(uri.rsplit("/", 1)[-1], size, digest)


@located
def replace_file(uri: str, content: bytes | memoryview, *, durable: bool = True) -> None:
    """Write a file so that readers see all of it or none, replacing what was there.

    durable: a local file's content is on the disk before its name. Files that a restart can miss need not be.
    """
    fs, path = resolve(uri)
    if isinstance(fs, LocalFileSystem):
        with _renamed_at_the_end(path) as temporary:
            _write_local(temporary, content, durable=durable)
    else:
        fs.pipe_file(path, bytes(content), **_content_type(fs, path))


def _write_local(path: Path, content: bytes | memoryview, *, durable: bool) -> None:
    with path.open("wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


@located
def sync_folder(uri: str) -> None:
    """Sync the names in a local folder to the disk. Object stores need no sync."""
    fs, path = resolve(uri)
    if not isinstance(fs, LocalFileSystem):
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # a mounted store that has no folders to sync
            raise
    finally:
        os.close(folder)


def _content_type(fs: fsspec.AbstractFileSystem, path: str) -> dict[str, str]:
    """Return the content type for S3, so that a browser shows a report and does not download it."""
    kind, _ = mimetypes.guess_type(path)
    return {"ContentType": kind} if kind and "s3" in fs.protocol else {}


@contextmanager
def open_output(uri: str) -> Iterator[pa.NativeFile]:
    """Open a file for Arrow's writers. It appears whole at the end of the block, and not at all where that raises.

    A local file is written at once and not synced, since it can be made again. For an object store it is held in memory
    until the end.
    """
    fs, path = resolve(uri)
    with locating(uri):
        if isinstance(fs, LocalFileSystem):
            with _renamed_at_the_end(path) as temporary, pa.OSFile(str(temporary), "wb") as sink:
                yield sink
        else:
            held = pa.BufferOutputStream()
            yield held
            fs.pipe_file(path, held.getvalue().to_pybytes())


@contextmanager
def _renamed_at_the_end(path: str) -> Iterator[Path]:
    """Yield a temporary name in a path's folder; the file replaces the path unless the block raises."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@located
def create_exclusive(uri: str, content: bytes) -> bool:
    """Write a file only where there is none, and return whether it was written; one of many claimants gets True.

    The file appears whole or not at all. Object stores decide by a conditional PUT.
    """
    fs, path = resolve(uri)
    if isinstance(fs, LocalFileSystem):
        return _linked_where_free(Path(path), content)
    # threads share `memory://`, and fsspec checks and writes it in two steps
    with _memory_claims if isinstance(fs, MemoryFileSystem) else nullcontext():
        return _put_where_free(fs, path, content)


def _put_where_free(fs: fsspec.AbstractFileSystem, path: str, content: bytes) -> bool:
    for _ in range(_CLAIM_ATTEMPTS):
        try:
            fs.pipe_file(path, content, mode="create")
        except FileExistsError:
            return False
        except OSError as error:
            # S3's answer while another claim of the same key is in flight: ask again
            if "ConditionalRequestConflict" not in repr(error.__cause__):
                raise
            time.sleep(_CLAIM_PAUSE_SECONDS)
        else:
            return True
    raise StorageError("other processes keep claiming this file", where=path, fix="Try again.")


def _linked_where_free(target: Path, content: bytes) -> bool:
    """Give a finished temporary file its name, which fails where the name is taken."""
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    for _ in range(_CLAIM_ATTEMPTS):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_local(temporary, content, durable=True)
            os.link(temporary, target)
        except FileExistsError:
            return False
        except FileNotFoundError:
            continue  # a finished run has deleted the folder meanwhile
        else:
            return True
        finally:
            temporary.unlink(missing_ok=True)
    raise StorageError("its folder is deleted repeatedly", where=str(target), fix="Try again.")


@located
def move_folder(uri: str, destination: str) -> None:
    """Move a folder to a new place: at once on local disks, elsewhere file by file, the first by name last."""
    (fs, path), (_, target) = resolve(uri), resolve(destination)
    if isinstance(fs, LocalFileSystem):
        Path(path).rename(target)
        return
    for key in sorted(map(str, fs.find(path)), reverse=True):
        fs.cp_file(key, f"{target.rstrip('/')}/{key.rsplit('/', 1)[1]}")
        fs.rm_file(key)


def encode_json(value: Any) -> bytes:
    """Return a JSON document's bytes, keys in order so that equal values are equal bytes."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def write_json(uri: str, value: Any) -> FileEntry:
    """Write a JSON document atomically, keys in order so that equal values are equal bytes."""
    return write_atomic(uri, encode_json(value))


def copy_file(source: str, destination: str) -> FileEntry:
    """Copy one file atomically, also between filesystems."""
    return write_atomic(destination, read_bytes(source))


@located
def remove_tree(uri: str, *, keep: Collection[str] = ()) -> None:
    """Delete a folder and everything below it, also files that appear meanwhile; a missing folder is no error.

    keep: names of files directly below that stay, with the folder.
    """
    fs, path = resolve(uri)
    if isinstance(fs, LocalFileSystem):
        _remove_local(Path(path), keep)
        return
    below = [str(key) for key in fs.find(path) if str(key).startswith(path.rstrip("/") + "/")]
    kept = {f"{path.rstrip('/')}/{name}" for name in keep}
    _remove_keys(fs, [key for key in below if key not in kept])


def _remove_keys(fs: fsspec.AbstractFileSystem, keys: list[str]) -> None:
    """Delete exactly these keys. fsspec expands patterns in lists, so a key that looks like one is deleted alone."""
    literal = [key for key in keys if not has_pattern(key)]
    if literal:
        with suppress(FileNotFoundError):
            fs.rm(literal)
    for key in keys:
        if has_pattern(key):
            with suppress(FileNotFoundError):
                fs.rm_file(key)


def _remove_local(folder: Path, keep: Collection[str]) -> None:
    """Delete a local folder, again where a file appears while it is emptied."""
    for _ in range(_REMOVALS):
        try:
            # the temporary name of a file contains the final one
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
        f"files still appear in this folder after {_REMOVALS} attempts to delete it",
        where=str(folder),
        fix="Stop what writes there, then run again.",
    )


def remove_empty_folder(uri: str) -> None:
    """Delete a local folder if it is empty. Object stores have no folders."""
    fs, path = resolve(uri)
    if isinstance(fs, LocalFileSystem):
        with suppress(OSError):
            Path(path).rmdir()


@located
def remove_file(uri: str) -> None:
    """Delete a file; a missing one is no error."""
    fs, path = resolve(uri)
    with suppress(FileNotFoundError):
        fs.rm_file(path)
