"""How many threads torch computes with, for the length of a block."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def compute_threads(number: int) -> Iterator[None]:
    """Compute with so many threads, whatever OMP_NUM_THREADS says; restored on leaving."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
