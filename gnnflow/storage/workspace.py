"""The layout of a workspace.

artifacts/<stage>/<fingerprint>/   written once, shared by every run that asks for the same thing
work/<stage>/<fingerprint>/        a stage in progress: what a restart resumes from; removed at the commit
failed/<stage>/<fingerprint>/      files of a failed stage for a person to read; removed once the stage succeeds
logs/<name>/<fingerprint>/         TensorBoard's event files of a training stage, where train.log asks for them
runs/<name>/<fingerprint>/         one run's config, metrics, predictions and report
runs/<name>/latest.json            the last completed run
tables/sha256-<digest>.parquet     a table that was given in memory, named by its content; may be deleted with its runs
"""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import relpath
from urllib.parse import quote

from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import CONTENT, absolute, exists, has_pattern, is_below, join

# the documents that list the files of an artifact, a run and a published version; written last, they commit it
MANIFEST = "manifest.json"
RUN = "run.json"
VERSION = "version.json"
# the learning curves so far, in the work folder of a training
HISTORY = "history.jsonl"
# the files of a saved model, which `layers/saved.py` reads and writes
WEIGHTS = "model.safetensors"
DESCRIPTION = "model.json"
MODEL_FILES = (WEIGHTS, DESCRIPTION)
_AREAS = ("artifacts", "work", "failed", "logs", "runs", "registry", "comparisons", "tables")


@dataclass(frozen=True)
class Workspace:
    """The layout below one URI."""

    uri: str

    @staticmethod
    def at(uri: str) -> Workspace:
        """Return the workspace at a URI; local paths become absolute, so that every worker means the same folder.

        Raises StorageError for a pattern, which object stores would read as many workspaces, and for a bare scheme.
        """
        if uri.endswith("://"):
            raise StorageError("names no place", where=uri, fix="Give a folder, or a bucket such as s3://bucket/runs.")
        if has_pattern(uri):
            raise StorageError(
                "holds one of the characters * ? [, which object stores read as a pattern",
                where=uri,
                fix="Give the workspace another name.",
            )
        return Workspace(absolute(uri))

    @staticmethod
    def of(uri: str) -> Workspace:
        """Return the workspace of an artifact, a run or a version: each lies three levels below it."""
        return Workspace(absolute(uri).rstrip("/").rsplit("/", 3)[0])

    def now_at(self, recorded: str) -> str:
        """Return the place of an artifact or run that a document of this workspace names.

        Documents name places in full. A workspace that was moved, copied or is reached through a link has them below
        its new place; an artifact or run that it lacks, or has only in part, stays where it was recorded.
        """
        own = join(self.uri, *recorded.rstrip("/").split("/")[-3:])
        whole = own != recorded and any(exists(join(own, listing)) for listing in (MANIFEST, RUN))
        return own if whole else recorded

    def link(self, uri: str, *, folder: str) -> str:
        """Return the link from a page in a folder to a file of this workspace, "" for a file elsewhere.

        Such a link holds wherever the workspace is served or copied.
        """
        return quote(relpath(uri, folder)) if uri.startswith(f"{self.uri}/") else ""

    def owns(self, file: str) -> bool:
        """Return whether a file lies in one of the workspace's areas."""
        return any(is_below(file, join(self.uri, area)) for area in _AREAS)

    def artifact(self, stage: str, fingerprint: str) -> str:
        """Return the folder of a finished stage."""
        return join(self.uri, "artifacts", stage, fingerprint)

    def work(self, stage: str, fingerprint: str) -> str:
        """Return the folder of a stage in progress."""
        return join(self.uri, "work", stage, fingerprint)

    def failed(self, stage: str, fingerprint: str) -> str:
        """Return the folder of files that a failed stage kept."""
        return join(self.uri, "failed", stage, fingerprint)

    def logs(self, name: str, fingerprint: str) -> str:
        """Return the folder of a training stage's event files."""
        return join(self.uri, "logs", name, fingerprint)

    def run(self, name: str, fingerprint: str) -> str:
        """Return the folder of one run."""
        return join(self.uri, "runs", name, fingerprint)

    def table(self, digest: str) -> str:
        """Return the file of a table that was given in memory."""
        return join(self.uri, "tables", f"{CONTENT}{digest}.parquet")

    def latest(self, name: str) -> str:
        """Return the pointer to the last completed run of a name."""
        return join(self.uri, "runs", name, "latest.json")


def same_run(first: str, second: str) -> bool:
    """Return whether two places are one run or copies of it, by its name and fingerprint."""
    return first.rstrip("/").split("/")[-2:] == second.rstrip("/").split("/")[-2:]
