"""Keeps the script that a task runs in from the processes that the task starts.

Python's multiprocessing imports the parent's main module again in each process that it spawns, as Dask's workers are.
In a task this is Airflow's own script, which asks for a database that tasks may not reach, so that no worker comes up.
Nothing that a stage sends to its workers is from there.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def hidden_main_module() -> Iterator[None]:
    """Have processes that are spawned meanwhile, and later in place of lost ones, import no main module."""
    held = vars(sys.modules["__main__"])
    before: dict[str, Any] = {name: held[name] for name in ("__file__", "__spec__") if name in held}
    held.pop("__file__", None)
    held["__spec__"] = None
    try:
        yield
    finally:
        held.update(before)
