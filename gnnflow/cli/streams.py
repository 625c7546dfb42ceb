"""Makes the standard streams usable where a daemon or cron closed them, or writing to them fails.

Progress and errors go to stderr, and no result depends on them: text that cannot be written there is dropped. A result
that cannot be written to stdout is an error, unless stdout was closed at the start.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any


def make_usable() -> None:
    """Reopen closed streams, and let stderr drop text that it cannot write. Call this before any file is opened."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # Python's value for a closed descriptor
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - as long as we run
    sys.stderr = Dropping(sys.stderr)


class Dropping:
    """A stream that drops all text after its first failure."""

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
        """Write the buffered text, or drop it."""
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
