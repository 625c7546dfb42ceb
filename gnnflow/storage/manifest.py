"""The manifest: a stage's one commit point.

A stage writes its files, then one `manifest.json` naming them. Without it the folder is no artifact; with it the
artifact never changes. The digest covers the files' digests in order, so equal content means an equal digest.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import FileEntry, exists, join, read_json, size_of, write_json

Facts = TypeVar("Facts")

MANIFEST = "manifest.json"
_RERUN = "Delete the artifact's folder and run again."


@dataclass(frozen=True)
class Manifest:
    """What a stage made.

    `facts` are the stage's own (see `gnnflow.graph.facts`); `timings` are seconds per round and never enter the digest.
    """

    stage: str
    fingerprint: str
    format_version: int
    files: tuple[FileEntry, ...]
    inputs: dict[str, str]
    rows_in: int
    rows_out: int
    rows_quarantined: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    digest: str = ""


def fingerprint_of(stage: str, *, keys: Any, inputs: Any, format_version: int) -> str:
    """Return the name under which a stage's work is done once: a hash of its config keys, inputs and format."""
    content = {"stage": stage, "keys": keys, "inputs": inputs, "format": format_version}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def digest_of(files: tuple[FileEntry, ...]) -> str:
    """Return the digest over the files' names and digests, in order."""
    lines = "".join(f"{entry.name} {entry.sha256}\n" for entry in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def commit(artifact: str, manifest: Manifest) -> Manifest:
    """Write the manifest, which makes the artifact exist, and return it with digest and versions filled in."""
    versions = {**library_versions(), **manifest.versions}
    complete = replace(manifest, digest=digest_of(manifest.files), versions=versions)
    write_json(join(artifact, MANIFEST), asdict(complete))
    return complete


def committed(artifact: str) -> bool:
    """Return whether an artifact exists."""
    return exists(join(artifact, MANIFEST))


def read_manifest(artifact: str) -> Manifest:
    """Return an artifact's manifest. Raises StorageError where it is missing or damaged, or its files are."""
    uri = join(artifact, MANIFEST)
    content = read_json(uri)
    try:
        files = tuple(FileEntry(**entry) for entry in content["files"])
        manifest = Manifest(**{**content, "files": files})
    except (TypeError, KeyError) as error:
        raise StorageError(f"is not a manifest ({error})", where=uri, fix=_RERUN) from error
    if manifest.digest != digest_of(files):
        raise StorageError("the digest does not match the files it lists", where=uri, fix=_RERUN)
    _check_files(artifact, files)
    return manifest


def read_facts(artifact: str, manifest: Manifest, kind: type[Facts]) -> Facts:
    """Return a manifest's facts as the frozen values they are. Raises StorageError where they are not of that kind."""
    try:
        return TypeAdapter(kind).validate_python(manifest.facts)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise StorageError(
            f"its facts are not those of stage {manifest.stage} (facts.{place}: {first['msg']})",
            where=join(artifact, MANIFEST),
            fix="It was written by another version of gnnflow, or damaged: run again.",
        ) from error


def _check_files(artifact: str, files: tuple[FileEntry, ...]) -> None:
    for entry in files:
        where = join(artifact, entry.name)
        size = size_of(where)
        if size is None:
            raise StorageError("the manifest lists this file, but it is missing", where=where, fix=_RERUN)
        if size != entry.size:
            raise StorageError(f"has {size} bytes, the manifest says {entry.size}", where=where, fix=_RERUN)


def library_versions() -> dict[str, str]:
    """Return the versions that could change an artifact's bytes."""
    import numpy as np
    import pyarrow as pa

    from gnnflow import __version__

    return {
        "gnnflow": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
    }
