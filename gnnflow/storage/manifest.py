"""The manifest: a stage's one commit point.

A stage writes its files, then one `manifest.json` naming them. Without it the folder is no artifact; with it the
artifact never changes. The digest covers the files' digests in order, so equal content means an equal digest; the
document's checksum covers the whole manifest.

Of several attempts at one artifact, the first that claims it becomes the artifact, whole, and no other ever does. Two
runs may make a stage at once: one stalls (a laptop sleeps, a container is paused), another takes over its lease, and
the first wakes up. That is harmless where both write the same bytes. A training may give other bytes each time, with
servers that do not wait, stolen batches, or another kind of processor. Such an attempt has a separate folder. A claim,
which is created once, names it, and whoever finds the claim completes the artifact from the named attempt: all who do
so copy the same bytes, however late they are.
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
from gnnflow.storage.documents import CHECKSUM, check_document, encode_document, load_document, read_document
from gnnflow.storage.filesystem import exists, join, size_of
from gnnflow.storage.verified import entries_of, read_verified, remedy
from gnnflow.storage.workspace import MANIFEST
from gnnflow.storage.writing import FileEntry, create_exclusive, remove_file, sync_folder, write_atomic

CLAIM = "claim.json"
_ATTEMPT = "attempt"

Facts = TypeVar("Facts")


@dataclass(frozen=True)
class Manifest:
    """Files, rows and facts that a stage made.

    `facts` depend on the stage (see `gnnflow.graph.facts`); `timings` are seconds per round, and how
    the work was done; they never enter the digest.
    `code` has a hash of the source of each user module that the stage ran. `inputs` names the fingerprints of the
    artifacts it read, and `made_of` their digests, which distinguish two models of one fingerprint; an earlier version
    of gnnflow wrote none.
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

    An existing manifest stays. On a local disk the files' names are synced before the manifest's.
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
    """Return a manifest's facts as a frozen dataclass. Raises StorageError where they are not of that kind."""
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
    """Return the validator for a kind of facts, cached because building it takes longer than reading a manifest."""
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


def claim(artifact: str, *, work: str, attempt: str) -> None:
    """Commit a finished attempt as the artifact, or complete the artifact from the attempt that claimed it first.

    work: the folder of attempts; attempt: this attempt's folder there, with its files and manifest.
    """
    create_exclusive(join(artifact, CLAIM), encode_document({_ATTEMPT: attempt}))
    complete(artifact, work=work)
    remove_file(join(artifact, CLAIM))  # a claim that was made after another attempt had been committed


def complete(artifact: str, *, work: str) -> bool:
    """Return whether an artifact is committed, after committing it where an attempt in `work` has claimed it.

    Raises StorageError where the attempt that claimed it is gone.
    """
    if committed(artifact):
        return True
    if not exists(join(artifact, CLAIM)):
        return committed(artifact)  # by another just now
    fix = remedy(artifact)
    try:
        attempt = join(work, str(read_document(join(artifact, CLAIM), fix=fix)[_ATTEMPT]))
        manifest = read_manifest(attempt)
        for entry in manifest.files:
            write_atomic(join(artifact, entry.name), read_verified(attempt, entry.name))
    except StorageError as error:
        if committed(artifact):  # by another, who then removed the attempt
            return True
        raise StorageError(
            f"was begun from an attempt that is incomplete: {error.problem}", where=artifact, fix=fix
        ) from error
    commit(artifact, manifest)
    remove_file(join(artifact, CLAIM))
    return True
