"""Shares of the exhaustive tests: all of them in `make test-all`, a small part of each before a merge."""

from __future__ import annotations

import hashlib
import os

IS_WHOLE = os.environ.get("GNNFLOW_TESTS") == "all"
"""Whether each property is tried on as many examples as it can be, and each kill and damage as often."""


def examples(number: int) -> int:
    """Return how many examples of a property to try, of a number that leaves little unseen."""
    return number if IS_WHOLE else max(2, number // 5)


def part_of(name: str, parts: int) -> int:
    """Return which of so many parts a test is in, a function of its name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % parts
