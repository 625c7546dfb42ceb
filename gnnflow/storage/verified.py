"""Checks files against their folder's list: each is hashed before its first use in a process, once per version.

A local file that this process wrote was hashed then, and is not hashed again while its time stamps stay.

Three documents list the files of their folder with digests: an artifact's manifest, a run's record and a published
version. A process reads the list of a folder once and remembers it, so that a job need not carry digests to workers;
where a file differs from the list in memory, the list is read again before an error is raised. A folder without a list
holds a stage's work in progress.
"""

from __future__ import annotations

import hashlib
import io
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from gnnflow.graph.errors import StorageError
from gnnflow.storage.documents import read_document
from gnnflow.storage.filesystem import exists, join, resolve
from gnnflow.storage.workspace import MANIFEST, RUN, VERSION
from gnnflow.storage.writing import FileEntry

if TYPE_CHECKING:
    from collections.abc import Iterable

    import fsspec

_HELD_BYTES = 64 << 20  # smaller remote files are fetched once, hashed and read from memory
_BLOCK_BYTES = 8 << 20
_VERSIONS = ("ETag", "etag", "mtime", "LastModified", "created")

Stamp = tuple[Any, ...]

# by folder: the document that lists its files, and its entries
_listed: dict[str, tuple[str, dict[str, FileEntry]]] = {}
# by file: the version that was hashed, and its digest
_verified: dict[str, tuple[Stamp, str]] = {}


@dataclass(frozen=True)
class _Found:
    """The current version of a file."""

    fs: fsspec.AbstractFileSystem
    path: str
    size: int
    stamp: Stamp

    @property
    def is_local(self) -> bool:
        return isinstance(self.fs, LocalFileSystem)

    @property
    def is_small(self) -> bool:
        return not self.is_local and self.size <= _HELD_BYTES

    def fetch(self) -> bytes:
        # with both ends, s3fs does not ask for the size again
        content: bytes = self.fs.cat_file(self.path, start=0, end=self.size) if self.size else b""
        return content

    def open(self) -> IO[bytes]:
        opened: IO[bytes] = self.fs.open(self.path, "rb")
        return opened


def remedy(folder: str, listing: str = MANIFEST) -> str:
    """Return the advice for a damaged file of a folder."""
    if listing == RUN:
        return "`gnnflow run CONFIG` makes the run's files again from its artifacts."
    if listing == VERSION:
        return "Restore it from a copy, or publish the run again."
    stage = folder.rstrip("/").rsplit("/", 2)[-2]  # <workspace>/artifacts/<stage>/<fingerprint>
    return f"Delete the folder {folder} and run again: `gnnflow {stage} CONFIG` makes it."


def open_verified(folder: str, name: str) -> pa.NativeFile:
    """Open a file for Arrow's readers; a local one is memory-mapped. Raises StorageError where it is not as listed."""
    found = _found(folder, name)
    if found.is_small:
        return pa.BufferReader(_checked_content(folder, name, found))
    _check(folder, name, found)
    if not found.is_local:
        return pa.PythonFile(found.open(), mode="r")
    # an empty file cannot be mapped; opened as a plain file it fails with a clearer error
    return pa.memory_map(found.path) if found.size else pa.OSFile(found.path)


def read_verified(folder: str, name: str) -> bytes:
    """Return a whole file. Raises StorageError where it is missing or not as listed."""
    found = _found(folder, name)
    if found.is_small:
        return _checked_content(folder, name, found)
    _check(folder, name, found)
    with found.open() as stream:
        return stream.read()


def check_file(folder: str, name: str) -> None:
    """Raise StorageError where a file is missing or not as its folder lists it."""
    _check(folder, name, _found(folder, name))


def is_whole(folder: str, entry: FileEntry) -> bool:
    """Return whether a file matches an entry, whatever its folder lists."""
    try:
        found = _found(folder, entry.name)
    except StorageError:
        return False
    if found.size != entry.size:
        return False
    with found.open() as stream:
        return _digest(stream) == entry.sha256


