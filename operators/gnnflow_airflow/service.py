"""What the operators run serves others: a config may ask for less there than on a person's own command line."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "GNNFLOW_SERVICE"


@contextlib.contextmanager
def as_service() -> Iterator[None]:
    """Say so to gnnflow, and to the processes started meanwhile. What the environment says already stays."""
    said = VARIABLE in os.environ
    os.environ.setdefault(VARIABLE, "1")
    try:
        yield
    finally:
        if not said:
            del os.environ[VARIABLE]
