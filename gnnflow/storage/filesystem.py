"""Bytes at a URI: a folder, `memory://` or any object store fsspec knows.

Every write appears whole or not at all. Object stores and `memory://` replace an object in one PUT; a local file is
written beside its place, synced to the disk and renamed, so that a name never precedes its content. Deletion is in
`removal.py`. Filesystems are opened where they are used, never carried across a fork.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import mimetypes
import os
import threading
import time
import uuid
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from gnnflow.graph.errors import StorageError
from gnnflow.storage.refusals import located, locating

if TYPE_CHECKING:
    from collections.abc import Iterator

_memory_claims = threading.Lock()
_SMALL_BYTES = 1 << 20
_CLAIM_ATTEMPTS = 20
_CLAIM_PAUSE_SECONDS = 0.1
_PATTERN = "*?["
_MISSING = "Check the path, or run the stage that makes it."


@dataclass(frozen=True)
class FileEntry:
    """A committed file: its name below the artifact, its size in bytes and the sha256 of its content."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Stamp:
    """What tells one version of an input file from another unread: name, size, and ETag or modified time."""

    name: str
    size: int
    version: str


def resolve(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the filesystem of a URI and the path on it. Raises StorageError for an unknown scheme."""
    try:
        # A worker lives long: a listing it kept would hide new files, and give overwritten ones their old size.
        fs, path = url_to_fs(uri, use_listings_cache=False)
    except (ValueError, ImportError) as error:
        raise StorageError(
            f"cannot open this location: {error}",
            where=uri,
            fix="Use a path or an installed fsspec scheme (s3 needs 'gnnflow[s3]').",
        ) from error
    return fs, path


def join(uri: str, *parts: str) -> str:
    """Return the URI of something below another."""
    return "/".join([uri.rstrip("/"), *(part.strip("/") for part in parts)])


def absolute(uri: str) -> str:
    """Return a URI that means the same in every process: local paths become absolute."""
    if "://" in uri:
        return uri
    return os.path.abspath(os.path.expanduser(uri))  # noqa: PTH100, PTH111 - pathlib would resolve symlinks


@located
def exists(uri: str) -> bool:
    """Return whether a file or folder is there."""
    fs, path = resolve(uri)
    return bool(fs.exists(path))


@located
def size_of(uri: str) -> int | None:
    """Return a file's size in bytes, or None where there is no such file."""
    fs, path = resolve(uri)
    try:
        return int(fs.info(path)["size"])
    except FileNotFoundError:
        return None


@located
def list_names(uri: str) -> list[str]:
    """Return the sorted names directly below a folder; empty where it does not exist."""
    fs, path = resolve(uri)
    try:
        return sorted(str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in fs.ls(path, detail=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


@located
def open_input(uri: str) -> IO[bytes]:
    """Open a file for random reads. Raises StorageError where it is missing."""
    fs, path = resolve(uri)
    try:
        return _open(fs, path)
    except FileNotFoundError as error:
        raise StorageError("no such file", where=uri, fix=_MISSING) from error


@located
def open_arrow(uri: str) -> pa.NativeFile:
    """Open a file for Arrow's readers; a local one is memory-mapped. Raises StorageError where it is missing."""
    fs, path = resolve(uri)
    try:
        if not isinstance(fs, LocalFileSystem):
            return pa.PythonFile(_open(fs, path), mode="r")
        # An empty file cannot be mapped; as a plain one it fails where its format is read, which says more.
        return pa.memory_map(path) if Path(path).stat().st_size else pa.OSFile(path)
    except FileNotFoundError as error:
        raise StorageError("no such file", where=uri, fix=_MISSING) from error


def _open(fs: fsspec.AbstractFileSystem, path: str) -> IO[bytes]:
    """Open a file. A small object is fetched whole: reading footers and columns one by one costs a request each."""
    if not isinstance(fs, LocalFileSystem):
        found = fs.info(path)
        if found["type"] == "directory":  # s3fs would read it as an empty file
            raise FileNotFoundError(path)
        size = found.get("size")  # None where an HTTP server does not say
        if size and size <= _SMALL_BYTES:
            # Both ends given: s3fs asks for the size once more where they are not.
            return io.BytesIO(fs.cat_file(path, start=0, end=size))
    opened: IO[bytes] = fs.open(path, "rb")
    return opened


@located
def read_bytes(uri: str) -> bytes:
    """Return a whole file. Raises StorageError where it is missing."""
    with open_input(uri) as stream:
        return stream.read()


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


def encode_json(value: Any) -> bytes:
    """Return a JSON document's bytes, keys in order so that equal values are equal bytes."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def write_json(uri: str, value: Any) -> FileEntry:
    """Write a JSON document atomically, keys in order so that equal values are equal bytes."""
    return write_atomic(uri, encode_json(value))


def read_json(uri: str) -> Any:
    """Return a JSON document. Raises StorageError where it is missing or broken."""
    content = read_bytes(uri)
    try:
        return json.loads(content)
    except ValueError as error:
        raise StorageError(
            f"not valid JSON ({error})", where=uri, fix="The file is damaged: delete its folder and run again."
        ) from error


def copy_file(source: str, destination: str) -> FileEntry:
    """Copy one file atomically, also between filesystems."""
    return write_atomic(destination, read_bytes(source))


def has_pattern(text: str) -> bool:
    """Return whether a filesystem could read the text as a pattern of names."""
    return any(symbol in text for symbol in _PATTERN)


@located
def stamp(uri: str) -> Stamp:
    """Return what identifies an input file's version, unread. Raises StorageError where it is missing."""
    fs, path = resolve(uri)
    try:
        found = fs.info(path)
    except FileNotFoundError as error:
        raise StorageError("no such file", where=uri, fix="Check the path in the config.") from error
    version = next(
        (str(found[key]) for key in ("ETag", "etag", "mtime", "LastModified", "created") if found.get(key)), ""
    )
    return Stamp(path.rsplit("/", 1)[-1], int(found["size"]), version)
