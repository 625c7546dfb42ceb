"""Of several attempts at one artifact, the first that claims it becomes the artifact, whole, and no other ever does.

Two runs may make a stage at once: one stalls (a laptop sleeps, a container is paused), another takes over its lease,
and the first wakes up. Where both write the same bytes that harms nothing. A training may give other bytes each time:
servers that do not wait, batches that are stolen, another kind of processor. Such an attempt is made in a folder of its
own. A claim, which is created once, names it, and whoever finds the claim completes the artifact from the attempt that
it names: all who do so copy the same bytes, however late they are.
"""

from __future__ import annotations

from gnnflow.graph.errors import StorageError
from gnnflow.storage.documents import encode_document, read_document
from gnnflow.storage.filesystem import exists, join
from gnnflow.storage.manifest import commit, committed, read_manifest
from gnnflow.storage.removal import remove_file
from gnnflow.storage.verified import read_verified, remedy
from gnnflow.storage.writing import create_exclusive, write_atomic

CLAIM = "claim.json"
_ATTEMPT = "attempt"


def claim(artifact: str, *, work: str, attempt: str) -> None:
    """Commit a finished attempt as the artifact, or complete the artifact from the attempt that was first to claim it.

    work: the folder that attempts lie in; attempt: this one's name there, a folder with its files and manifest.
    """
    create_exclusive(join(artifact, CLAIM), encode_document({_ATTEMPT: attempt}))
    complete(artifact, work=work)
    _forget(artifact)  # one that was made after another attempt had been committed


def complete(artifact: str, *, work: str) -> bool:
    """Return whether an artifact is committed, after committing it where an attempt in `work` has claimed it.

    Raises StorageError where an attempt has claimed it and is not there any more.
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
            f"was begun from an attempt that is not whole: {error.problem}", where=artifact, fix=fix
        ) from error
    commit(artifact, manifest)
    _forget(artifact)
    return True


def _forget(artifact: str) -> None:
    """Delete the claim of a committed artifact, which nobody reads any more."""
    remove_file(join(artifact, CLAIM))
