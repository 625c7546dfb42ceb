"""Opens and reads files at a URI: a local path, `memory://` or any object store that fsspec knows.

`writing.py` writes and deletes. Filesystems are opened where they are used, never carried across a fork.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import fsspec
import pyarrow as pa
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import glob_translate

from gnnflow.graph.errors import StorageError
from gnnflow.graph.secrets import find_secret
from gnnflow.storage.access import mask_credentials, note_opened, options_of
from gnnflow.storage.confinement import EmptyFileSystem, confined, is_closed
from gnnflow.storage.refusals import located

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SMALL_BYTES = 1 << 20
_PATTERN = "*?["
_MISSING = "Check the path, or run the stage that makes it."
_KERNEL = ("/proc", "/sys")
_TIMES = ("mtime", "created", "LastModified", "Last-Modified")
CONTENT = "sha256-"
"""The beginning of the name of a file that is named by its content."""
_CONTENT_NAME = re.compile(rf"{CONTENT}[0-9a-f]{{64}}\.parquet")


@dataclass(frozen=True)
class Stamp:
    """The version of an input file, known without reading it: name, size, and ETag or modified time.

    A file that is named by its content (`sha256-<digest>.parquet`) has no other version: a copy of it is the same.
    """

    name: str
    size: int
    version: str


class Resolved(NamedTuple):
    """The filesystem of a URI, and the path on it."""

    fs: fsspec.AbstractFileSystem
    path: str


def resolve(uri: str) -> Resolved:
    """Return the filesystem of a URI and the path on it.

    Raises StorageError for an unknown scheme, for a secret in the URI, which a library would repeat in its errors, and
    for a path that is not UTF-8, since a run's documents name places as text. A URI with `::` is a chain of fsspec's
    only with `://`.
    """
    if secret := find_secret(uri):
        raise StorageError(f"holds {secret}", where=uri, fix="Give it to the storage library through the environment.")
    found = _filesystem_of(uri)
    try:
        found.path.encode()
    except UnicodeEncodeError as error:  # surrogates stand for such bytes
        fix = "Rename that folder or file."
        raise StorageError("a name in this path is not UTF-8", where=found.path, fix=fix) from error
    return Resolved(EmptyFileSystem(), found.path) if is_closed(found.fs, found.path) else found


@contextmanager
def within(folder: str) -> Iterator[None]:
    """Confine what this thread opens in the block to a folder, as `confinement.py` says."""
    with confined(*resolve(folder)):
        yield


def _filesystem_of(uri: str) -> Resolved:
    if "::" in uri and "://" not in uri:  # a file's name, which fsspec would read as a chain
        return Resolved(LocalFileSystem(use_listings_cache=False), absolute(uri))
    if options := options_of(uri):
        _refuse_other_account(uri, options)
    try:
        # no cached listings: in a long-lived worker they would hide new files and keep old sizes
        found = Resolved(*url_to_fs(uri, use_listings_cache=False, **options))
    except (ValueError, ImportError) as error:
        raise StorageError(
            f"cannot open this location: {mask_credentials(str(error))}",
            where=uri,
            fix="Use a path or an installed fsspec scheme (s3 needs 'gnnflow[s3]').",
        ) from error
    if options:
        note_opened(found.fs)
    return found


def _refuse_other_account(uri: str, options: Mapping[str, Any]) -> None:
    """Raise StorageError for a URL that names another place, such as an account of Azure, than its credentials do."""
    first = uri.partition("::")[0]
    try:
        library = fsspec.get_filesystem_class(first.partition("://")[0])
        named = library._get_kwargs_from_urls(first)  # noqa: SLF001 - fsspec says it in no other way
    except (ValueError, ImportError):
        return  # said where it is opened
    for key in sorted(key for key in named.keys() & options.keys() if named[key] != options[key]):
        raise StorageError(
            mask_credentials(f"this URL is of {key} {named[key]}, and the credentials are of {options[key]}"),
            where=uri,
            fix="Use credentials of that account, or correct the URL.",
        )


def join(uri: str, *parts: str) -> str:
    """Return the URI of something below another."""
    return "/".join([uri.rstrip("/"), *(part.strip("/") for part in parts)])


def absolute(uri: str) -> str:
    """Return a URI that means the same in every process: local paths and `file://` become absolute paths."""
    scheme, mark, path = uri.partition("://")
    if mark and not (path and scheme in LocalFileSystem.protocol):
        return uri
    return os.path.abspath(os.path.expanduser(path if mark else uri))  # noqa: PTH100, PTH111 - links stay


def is_below(uri: str, folder: str) -> bool:
    """Return whether a URI is a folder or lies below it, after links are resolved."""
    (fs, path), (other, above) = _real(uri), _real(folder)
    return fs.protocol == other.protocol and f"{path.rstrip('/')}/".startswith(f"{above.rstrip('/')}/")


def is_below_match(uri: str, pattern: str) -> bool:
    """Return whether a URI would be a match of a pattern or lie below one, after links are resolved."""
    fs, whole = resolve(absolute(pattern))
    parts = whole.split("/")
    first = next(number for number, part in enumerate(parts) if has_pattern(part))
    above, (other, path) = _real(fs.unstrip_protocol("/".join(parts[:first]) or "/")), _real(uri)
    matching = re.compile(glob_translate("/".join([above.path.rstrip("/"), *parts[first:]])))
    names = path.split("/")
    heads = ("/".join(names[: end + 1]) for end in range(len(names)))
    return fs.protocol == other.protocol and any(map(matching.match, heads))


def is_local(uri: str) -> bool:
    """Return whether a URI lies on a filesystem of this machine, where its files can be mapped into memory."""
    return isinstance(resolve(uri).fs, LocalFileSystem)


def _real(uri: str) -> Resolved:
    found = resolve(absolute(uri))
    return found._replace(path=os.path.realpath(found.path)) if isinstance(found.fs, LocalFileSystem) else found


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
def age_of(uri: str) -> float | None:
    """Return the seconds since a file was written; None where there is none, or its store has no times."""
    fs, path = resolve(uri)
    try:
        return time.time() - float(fs.modified(path).timestamp())
    except (FileNotFoundError, NotImplementedError):
        return None


@located
def is_folder(uri: str) -> bool:
    """Return whether a URI is a folder."""
    fs, path = resolve(uri)
    return bool(fs.isdir(path))


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
        # an empty file cannot be mapped; opened as a plain file it fails with a clearer error
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
            # with both ends, s3fs does not ask for the size again
            return io.BytesIO(fs.cat_file(path, start=0, end=size))
    opened: IO[bytes] = fs.open(path, "rb")
    return opened


@located
def read_bytes(uri: str) -> bytes:
    """Return a whole file. Raises StorageError where it is missing."""
    with open_input(uri) as stream:
        return stream.read()


def read_json(uri: str, *, fix: str = "The file is damaged: delete its folder and run again.") -> Any:
    """Return a JSON document. Raises StorageError where it is missing or broken; fix: advice for the latter."""
    content = read_bytes(uri)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"not valid JSON ({error})", where=uri, fix=fix) from error


def has_pattern(text: str) -> bool:
    """Return whether a filesystem could read the text as a pattern of names."""
    return any(symbol in text for symbol in _PATTERN)


@located
def stamp(uri: str) -> Stamp:
    """Return an input file's version without reading it. Raises StorageError where it is missing."""
    fs, path = resolve(uri)
    try:
        found = fs.info(path)
    except FileNotFoundError as error:
        raise StorageError("no such file", where=uri, fix="Check the path in the config.") from error
    name = path.rsplit("/", 1)[-1]
    if _CONTENT_NAME.fullmatch(name):
        return Stamp(name, int(found["size"]), "")
    tag = found.get("ETag") or found.get("etag")
    # a local file's `created` is the inode's last change, so a copy that keeps the time of change still differs
    version = str(tag) if tag else " ".join(str(found[key]) for key in _TIMES if found.get(key))
    return Stamp(name, int(found["size"]), version)


def require_file(uri: str) -> None:
    """Raise StorageError where a local path is not a regular file: reading a pipe or device may never end."""
    if "\0" in uri:
        raise StorageError("a path cannot hold a NUL byte", where=repr(uri), fix="Check the path.")
    fs, path = resolve(uri)
    if isinstance(fs, LocalFileSystem) and Path(path).exists():
        refuse_special(path, Path(path).stat().st_mode)


def refuse_special(path: str, mode: int) -> None:
    """Raise StorageError for a local path whose mode is not a regular file's, and for the kernel's own folders."""
    real = os.path.realpath(path)
    kernel = any(real == root or real.startswith(f"{root}/") for root in _KERNEL)
    if kernel or not stat.S_ISREG(mode):
        other = "a folder" if stat.S_ISDIR(mode) else "a pipe, a device or a socket"
        raise StorageError(
            f"is {'a view of the kernel' if kernel else other}, not a file",
            where=path,
            fix="Write the table to a file first.",
        )
