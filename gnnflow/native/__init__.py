"""The compiled core (`native/*.c`) and its loader: plain memory in and out, neither torch nor Python inside.

The package's build compiles it (`native/build.py`); where that was not possible every caller has another way.
"""

from __future__ import annotations

from gnnflow.native.library import core, remark
from gnnflow.native.orders import Transposed, number, transpose

__all__ = ["Transposed", "core", "number", "remark", "transpose"]
