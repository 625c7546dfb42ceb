"""The scales of a table's columns (`normalize: standard`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

SCALING_KEYS = {"normalize": "none", "edge_normalize": "none", "storage": "float32"}
"""The keys of a config's graph section for scaling and rounding, with their defaults."""

_SAME = 1e-6


@dataclass(frozen=True)
class ColumnScale:
    """The mean that is subtracted from each column of features or attributes, and the deviation that divides it."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.mean)

    def columns(self, start: int, stop: int) -> ColumnScale:
        """Return the scale of some of the columns."""
        return ColumnScale(self.mean[start:stop], self.deviation[start:stop])

    def agrees(self, other: ColumnScale) -> bool:
        """Return whether both scale the same columns by the same figures, to the precision of float32."""
        if self.width != other.width:
            return False
        # difference of the means in deviations [columns]
        apart = np.subtract(self.mean, other.mean) / self.deviation
        return bool(np.abs(apart).max(initial=0) < _SAME and np.allclose(self.deviation, other.deviation, _SAME, 0))


Scales = Mapping[str, ColumnScale]
"""The scale of each table by its name: nodes and edges, or nodes/<type> and edges/<relation>."""


def agree(one: Scales, other: Scales) -> bool:
    """Return whether the same tables are scaled by the same figures.

    The number of parts in which a table is counted changes the last digits of float64, which no model sees.
    """
    return one.keys() == other.keys() and all(scale.agrees(other[name]) for name, scale in one.items())
