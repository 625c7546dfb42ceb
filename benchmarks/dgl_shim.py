"""DGL, whose core runs on a newer torch than its graphbolt was built for; no benchmark uses that.

from dgl_shim import dgl
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any


class _Nothing(types.ModuleType):
    """Has whatever class is asked for, so that what imports dgl.graphbolt goes on."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


os.environ.setdefault("DGLBACKEND", "pytorch")
sys.modules["dgl.graphbolt"] = _Nothing("dgl.graphbolt")

import dgl  # noqa: E402 - once the stand-in is there
import dgl.nn  # noqa: E402

__all__ = ["dgl"]
