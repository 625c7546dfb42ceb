"""The standard streams, where a daemon or cron closed them or where nothing can be written to them.

Progress and errors go to stderr, and no result depends on them: what cannot be written there is dropped. A result that
cannot be written to stdout is an error, unless stdout was closed when we began: then nobody asked for it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any


def make_usable() -> None:
    """Give closed streams a place, and let stderr drop what it cannot write. Comes before any file is opened."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # what Python makes of a descriptor that is closed
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - as long as we run
    sys.stderr = Dropping(sys.stderr)


class Dropping:
    """A stream that writes to nowhere once it could not write."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        try:
            return int(self._stream.write(text))
        except OSError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        """Write what is held, or drop it."""
        try:
            self._stream.flush()
        except OSError:
            self._drop()

    def _drop(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        with suppress(OSError):  # it has no descriptor
            os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
