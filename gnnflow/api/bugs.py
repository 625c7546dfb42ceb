"""Tells errors that a user can act on from bugs of gnnflow, whose traceback goes to a log."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback

from gnnflow import __version__
from gnnflow.graph.errors import GnnflowError
from gnnflow.graph.secrets import mask_secrets
from gnnflow.storage.refusals import refusal_of


class BugError(GnnflowError):
    """Our bug, with its traceback in a log."""


def listed(error: Exception) -> GnnflowError:
    """Return the error of one of several runs in the form that a list of results shows."""
    refusal = error if isinstance(error, GnnflowError) else refusal_of(error)
    return refusal if refusal is not None else bug_of(error)


def bug_of(error: Exception) -> BugError:
    """Write an error's traceback to a log and return the bug to print."""
    return BugError(
        f"this is a bug of gnnflow ({type(error).__name__}); what was finished is kept",
        fix=f"The log to report it with: {_write_log(error)}",
    )


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
