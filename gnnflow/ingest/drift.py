"""How far a column has moved: the population stability index over deciles of the earlier table.

PSI = sum over bins of (p_new - p_old) ln(p_new / p_old). By custom 0.1 is worth a look and 0.25 is a shift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.ingest.statistics import rows_up_to

if TYPE_CHECKING:
    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.graph.facts import ColumnCounts

_DECILES = np.arange(1, 10) / 10
_PRIOR = 0.5  # rows added to each bin, so that an empty one has a logarithm


@dataclass(frozen=True)
class Drift:
    """The index, and how much of it chance alone gives tables of this size (its mean plus four deviations)."""

    psi: float
    chance: float


def drift_of(before: ColumnCounts, after: ColumnCounts) -> Drift:
    """Return how far a column moved. Equal columns give exactly 0.

    Without a shift PSI is distributed as (1 / rows before + 1 / rows after) times chi-squared with bins - 1 degrees of
    freedom (Yurdakul, Statistical properties of the population stability index, 2018), which gives `chance`.
    """
    cuts = _cuts(before)
    old, new = _shares(before, cuts), _shares(after, cuts)
    degrees = len(cuts)
    chance = (degrees + 4 * np.sqrt(2 * degrees)) * (1 / max(before.rows, 1) + 1 / max(after.rows, 1))
    return Drift(float(np.sum((new - old) * np.log(new / old))), float(chance))


def _cuts(column: ColumnCounts) -> IntArray:
    """Return the codes that end a bin: the deciles, ties once; rows above the last are one more bin.

    Where the smallest value alone fills a decile, smaller values get a bin of their own: otherwise a constant column
    that falls would look unchanged.
    """
    # rows up to each code, the codes, and those in which a decile ends
    running = np.cumsum(column.counts)
    codes = np.asarray(column.codes, np.int64)
    cuts = np.unique(codes[np.searchsorted(running, _DECILES * running[-1])])
    return np.r_[codes[0] - 1, cuts] if cuts[0] == codes[0] else cuts


def _shares(column: ColumnCounts, cuts: IntArray) -> FloatArray:
    # rows of each bin, one more than there are cuts
    counts = np.diff(np.r_[0.0, rows_up_to(column, cuts), float(column.rows)]) + _PRIOR
    return np.asarray(counts / counts.sum())
