"""The forms in which text may be amounts or dates: those that read every value of a sample."""

from __future__ import annotations

from itertools import product
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.columns.values import Column, numbers_of, times_of

_BETWEEN = (".", "/", "-")
_ORDERS = (("%d", "%m", "%Y"), ("%m", "%d", "%Y"), ("%Y", "%m", "%d"))
_HOURS = ("", " %H:%M", " %H:%M:%S")
_SAMPLE = 100  # values by which most forms are left out before all values are read


def find_forms(text: Column, kind: Literal["numerical", "timestamp"]) -> list[dict[str, str]]:
    """Return the keys of `graph.columns` that read every text as amounts or dates.

    Several where the values leave it open: 1,234 may be a fraction, 03.04.2020 may be in March.
    """
    found = _reading(text.slice(0, _SAMPLE), kind, _decimals() if kind == "numerical" else _formats())
    return _reading(text, kind, found)


def _decimals() -> list[dict[str, str]]:
    return [{"kind": "numerical", "decimal": decimal} for decimal in ("point", "comma")]


def _formats() -> list[dict[str, str]]:
    years = [tuple(part.replace("%Y", year) for part in order) for year in ("%Y", "%y") for order in _ORDERS]
    dates = [mark.join(order) for mark, order in product(_BETWEEN, years)]
    return [{"kind": "timestamp", "format": date + hours} for date, hours in product(dates, _HOURS)]


def _reading(text: Column, kind: str, forms: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the forms that read every text; none where nothing is written."""
    if not pc.any(pc.not_equal(text.cast(pa.large_string()), "")).as_py():
        return []
    if kind == "numerical":
        return [form for form in forms if not numbers_of(text, form["decimal"]).unreadable.any()]
    return [form for form in forms if not times_of(text, form["format"]).unreadable.any()]
