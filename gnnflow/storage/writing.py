"""Writing bytes at a URI: every file appears whole or not at all.

Object stores and `memory://` replace an object in one PUT; a local file is written beside its place, synced to the disk
and renamed, so that a name never precedes its content.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mimetypes
import os
import threading
import time
import uuid
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import read_bytes, resolve
from gnnflow.storage.refusals import located, locating

if TYPE_CHECKING:
    from collections.abc import Iterator

_memory_claims = threading.Lock()
_CLAIM_ATTEMPTS = 20
_CLAIM_PAUSE_SECONDS = 0.1


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
def replace_file(uri: str, content: bytes | memoryview, *, durable: bool = True) -> None:
    """Write a file so that readers see all of it or none, replacing what was there.

    durable: a local file's content is on the disk before its name is. What a restart can do without need not be.
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
    """Bring the names in a local folder to the disk. Object stores keep what they have accepted."""
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
    """Return what S3 should answer a browser that opens the object: a report is a page, not a download."""
    kind, _ = mimetypes.guess_type(path)
    return {"ContentType": kind} if kind and "s3" in fs.protocol else {}


@contextmanager
def open_output(uri: str) -> Iterator[pa.NativeFile]:
    """Open a file for Arrow's writers. It appears whole at the end of the block, and not at all where that raises.

    A local file is written as it comes, and not synced: what is written so can be made again. For an object store it
    is held in memory until then.
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
    """Give the block a temporary name beside a local path; what it wrote replaces the path unless it raises."""
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
    """Write a file only where there is none, and return whether it was written: one of many claimants gets True.

    The file appears whole or not at all. Object stores decide by a conditional PUT.
    """
    fs, path = resolve(uri)
    if isinstance(fs, LocalFileSystem):
        return _linked_where_free(Path(path), content)
    # Objects of `memory://` are shared by threads, and its own check and write are two steps.
    with _memory_claims if isinstance(fs, MemoryFileSystem) else nullcontext():
        return _put_where_free(fs, path, content)


def _put_where_free(fs: fsspec.AbstractFileSystem, path: str, content: bytes) -> bool:
    for _ in range(_CLAIM_ATTEMPTS):
        try:
            fs.pipe_file(path, content, mode="create")
        except FileExistsError:
            return False
        except OSError as error:
            # S3 answers so while another claim of the same key is in flight: ask again.
            if "ConditionalRequestConflict" not in repr(error.__cause__):
                raise
            time.sleep(_CLAIM_PAUSE_SECONDS)
        else:
            return True
    raise StorageError("other claims of this file never end", where=path, fix="Try again.")


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
            continue  # the folder went meanwhile: a run that is done deletes its work
        else:
            return True
        finally:
            temporary.unlink(missing_ok=True)
    raise StorageError("its folder is deleted again and again", where=str(target), fix="Try again.")


@located
def move_folder(uri: str, destination: str) -> None:
    """Give the files of a folder to one that is not there yet: at once on local disks, else the first by name last."""
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
