"""By what the columns of a table are scaled (`normalize: standard`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

SCALING_KEYS = ("normalize", "edge_normalize")
"""Keys of a config's graph that say how columns are scaled."""

_SAME = 1e-6


@dataclass(frozen=True)
class ColumnScale:
    """What is taken off each column of a table's features or attributes, and what it is divided by then."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @property
    def width(self) -> int:
        """How many columns there are."""
        return len(self.mean)

    def columns(self, start: int, stop: int) -> ColumnScale:
        """Return the scale of some of the columns."""
        return ColumnScale(self.mean[start:stop], self.deviation[start:stop])

    def agrees(self, other: ColumnScale) -> bool:
        """Return whether both scale the same columns by the same figures, as far as float32 shows it."""
        if self.width != other.width:
            return False
        apart = np.subtract(self.mean, other.mean) / self.deviation
        return bool(np.abs(apart).max(initial=0) < _SAME and np.allclose(self.deviation, other.deviation, _SAME, 0))


Scales = Mapping[str, ColumnScale]
"""By what each table is scaled, by its name: nodes and edges, or nodes/<type> and edges/<relation>."""


def agree(one: Scales, other: Scales) -> bool:
    """Return whether the same tables are scaled by the same figures.

    In how many parts a table is counted changes the last digits of float64, which no model sees.
    """
    return one.keys() == other.keys() and all(scale.agrees(other[name]) for name, scale in one.items())
