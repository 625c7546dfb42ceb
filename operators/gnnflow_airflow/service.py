"""A context for work on behalf of others, where a config is allowed less than on a user's command line."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "GNNFLOW_SERVICE"


@contextlib.contextmanager
def as_service() -> Iterator[None]:
    """Tell gnnflow, and processes started meanwhile, that this is a service; keep an existing setting."""
    is_set = VARIABLE in os.environ
    os.environ.setdefault(VARIABLE, "1")
    try:
        yield
    finally:
        if not is_set:
            del os.environ[VARIABLE]
