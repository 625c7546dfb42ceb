"""The splits of labelled nodes and their codes: -1 none, 0 train, 1 valid, 2 test."""

from __future__ import annotations

from typing import Literal, get_args

Split = Literal["train", "valid", "test"]

SPLITS: tuple[str, ...] = get_args(Split)
NO_SPLIT = "none"


def split_name(code: int) -> str:
    """Return the name of a split code."""
    return NO_SPLIT if code < 0 else SPLITS[code]
