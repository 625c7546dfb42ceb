"""Prints every error of the command line: one message with place and fix, or two lines about our bug.

With --json, stdout gets the same as an object, {"error": {"kind", "where", "problem", "fix"}}. A traceback is written
to a log; the variable GNNFLOW_DEBUG shows it on the terminal too.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable

import typer

from gnnflow import __version__
from gnnflow.graph.errors import GnnflowError
from gnnflow.graph.secrets import mask_secrets
from gnnflow.storage.refusals import refusal_of

_BUG, _REFUSED, _NO_READER = 1, 2, 141
# The base of typer's errors about arguments, in a package that depends on typer's version.
_ArgumentError: type[Exception] = typer.BadParameter.__mro__[2]


class UsageError(GnnflowError):
    """The command's arguments are wrong."""


class BugError(GnnflowError):
    """Our bug, with its traceback in a log."""


def listed(error: Exception) -> GnnflowError:
    """Return the error of one of several runs in the form that a list of results shows."""
    refusal = _refusal(error)
    return refusal if refusal is not None else _bug(error)


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
        bug = _bug(error)
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


def _bug(error: Exception) -> BugError:
    """Write an error's traceback to a log and return the bug to print."""
    return BugError(
        f"this is a bug of gnnflow ({type(error).__name__}); what was finished is kept",
        fix=f"The log to report it with: {_write_log(error)}",
    )


def _one_line(text: str) -> str:
    """Return the text without control characters other than line ends."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


def _write_log(error: Exception) -> str:
    """Write the traceback to a temporary file and return its path, or why there is none."""
    head = f"gnnflow {__version__}, Python {platform.python_version()}, {platform.platform()}\n{sys.argv[1:]}\n\n"
    content = mask_secrets(head + "".join(traceback.format_exception(error)))
    try:
        number, path = tempfile.mkstemp(prefix="gnnflow-", suffix=".log")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(content)
    except OSError:
        return "none could be written (set GNNFLOW_DEBUG=1 to see it here)"
    return path
