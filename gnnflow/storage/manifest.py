"""The manifest: a stage's one commit point.

A stage writes its files, then one `manifest.json` naming them. Without it the folder is no artifact; with it the
artifact never changes. The digest covers the files' digests in order, so equal content means an equal digest; the
document's own checksum covers all that the manifest says.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from gnnflow.graph.errors import StorageError
from gnnflow.storage.documents import CHECKSUM, check_document, encode_document, load_document
from gnnflow.storage.filesystem import exists, join, size_of
from gnnflow.storage.verified import entries_of, remedy
from gnnflow.storage.workspace import MANIFEST
from gnnflow.storage.writing import FileEntry, create_exclusive, sync_folder

Facts = TypeVar("Facts")


@dataclass(frozen=True)
class Manifest:
    """Files, rows and facts that a stage made.

    `facts` are the stage's own (see `gnnflow.graph.facts`); `timings` are seconds per round and never enter the digest.
    `code` has a hash of the source of each of the user's own modules that the stage ran. `inputs` names the
    fingerprints of the artifacts it was made of, and `made_of` their digests, which tell two models of one fingerprint
    apart; an earlier version of gnnflow wrote none.
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
    code: dict[str, str] = field(default_factory=dict)
    made_of: dict[str, str] = field(default_factory=dict)
    digest: str = ""

    @property
    def num_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)


def fingerprint_of(stage: str, *, keys: Any, inputs: Any, format_version: int) -> str:
    """Return the name under which a stage's work is done once: a hash of its config keys, inputs and format."""
    content = {"stage": stage, "keys": keys, "inputs": inputs, "format": format_version}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def digest_of(files: tuple[FileEntry, ...]) -> str:
    """Return the digest over the files' names and digests, in order."""
    lines = "".join(f"{entry.name} {entry.sha256}\n" for entry in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def commit(artifact: str, manifest: Manifest) -> Manifest:
    """Write the manifest, which makes the artifact exist, and return it with digest and versions filled in.

    One that is there stays. On a local disk the files' names are on it before the manifest's is.
    """
    versions = {**library_versions(), **manifest.versions}
    complete = replace(manifest, digest=digest_of(manifest.files), versions=versions)
    for folder in sorted({join(artifact, entry.name).rsplit("/", 1)[0] for entry in manifest.files}):
        sync_folder(folder)
    if create_exclusive(join(artifact, MANIFEST), encode_document(asdict(complete))):
        sync_folder(artifact)
    return complete


def committed(artifact: str) -> bool:
    """Return whether an artifact exists."""
    return exists(join(artifact, MANIFEST))


def read_manifest(artifact: str) -> Manifest:
    """Return an artifact's manifest. Raises StorageError where it is missing or damaged, or its files are."""
    uri = join(artifact, MANIFEST)
    fix = remedy(artifact)
    content = load_document(uri, fix=fix)
    try:
        files = entries_of(content["files"], where=uri, fix=fix)
        manifest = Manifest(**{key: held for key, held in content.items() if key != CHECKSUM} | {"files": files})
    except (TypeError, KeyError) as error:
        raise StorageError(f"is not a manifest ({error})", where=uri, fix=fix) from error
    if manifest.digest != digest_of(files):
        raise StorageError("the digest does not match the files it lists", where=uri, fix=fix)
    check_document(content, uri=uri, fix=fix)
    _check_files(artifact, files)
    return manifest


def read_facts(artifact: str, manifest: Manifest, kind: type[Facts]) -> Facts:
    """Return a manifest's facts as the frozen values they are. Raises StorageError where they are not of that kind."""
    try:
        facts: Facts = _adapter(cast("Any", kind)).validate_python(manifest.facts)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise StorageError(
            f"its facts are not those of stage {manifest.stage} (facts.{place}: {first['msg']})",
            where=join(artifact, MANIFEST),
            fix=f"It was written by another version of gnnflow, or damaged. {remedy(artifact)}",
        ) from error
    return facts


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what validates facts of a kind, made once: to make it takes longer than to read a manifest."""
    return TypeAdapter(kind)


def facts_if_committed(artifact: str, kind: type[Facts]) -> Facts | None:
    """Return the facts of an artifact, None where it is not there. Raises StorageError where it is damaged."""
    return read_facts(artifact, read_manifest(artifact), kind) if committed(artifact) else None


def _check_files(artifact: str, files: tuple[FileEntry, ...]) -> None:
    for entry in files:
        where = join(artifact, entry.name)
        size = size_of(where)
        if size is None:
            raise StorageError("the manifest lists this file, but it is missing", where=where, fix=remedy(artifact))
        if size != entry.size:
            fix = remedy(artifact)
            raise StorageError(f"has {size} bytes, the manifest says {entry.size}", where=where, fix=fix)


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
