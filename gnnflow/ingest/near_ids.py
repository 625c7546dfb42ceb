"""Ids that look like another one: an error names the node that an unknown id was most likely meant to be."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Column = Any  # pa.Array: pyarrow ships no complete types

_MOST_IDS = 1 << 24  # of a graph with more, those of the first partitions alone are compared
_SPACES = r"[\s\p{Z}\x{200b}\x{feff}]+"
_NUMBER = r"^\+?0*([0-9]+)(?:\.0*)?$"
# How two ids may differ, and what makes them equal then.
_DIFFERENCES: tuple[tuple[str, Callable[[Column], Column]], ...] = (
    ("in spaces", partial(pc.replace_substring_regex, pattern=_SPACES, replacement="")),
    ("in its Unicode form", partial(pc.utf8_normalize, form="NFKC")),
    ("in case", pc.utf8_lower),
    ("in how a number is written", partial(pc.replace_substring_regex, pattern=_NUMBER, replacement=r"\1")),
)


def near_id(unknown: Column, ids: Iterable[Column]) -> str:
    """Return how one of a few unknown ids differs from an id that exists, as a sentence; "" where none is near.

    unknown: text. ids: those that exist, part by part; the first that is near is taken.
    """
    unknown, compared = unknown.cast(pa.large_string()), 0
    for part in ids:
        compared += len(part)
        if compared > _MOST_IDS:
            break
        text = part.cast(pa.large_string())
        for how, alike in _DIFFERENCES:
            # which of the unknown ids each id is like [len(part)], null for none
            like = pc.index_in(alike(text), value_set=alike(unknown))
            if len(found := np.flatnonzero(to_numpy(pc.is_valid(like)))):
                pair = text[int(found[0])].as_py(), unknown[like[int(found[0])].as_py()].as_py()
                held, asked = map(ascii if "Unicode" in how else repr, pair)
                return f"The id {held} exists, and {asked} differs from it only {how}."
    return ""
