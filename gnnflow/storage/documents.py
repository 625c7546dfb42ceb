"""JSON documents with a checksum over their other keys, which detects changes.

Manifests, run records, versions, aliases and task records are such documents. Documents of earlier versions of gnnflow
have no checksum and are read without a check.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import read_json
from gnnflow.storage.writing import FileEntry, encode_json, sync_folder, write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKSUM = "checksum"


def encode_document(value: Mapping[str, Any]) -> bytes:
    """Return a document's bytes with its checksum; equal values are equal bytes."""
    return encode_json({**value, CHECKSUM: digest_of(value)})


def write_document(uri: str, value: Mapping[str, Any], *, durable: bool = True) -> FileEntry:
    """Write a document atomically. durable: on a local disk it and its name survive a power failure."""
    entry = write_atomic(uri, encode_document(value), durable=durable)
    if durable:
        sync_folder(uri.rsplit("/", 1)[0])
    return entry


def read_document(uri: str, *, fix: str) -> dict[str, Any]:
    """Return a document without its checksum.

    fix: the error's advice. Raises StorageError where it is missing, is not a JSON object, or was changed.
    """
    held = load_document(uri, fix=fix)
    check_document(held, uri=uri, fix=fix)
    return {key: value for key, value in held.items() if key != CHECKSUM}


def load_document(uri: str, *, fix: str) -> dict[str, Any]:
    """Return a document with its checksum, unchecked."""
    try:
        held = read_json(uri)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise
        raise StorageError(error.problem, where=uri, fix=fix) from error
    if not isinstance(held, dict):
        raise StorageError("is damaged: it is not a JSON object", where=uri, fix=fix)
    return held


def check_document(held: Mapping[str, Any], *, uri: str, fix: str) -> None:
    """Raise StorageError where a document's values do not match its checksum."""
    expected = held.get(CHECKSUM)
    found = digest_of({key: value for key, value in held.items() if key != CHECKSUM})
    if expected is not None and expected != found:
        raise StorageError(
            f"is damaged: its content has the checksum {found}, and it says {expected}", where=uri, fix=fix
        )


def digest_of(value: Mapping[str, Any]) -> str:
    """Return the sha256 of values as a JSON document, the same for equal values."""
    return hashlib.sha256(encode_json(value)).hexdigest()
