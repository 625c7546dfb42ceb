"""Notes of runs that began: which runs are under way, failed or were stopped, for `gnnflow runs`.

    runs/<name>/<fingerprint>/attempt.json

A run writes its note when it begins and removes it when it is complete; a failed one leaves it with the problem. Of a
run whose process is gone the note is all that is left. No result depends on a note.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from gnnflow.graph.errors import GnnflowError, StorageError
from gnnflow.graph.secrets import mask_secrets
from gnnflow.storage.filesystem import age_of, exists, join, list_names, read_bytes
from gnnflow.storage.lease import is_holder_gone, this_process
from gnnflow.storage.workspace import RUN, Workspace
from gnnflow.storage.writing import remove_file, write_atomic

ATTEMPT = "attempt.json"
_PROBLEM = "problem"


@dataclass(frozen=True)
class Attempt:
    """A run that is not complete. problem: why it failed; empty for another one. age: seconds since its last word."""

    uri: str
    status: Literal["running", "failed", "stopped"]
    problem: str
    age: float

    @property
    def name(self) -> str:
        """The run's name."""
        return self.uri.split("/")[-2]

    def summary(self) -> dict[str, Any]:
        """Return plain values."""
        return {"name": self.name, "run": self.uri, "status": self.status, _PROBLEM: self.problem}


@contextmanager
def kept_attempt(run: str) -> Iterator[None]:
    """Keep a run's note while the block works; a failed block leaves it. The note's own failures stop nothing."""
    where = join(run, ATTEMPT)
    if exists(join(run, RUN)):  # it is complete, and may be read-only
        yield
        return
    _note(where)
    try:
        yield
    except GnnflowError as error:
        _note(where, problem=mask_secrets(str(error)))
        raise
    except BaseException as error:
        _note(where, problem=type(error).__name__ if isinstance(error, Exception) else "")
        raise
    with suppress(OSError, StorageError):
        remove_file(where)


def list_attempts(workspace: Workspace) -> list[Attempt]:
    """Return the runs of a workspace that began and are not complete, the latest last."""
    above = join(workspace.uri, "runs")
    found = [join(above, name, each) for name in list_names(above) for each in list_names(join(above, name))]
    notes = [_read(uri) for uri in found if exists(join(uri, ATTEMPT)) and not exists(join(uri, RUN))]
    return sorted((each for each in notes if each is not None), key=lambda each: -each.age)


def _note(where: str, *, problem: str | None = None) -> None:
    held = this_process() if problem is None else {_PROBLEM: problem}
    with suppress(OSError, StorageError):
        write_atomic(where, json.dumps(held).encode(), durable=False)


def _read(uri: str) -> Attempt | None:
    """Return the attempt of a run's folder; None where its note was removed just now, or is damaged."""
    try:
        content = read_bytes(join(uri, ATTEMPT))
        held, age = json.loads(content), age_of(join(uri, ATTEMPT)) or 0.0
    except (StorageError, ValueError):
        return None
    if not isinstance(held, dict):
        return None
    if problem := held.get(_PROBLEM):
        return Attempt(uri, "failed", str(problem), age)
    return Attempt(uri, "stopped" if _PROBLEM in held or is_holder_gone(content) else "running", "", age)
