"""The compiled core (`native/*.c`) and its loader: functions on plain memory, without torch and Python.

The package's build compiles it (`native/build.py`); where that was not possible every caller has a fallback.
"""

from __future__ import annotations

from gnnflow.native.columns import count_codes, find, stable_order, widen
from gnnflow.native.library import core, remark
from gnnflow.native.orders import Transposed, number, transpose

__all__ = ["Transposed", "core", "count_codes", "find", "number", "remark", "stable_order", "transpose", "widen"]
