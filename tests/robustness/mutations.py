"""Configurations of which a few values are others: left out, odd, or of another type."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

_WHOLE = 0.2  # how often a section as a whole may be what is changed
# None so large that a run would take hours.
ODD = [None, True, False, 0, 1, -1, 2, 1.5, -0.0, 1e-300, -(10**30), "0", "-1", "nan", ".inf", "1e400"]
ODD += ["", " ", "many", "none", "all", "${GNNFLOW_UNSET}", "é\u0000", "a:b", "x" * 300]
ODD += [[], [None], [1, "a", {}], {}, {"": 1}, {"kind": "none"}]


def mutated(config: dict[str, Any], pick: random.Random) -> tuple[dict[str, Any], list[str]]:
    """Return a configuration one to three of whose values are others, and what was done to them."""
    config, told = json.loads(json.dumps(config)), []
    for _ in range(pick.choice([1, 1, 2, 3])):
        # every value of the configuration: what holds it, its key or number, and its path
        places = list(_places(config, ""))
        held, key, path = pick.choice([place for place in places if "." in place[2] or pick.random() < _WHOLE])
        how = pick.choice(["drop", "drop", "odd value", "other type"])
        before = held[key]
        if how == "drop":
            held.pop(key)
        else:
            held[key] = pick.choice(ODD) if how == "odd value" else pick.choice(_other_types(before))
        now = "nothing" if how == "drop" else json.dumps(held[key])[:60]
        told.append(f"{path}: {how}, {json.dumps(before)[:60]} became {now}")
    return config, told


def _places(value: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        here = f"{path}.{key}" if path else str(key)
        yield value, key, here
        yield from _places(value[key], here)


def _other_types(value: Any) -> list[Any]:
    """Return values of other types that look like a value."""
    looks = [str(value), [value], {"kind": value}, {str(value): value}, [[value], value], json.dumps(value)]
    looks += [float(value), value + 0.5, -value] if isinstance(value, int | float) else [len(value or ())]
    return [*looks, *(value if isinstance(value, list) else [])]
