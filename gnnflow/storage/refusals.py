"""Turns errors of operating systems and storage libraries into ours: the place, the problem and the fix.

`located` wraps every function that touches a filesystem, and the command line calls `refusal_of` for errors outside of
these (a stream that broke while it was read). At most a line of a library's message is kept.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from gnnflow.graph.errors import GnnflowError, MachineError, StorageError
from gnnflow.storage.access import mask_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_KEPT = "what was finished is kept, so run again"
_FIXES = {
    errno.ENOSPC: f"Free some space there, or set another workspace: {_KEPT}.",
    errno.EDQUOT: f"Free some of your quota there, or set another workspace: {_KEPT}.",
    errno.EACCES: "Give this user access to it, or set another place.",
    errno.EPERM: "Give this user access to it, or set another place.",
    errno.EROFS: "Set a workspace that can be written.",
    errno.EMFILE: f"Raise the limit of open files (ulimit -n): {_KEPT}.",
    errno.ENFILE: f"Close other programs' files: {_KEPT}.",
    errno.ENOMEM: f"Free memory, or raise graph.partitions: {_KEPT}.",
}
# paths that are wrong, whatever the machine's state
_WRONG_PATHS = {
    errno.ENOTDIR: "Part of the path is a file: set another place, or move the file away.",
    errno.EEXIST: "There is a file where a folder is needed: set another place, or move the file away.",
    errno.EISDIR: "There is a folder where a file is needed: name the file.",
    errno.ENAMETOOLONG: "Choose a shorter name or path.",
    errno.ELOOP: "Its links lead in a circle: name the place itself.",
    errno.ENOENT: "Check the path: a folder of it is missing, or cannot be made.",
    errno.EINVAL: "Check the path, or set another place.",
    errno.ENXIO: "Name an ordinary file.",
}
_LINK = "Make that folder, mount what it should hold, or set another place."
_LIBRARIES = ("aiobotocore", "aiohttp", "adlfs", "azure", "botocore", "fsspec", "gcsfs", "google", "requests", "s3fs")
_ACCESS = (
    "Check the address, the network and the keys in the environment (for s3: AWS_ACCESS_KEY_ID and "
    f"AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL): {_KEPT}."
)
_LONGEST_REASON = 200
# botocore's messages about an endpoint that is not a URL
_BAD_ENDPOINT = re.compile(
    r"Invalid endpoint: (?P<plain>.*)|Custom endpoint `(?P<quoted>.*)` was not a valid URI", re.DOTALL
)
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "FSSPEC_S3_ENDPOINT_URL")
_ELSEWHERE = "endpoint_url in ~/.aws/config, or in fsspec's settings,"
_RIGHT_ENDPOINT = "http://HOST:PORT; a host has letters, digits, '-' and '.', a port is at most 65535."
_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?(/\S*)?")


def located(
    function: Callable[Concatenate[str, Parameters], Result],
) -> Callable[Concatenate[str, Parameters], Result]:
    """Wrap a function whose first argument is a URI, so that storage errors become our errors about that URI."""

    @wraps(function)
    def call(uri: str, /, *args: Parameters.args, **options: Parameters.kwargs) -> Result:
        with locating(uri):
            return function(uri, *args, **options)

    return call


@contextmanager
def locating(uri: str) -> Iterator[None]:
    """Turn storage errors in the block into our errors about the URI."""
    try:
        yield
    except GnnflowError:
        raise
    except Exception as error:
        refusal = refusal_of(error, where=uri)
        if refusal is None:
            raise
        raise refusal from error


def refusal_of(error: BaseException, *, where: str = "") -> GnnflowError | None:
    """Return our error for an error of the machine or a storage library; None for anything else.

    where: the place it is about; by default the place that the error names.
    """
    if isinstance(error, MemoryError) or _is_short_of_memory(error):
        return MachineError(
            "there is not enough memory",
            where=where,
            fix=f"Raise graph.partitions, lower train.batch_size, raise a limit (ulimit -v and -u), or use a larger "
            f"machine: {_KEPT}.",
        )
    if (wrong := _wrong_place(error, where=where)) is not None:
        return wrong
    if not (isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _LIBRARIES):
        return None
    number = getattr(error, "errno", None)
    place = where or str(getattr(error, "filename", None) or "")
    if number in _WRONG_PATHS:
        link = _dangling(getattr(error, "filename", None))
        problem = f"is a link to {link}, which is not there" if link else os.strerror(number).lower()
        return StorageError(problem, where=place, fix=_LINK if link else _WRONG_PATHS[number])
    if number is not None and number in errno.errorcode:
        fix = _FIXES.get(number, f"Check the disk and the network: {_KEPT}.")
        return MachineError(os.strerror(number).lower(), where=place, fix=fix)
    return MachineError(f"storage failed ({_reason(error)})", where=place, fix=_ACCESS)


def _wrong_place(error: BaseException, *, where: str) -> StorageError | None:
    """Return our error for an invalid path or object store address; None for anything else."""
    if isinstance(error, ValueError) and "null byte" in str(error):
        return StorageError("holds a NUL character", where=where.replace("\0", "\\0"), fix="Write the path without it.")
    found = _BAD_ENDPOINT.match(str(error))
    if found is None:
        return None
    endpoint = found["plain"] or found["quoted"] or ""
    place = next((name for name in _ENDPOINTS if os.environ.get(name) == endpoint), _ELSEWHERE)
    address = endpoint.rpartition("@")[2]  # without a password, which nothing masks where there is no scheme
    scheme, _, host = address.strip().rpartition(":/")
    url = f"{'https' if scheme == 'https' else 'http'}://{host.lstrip('/')}"
    right = f"{url}." if _HOST.fullmatch(host.lstrip("/")) and url != address else _RIGHT_ENDPOINT
    problem = f"the object store's address {address!r} is not a valid http or https URL"
    return StorageError(problem, where=where, fix=f"Set {place} to {right}")


def _is_short_of_memory(error: BaseException) -> bool:
    """Return whether torch, a new thread or an import ran out of memory, by the message."""
    said = {
        RuntimeError: ("allocate memory", "start new thread"),
        ImportError: ("failed to map segment", "allocate memory"),
    }
    return any(isinstance(error, kind) and text in str(error) for kind, texts in said.items() for text in texts)


def _dangling(path: object) -> str:
    """Return the missing target of a symbolic link; "" for anything else."""
    with suppress(OSError):  # a name that is too long, or has a file before its end, is no link
        link = Path(path) if isinstance(path, str) else Path()
        return str(link.readlink()) if link.is_symlink() and not link.exists() else ""
    return ""


def _reason(error: BaseException) -> str:
    line = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    line = mask_credentials(line)
    line = line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}..."
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
