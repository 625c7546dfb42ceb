"""The compiled core (`native/*.c`) and its loader: functions on plain memory, without torch and Python.

The package's build compiles it (`native/build.py`); where that was not possible every caller has a fallback.
"""

from __future__ import annotations

from gnnflow.native.columns import Sorted, count_codes, find, group, stable_order, stable_sort, widen
from gnnflow.native.keys import (
    Texts,
    find_owned,
    find_texts,
    hash_edges,
    hash_ids,
    hash_pairs,
    hash_texts,
    number_pairs,
    place_owned,
)
from gnnflow.native.library import core, remark
from gnnflow.native.orders import (
    CutPieces,
    NumberedSources,
    Transposed,
    count_ranks,
    cut_pieces,
    number,
    number_sources,
    transpose,
)

__all__ = [
    "CutPieces",
    "NumberedSources",
    "Sorted",
    "Texts",
    "Transposed",
    "core",
    "count_codes",
    "count_ranks",
    "cut_pieces",
    "find",
    "find_owned",
    "find_texts",
    "group",
    "hash_edges",
    "hash_ids",
    "hash_pairs",
    "hash_texts",
    "number",
    "number_pairs",
    "number_sources",
    "place_owned",
    "remark",
    "stable_order",
    "stable_sort",
    "transpose",
    "widen",
]
