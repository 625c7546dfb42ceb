"""One row of the table: how an input is made, what must happen, and the judge of what did.

refused: exit code 2, one message that names the place and says what to do, no traceback, no output, no new file.
accepted: exit code 0, and ids, counts and values arrive as given. either: one of the two, where both would be right.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.command_line import Shown, run_cli
from tests.robustness.inputs import Inputs, Spoil, valid
from tests.robustness.stored import differences

Must = Literal["refused", "accepted", "either"]

_LONGEST_MESSAGE = 6000
_SECONDS = 120
_ADDRESS_KIB = 12 * 1024**2
# What to do about it: a sentence of its own after the problem, a command to type, or what a value must be.
_FIX = re.compile(r"(?:[.:)\]'\"?]|\n) +(?:[A-Z][a-z]*|`gnnflow)|\n {2,}\S|must (?:be|have|not)")
# The note that a run which began leaves where it fails (`gnnflow.storage.attempts`).
_NOTE = re.compile(r"runs/runs/[^/]+/[0-9a-f]{32}/attempt\.json")


@dataclass(frozen=True)
class Case:
    """A row. words: what a refusal's message must name, `a|b` for either. check: what an accepted input is asked.

    hidden: what nothing that is written may hold. leaves: folders below the case's own that a refusal may leave, and
    with them the note of the failed run.
    alone: in a process of its own, because it could hang one. limit: what that process is denied. usage: the command
    line itself is wrong, which the parser of the command line may say in its own form. keeps: kinds of resources that a
    library keeps in the process.
    """

    name: str
    spoil: Spoil
    must: Must
    words: tuple[str, ...] = ()
    check: Callable[[Inputs, Shown], list[str]] | None = None
    hidden: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    alone: bool = False
    limit: str = ""
    usage: bool = False
    keeps: tuple[str, ...] = ()

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        """A process takes seconds to start, so those cases are for the suite that runs everything."""
        return (pytest.mark.keeps(*self.keeps), *((pytest.mark.slow,) if self.alone else ()))


def refused(name: str, spoil: Spoil, *words: str, **more: Any) -> Case:
    assert words, f"{name}: what must the message name?"
    return Case(name, spoil, "refused", words, **more)


def accepted(name: str, spoil: Spoil, **more: Any) -> Case:
    return Case(name, spoil, "accepted", **more)


def either(name: str, spoil: Spoil, *words: str, **more: Any) -> Case:
    return Case(name, spoil, "either", words, **more)


def anything(inputs: Inputs, shown: Shown) -> list[str]:
    """Ask nothing of what was accepted."""
    return []


def nothing_odd(inputs: Inputs, shown: Shown) -> list[str]:
    """Ask that it was not accepted at all: for what may be refused in more than one form."""
    return [f"accepted: {shown.out[:100]}"]


def verdict(case: Case, folder: Path) -> list[str]:
    """Write a case's input, run its command and return what is wrong with what happened; empty where nothing is."""
    inputs = valid(folder)
    case.spoil(inputs)
    inputs.write()
    before = files_below(folder)
    if case.alone:
        shown = run_alone(inputs.arguments(), environment=inputs.environment, limit=case.limit)
    else:
        shown = run_cli(inputs.arguments(), environment=inputs.environment)
    left = sorted(files_below(folder) - before)
    return judge(case, inputs, shown, left)


def judge(case: Case, inputs: Inputs, shown: Shown, left: list[str]) -> list[str]:
    """Return what is wrong with what a case's command did."""
    wrong = [f"wrote the secret {secret!r}" for secret in case.hidden if secret in shown.out + shown.err]
    wrong += [f"stored the secret {secret!r}" for secret in case.hidden if _is_stored(secret, inputs.folder, left)]
    if "Traceback" in shown.err + shown.out:
        return [*wrong, f"traceback: {shown.err.strip().splitlines()[-1][:300]}"]
    if case.must == "accepted" or (case.must == "either" and shown.code == 0):
        if shown.code != 0:
            return [*wrong, f"refused, exit code {shown.code}: {shown.err.strip()[-600:]}"]
        return wrong + (case.check(inputs, shown) if case.check else differences(inputs))
    if shown.code == 0:
        return [*wrong, f"accepted: {shown.err.strip()[-200:]}"]
    return wrong + refusal_faults(shown, case.words, usage=case.usage) + _left_over(case, left)


def refusal_faults(shown: Shown, words: tuple[str, ...] = (), *, usage: bool = False) -> list[str]:
    """Return what is wrong with a refusal."""
    message, wrong = shown.message, []
    if shown.code != 2:
        wrong.append(f"exit code {shown.code}")
    if usage and not message and ("Usage:" in shown.err or "Error" in shown.err):
        message = " ".join(shown.err.split())
    elif len(re.findall(r"^error: ", shown.err, re.MULTILINE)) != 1:
        return [*wrong, f"not one message: {shown.err.strip()[-300:]!r}"]
    elif not _FIX.search(message):
        wrong.append(f"says no fix: {message}")
    if shown.out and not _is_error_object(shown.out):
        wrong.append(f"wrote to stdout: {shown.out[:100]!r}")
    if len(message) > _LONGEST_MESSAGE:
        wrong.append(f"{len(message)} characters long")
    if any(not (char.isprintable() or char in "\n\t") for char in message):
        wrong.append(f"is not printable: {message!r}")
    named = [word for word in words if not any(part in message for part in word.split("|"))]
    return wrong + [f"does not name {word!r}: {message}" for word in named]


def _is_error_object(text: str) -> bool:
    """Return whether a refusal's output is the object that `--json` promises a script."""
    try:
        return set(json.loads(text)) == {"error"}
    except (ValueError, TypeError):
        return False


def _left_over(case: Case, left: list[str]) -> list[str]:
    if case.leaves:
        left = [file for file in left if not file.startswith(case.leaves) and _NOTE.fullmatch(file) is None]
    return [f"left behind: {left[:4]}"] if left else []


def _is_stored(secret: str, folder: Path, left: list[str]) -> bool:
    return any(secret.encode() in (folder / file).read_bytes() for file in left)


def files_below(folder: Path) -> set[str]:
    """Return the names of the files below a folder, relative to it."""
    return {
        os.path.relpath(Path(root) / name, folder)
        for root, _, names in os.walk(folder)
        for name in names
        if name != "dask-scratch-space"
    }


def run_alone(arguments: list[str], *, environment: dict[str, str] | None = None, limit: str = "") -> Shown:
    """Run the command line in a process of its own, with 20 s and 12 GiB. limit: what else `ulimit` is told."""
    words = ["bash", "-c", f'ulimit -v {_ADDRESS_KIB} {limit}; exec "$@"', "bash", sys.executable, "-m", "gnnflow.cli"]
    try:
        done = subprocess.run(
            [*words, *arguments],
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Shown(-1, "", f"hangs: no end after {_SECONDS} s")
    return Shown(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
