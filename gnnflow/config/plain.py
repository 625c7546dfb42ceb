"""Plain values: numbers, text, lists and maps, as a YAML text would describe them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from gnnflow.graph.errors import ConfigError


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a caller's config with paths and NumPy's numbers as plain values. Raises ConfigError for other objects."""
    held: dict[str, Any] = json.loads(json.dumps(dict(values), default=_plain_value))
    return held


def _plain_value(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # a number of NumPy
        return value.tolist()
    table = " A table has its path or URL here." if hasattr(value, "__arrow_c_stream__") else ""
    raise ConfigError(
        f"a {type(value).__name__} is not a value of a config",
        where="config",
        fix=f"Write numbers, text, lists and maps.{table}",
    )
