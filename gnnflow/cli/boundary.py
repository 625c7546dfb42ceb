"""Prints every error of the command line: one message with place and fix, or two lines about our bug.

With --json, stdout gets the same as an object, {"error": {"kind", "where", "problem", "fix"}}. A traceback is written
to a log; the variable GNNFLOW_DEBUG shows it on the terminal too.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable

import typer

from gnnflow.api.bugs import bug_of
from gnnflow.graph.errors import GnnflowError
from gnnflow.graph.secrets import mask_secrets
from gnnflow.storage.refusals import refusal_of

_BUG, _REFUSED, _NO_READER = 1, 2, 141
# The base of typer's errors about arguments, in a package that depends on typer's version.
_ArgumentError: type[Exception] = typer.BadParameter.__mro__[2]


class UsageError(GnnflowError):
    """The command's arguments are wrong."""


def run_guarded(build_app: Callable[[], typer.Typer], *, as_json: bool) -> int:
    """Run the command that sys.argv holds and return its exit code. Raises Interrupted alone."""
    try:
        code = build_app()(standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        # the reader of our output has closed it; typer may exit with 1 for it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NO_READER
    except Exception as error:  # noqa: BLE001 - unforeseen errors are printed too, and their traceback kept
        return _tell(error, as_json=as_json)
    return code if isinstance(code, int) else 0


def _tell(error: Exception, *, as_json: bool) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # typer has shown the help
        return _REFUSED
    refusal = _refusal(error)
    if os.environ.get("GNNFLOW_DEBUG", "") not in {"", "0"}:
        sys.stderr.write(mask_secrets("".join(traceback.format_exception(error))))
    if refusal is not None:
        sys.stderr.write(f"error: {_one_line(str(refusal))}\n")
        document, code = refusal.document(), _REFUSED
    else:
        bug = bug_of(error)
        sys.stderr.write(f"error: {bug.problem}\n{bug.fix}\n")
        document, code = {**bug.document(), "kind": type(error).__name__}, _BUG
    if as_json:
        sys.stdout.write(json.dumps({"error": document}, sort_keys=True) + "\n")
    return code


def _refusal(error: Exception) -> GnnflowError | None:
    """Return the error as one that a user can act on; None for a bug."""
    if isinstance(error, GnnflowError):
        return error
    if isinstance(error, _ArgumentError):
        command = getattr(getattr(error, "ctx", None), "command_path", "gnnflow")
        said = getattr(error, "format_message", lambda: str(error))()
        return UsageError(said, where=command, fix=f"See `{command} --help`.")
    return refusal_of(error)


def _one_line(text: str) -> str:
    """Return the text without control characters other than line ends."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)
