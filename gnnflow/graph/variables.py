"""A variable of this process's environment for some time, which processes that are started meanwhile inherit."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Set a variable in the block, then bring back what it was."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
