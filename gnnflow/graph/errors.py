"""Errors for people: the problem, its place, and its fix.

Everything a user or their tables can cause raises a `GnnflowError`; the command line prints it as one message without a
traceback. Our own broken invariants are `assert`s instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.graph.secrets import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence


def listed(names: Sequence[str], *, at_most: int = 5) -> str:
    """Return names with commas between them; of many, the first ones and the number of the others."""
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more


def printable(text: str) -> str:
    """Return the text with control characters, such as an escape sequence in an id, written out."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign == "\n" or sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


class GnnflowError(Exception):
    """A problem a user can act on.

    `problem` names the offending value, `where` the file, column, row or YAML path, `fix` what to do next.
    """

    def __init__(self, problem: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        """Return `where: problem. fix` without the secrets of any URL in it."""
        head = f"{self.where}: {self.problem}" if self.where else self.problem
        return printable(mask_secrets(f"{head.rstrip('.')}. {self.fix}" if self.fix else head))

    def document(self) -> dict[str, str]:
        """Return its kind and parts as plain text for programs, without secrets."""
        parts = {"where": self.where, "problem": self.problem, "fix": self.fix}
        return {"kind": type(self).__name__, **{name: mask_secrets(text) for name, text in parts.items()}}

    def __reduce__(self) -> tuple[object, ...]:
        """Keep all three parts between processes: exceptions otherwise keep positional arguments only."""
        return (_rebuild, (type(self), self.problem, self.where, self.fix))


def _rebuild(kind: type[GnnflowError], problem: str, where: str, fix: str) -> GnnflowError:
    return kind(problem, where=where, fix=fix)


class ConfigError(GnnflowError):
    """The configuration is not valid."""


class TableError(GnnflowError):
    """A node or edge table breaks its contract."""


class StorageError(GnnflowError):
    """A file or manifest is missing, truncated or differs from its manifest."""


class MachineError(GnnflowError):
    """The machine, its disk, its memory or its network failed; finished work is kept, and a retry may succeed."""


class LayerError(GnnflowError):
    """A layer or model cannot be built or cannot run on this execution."""


class TrainingError(GnnflowError):
    """Training cannot start or went wrong."""


class ParityError(GnnflowError):
    """GraphInfer and the k-hop path disagree."""


class ScoringError(GnnflowError):
    """The scores may not be published."""


class ClusterError(GnnflowError):
    """The Dask cluster cannot be reached or lost its workers."""


class GuardError(GnnflowError):
    """Tables or predictions changed more, or more rows are bad, than the config allows."""


class RegistryError(GnnflowError):
    """The registry has no such model or version, or cannot do this."""


class Interrupted(BaseException):
    """A signal told the process to stop: it releases its resources and ends. signal: its number."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal
