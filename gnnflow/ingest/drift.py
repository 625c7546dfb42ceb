"""How far a column has moved: the population stability index over deciles of the earlier table, or over classes.

PSI = sum over bins of (p_new - p_old) ln(p_new / p_old). By custom 0.1 is worth a look and 0.25 is a shift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.ingest.statistics import rows_up_to

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.graph.facts import ColumnCounts

_DECILES = np.arange(1, 10) / 10
_PRIOR = 0.5  # rows added to each bin, so that an empty one has a logarithm


@dataclass(frozen=True)
class Drift:
    """The index, and how much of it chance alone gives tables of this size (its mean plus four deviations)."""

    psi: float
    chance: float


def drift_of(before: ColumnCounts, after: ColumnCounts) -> Drift:
    """Return how far a column moved. Equal columns give exactly 0."""
    cuts = _cuts(before)
    return _moved(_rows(before, cuts), _rows(after, cuts))


def class_drift(before: Mapping[Hashable, int], after: Mapping[Hashable, int]) -> Drift:
    """Return how far labels moved, of the targets of each class: a class that has any in either is a bin."""
    held = [name for name in {**before, **after} if before.get(name) or after.get(name)]
    old, new = (np.array([counts.get(name, 0) for name in held], np.float64) for counts in (before, after))
    return _moved(old, new)


def _moved(old: Array, new: Array) -> Drift:
    """Return the drift of rows by bin.

    Without a shift PSI is distributed as (1 / rows before + 1 / rows after) times chi-squared with bins - 1 degrees of
    freedom (Yurdakul, Statistical properties of the population stability index, 2018), which gives `chance`.
    """
    degrees = len(old) - 1
    chance = (degrees + 4 * np.sqrt(2 * degrees)) * (1 / max(old.sum(), 1) + 1 / max(new.sum(), 1))
    before, after = ((held + _PRIOR) / (held + _PRIOR).sum() for held in (old, new))
    return Drift(float(np.sum((after - before) * np.log(after / before))), float(chance))


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


def _rows(column: ColumnCounts, cuts: IntArray) -> Array:
    """Return the rows of each bin, of which there is one more than there are cuts."""
    return np.asarray(np.diff(np.r_[0.0, rows_up_to(column, cuts), float(column.rows)]))