def note_written(folder: str, entry: FileEntry) -> None:
    """Remember the digest of a file that this process has just written, for its first use."""
    where = join(folder, entry.name)
    if not isinstance(resolve(where)[0], LocalFileSystem):
        return  # it would take a request to learn its version
    with suppress(StorageError):  # deleted meanwhile
        found = _found(folder, entry.name)
        if found.size == entry.size:
            _verified[where] = (found.stamp, entry.sha256)


def expect_files(folder: str, files: Iterable[FileEntry]) -> None:
    """Remember in this process the files that a stage wrote to a folder without a list."""
    _listed[folder] = ("", {entry.name: entry for entry in files})


def entries_of(content: Any, *, where: str, fix: str) -> tuple[FileEntry, ...]:
    """Return the files that a document lists. Raises StorageError for anything but entries."""
    try:
        return tuple(FileEntry(str(entry["name"]), int(entry["size"]), str(entry["sha256"])) for entry in content)
    except (TypeError, KeyError, ValueError) as error:
        raise StorageError(f"is damaged: it does not list files ({error})", where=where, fix=fix) from error


def _found(folder: str, name: str) -> _Found:
    """Return the current version of a file. Raises StorageError where there is none."""
    where = join(folder, name)
    fs, path = resolve(where)
    listing, _ = _listed.get(folder, (MANIFEST, {}))
    missing = StorageError("no such file", where=where, fix=remedy(folder, listing))
    try:
        if isinstance(fs, LocalFileSystem):
            status = Path(path).stat()
            stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
            return _Found(fs, path, status.st_size, stamp)
        info = fs.info(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise missing from error
    if info["type"] == "directory":
        raise missing
    size = int(info["size"])
    return _Found(fs, path, size, (size, *(str(info.get(key)) for key in _VERSIONS)))


def _check(folder: str, name: str, found: _Found) -> None:
    where = join(folder, name)
    stamp, digest = _verified.get(where, (None, ""))
    if stamp != found.stamp:
        with found.open() as stream:
            digest = _digest(stream)
    elif _agrees(folder, name, digest):
        return
    _compare(folder, name, found, digest)


def _checked_content(folder: str, name: str, found: _Found) -> bytes:
    content = found.fetch()
    stamp, digest = _verified.get(join(folder, name), (None, ""))
    if stamp != found.stamp or not _agrees(folder, name, digest):
        _compare(folder, name, found, _digest(io.BytesIO(content)))
    return content


def _digest(stream: IO[bytes]) -> str:
    state = hashlib.sha256()
    while block := stream.read(_BLOCK_BYTES):
        state.update(block)
    return state.hexdigest()


def _agrees(folder: str, name: str, digest: str) -> bool:
    _, entries = _listed.get(folder, ("", {}))
    return name in entries and entries[name].sha256 == digest


def _compare(folder: str, name: str, found: _Found, digest: str) -> None:
    if not _agrees(folder, name, digest):
        _read_list(folder)
        if folder in _listed and not _agrees(folder, name, digest):
            raise _damaged(folder, name, found, digest)
    _verified[join(folder, name)] = (found.stamp, digest)


def _damaged(folder: str, name: str, found: _Found, digest: str) -> StorageError:
    listing, entries = _listed[folder]
    entry, where = entries.get(name), join(folder, name)
    fix = remedy(folder, listing) if listing else "Run again."
    says = f"{listing} says" if listing else "its writer says"
    if entry is None:
        return StorageError(f"is not listed by {listing}", where=where, fix=fix)
    if entry.size != found.size:
        return StorageError(f"is damaged: it has {found.size} bytes, {says} {entry.size}", where=where, fix=fix)
    return StorageError(f"is damaged: its sha256 is {digest}, {says} {entry.sha256}", where=where, fix=fix)


def _read_list(folder: str) -> None:
    """Read a folder's list into memory, where it has one."""
    for listing in (MANIFEST, VERSION, RUN):
        where = join(folder, listing)
        if exists(where):
            fix = remedy(folder, listing)
            files = read_document(where, fix=fix).get("files", ())
            _listed[folder] = (listing, {entry.name: entry for entry in entries_of(files, where=where, fix=fix)})
            return
    if folder in _listed and _listed[folder][0]:
        del _listed[folder]  # its list is gone
