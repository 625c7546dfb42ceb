"""The compiled core (`native/*.c`) and its loader: functions on plain memory, without torch and Python.

The package's build compiles it (`native/build.py`); where that was not possible every caller has a fallback.
"""

from __future__ import annotations

from gnnflow.native.columns import count_codes, find, stable_order
from gnnflow.native.library import core, remark
from gnnflow.native.orders import Transposed, cut_pieces, number, transpose

__all__ = ["Transposed", "core", "count_codes", "cut_pieces", "find", "number", "remark", "stable_order", "transpose"]
