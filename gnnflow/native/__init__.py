"""The compiled core (`native/*.c`) and its loader: functions on plain memory, without torch and Python.

The package's build compiles it (`native/build.py`); where that was not possible every caller has a fallback.
"""

from __future__ import annotations

from gnnflow.native.library import core, remark
from gnnflow.native.orders import Transposed, number, transpose

__all__ = ["Transposed", "core", "number", "remark", "transpose"]
