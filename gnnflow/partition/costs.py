"""What a root costs to aggregate: a polynomial of its instances and their leaves, learned from timed tasks.

FlexGraph (Wang et al., EuroSys 2021, section 5) predicts a root's time from n_r, how many instances it has in relation
r, and m_r, how many leaves these have, by polynomial regression. The terms here are those of degree two at most that
mean something for a root: 1, n_r, n_r m_r and n_r^2. FlexGraph logs roots; here tasks are logged, each over many roots.
The model is linear in its coefficients, so the terms of a task are those of its roots added up, and nothing is lost.

No term may shorten a task, so coefficients are those of non-negative least squares (Lawson and Hanson, "Solving least
squares problems", 1974, chapter 23), in NumPy: there are a few columns, whatever the graph's size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gnnflow.graph.arrays import Array, BoolArray, IntArray

CostArray = npt.NDArray[np.float64]

_TERMS_OF_RELATION = 3
_ROUNDING = 1e-10


@dataclass(frozen=True)
class CostModel:
    """Seconds per root: `per_root`, and for each relation's name seconds per (instance, leaf, instance squared)."""

    per_root: float
    relations: Mapping[str, tuple[float, float, float]]

    def seconds(self, instances: IntArray, leaves: IntArray) -> CostArray:
        """Return what each root takes [V]. instances, leaves: [V, R] as in `terms_of`, in the order of `relations`."""
        return self.of_terms(terms_of(instances, leaves))

    def of_terms(self, terms: CostArray) -> CostArray:
        """Return the seconds that rows of terms take [V]: those of roots, or of whole tasks."""
        of_relations = [each for row in self.relations.values() for each in row]
        seconds: CostArray = terms @ np.array([self.per_root, *of_relations])
        return seconds

    def as_document(self) -> dict[str, Any]:
        """Return the model as plain values, for JSON."""
        return asdict(self)


def terms_of(instances: IntArray, leaves: IntArray) -> CostArray:
    """Return the terms of each root [V, 1 + 3 R]: 1, then per relation instances, leaves and instances squared.

    instances [V, R]: how many of each relation a root has; leaves [V, R]: how many nodes all of these come from, which
    is n_r m_r. A task's terms are the sum of its roots' rows.
    """
    counts, held = instances.astype(np.float64), leaves.astype(np.float64)
    # of no root too, where reshape could not tell how many columns there are
    width = _TERMS_OF_RELATION * counts.shape[1]
    of_relations = np.stack([counts, held, counts**2], axis=2).reshape(len(counts), width)
    return np.concatenate([np.ones((len(counts), 1)), of_relations], axis=1)


def learn(terms: CostArray, seconds: Array, *, relations: Sequence[str]) -> CostModel:
    """Return the model that fits tasks best. terms [K, 1 + 3 R]: each task's; seconds [K]: how long it took.

    What is fitted is the relative error: tasks are as uncertain as they are long. Squares of instances have a part in
    it where either half of the tasks is then predicted better by the other: tasks over many roots say little of them.
    """
    wanted = np.asarray(seconds, np.float64)
    squares = np.zeros(terms.shape[1], bool)
    squares[_TERMS_OF_RELATION::_TERMS_OF_RELATION] = True
    plain = np.where(squares, 0, terms)
    of_all = terms if _error(terms, wanted) < _error(plain, wanted) else plain
    found = _fitted(of_all, wanted)
    rows = [(float(n), float(nm), float(nn)) for n, nm, nn in found[1:].reshape(-1, _TERMS_OF_RELATION)]
    return CostModel(float(found[0]), dict(zip(relations, rows, strict=True)))


def _fitted(terms: CostArray, seconds: CostArray) -> CostArray:
    relative = np.maximum(seconds, np.finfo(np.float64).tiny)
    return non_negative_least_squares(terms / relative[:, None], seconds / relative)


def _error(terms: CostArray, seconds: CostArray) -> float:
    """Return the mean relative error of each half of the tasks as the other half predicts it."""
    halves = (slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))
    found = [terms[tested] @ _fitted(terms[taught], seconds[taught]) / seconds[tested] - 1 for taught, tested in halves]
    return float(np.abs(np.concatenate(found)).mean())


def non_negative_least_squares(matrix: CostArray, wanted: CostArray) -> CostArray:
    """Return the x >= 0 [C] for which |matrix x - wanted| is least. matrix: [K, C].

    Columns are scaled to a mean of one, since squares of instances are larger than instances by orders of magnitude.
    """
    scale = np.abs(matrix).mean(0)
    scale[scale == 0] = 1
    scaled = matrix / scale
    x, used = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1], bool)
    least = _ROUNDING * np.abs(scaled.T @ wanted).max(initial=0)
    for _ in range(3 * len(x)):  # each column enters once or twice; rounding could make it turn in circles
        gradient = scaled.T @ (wanted - scaled @ x)
        gradient[used] = -np.inf
        if not np.any(gradient > least):
            break
        used[np.argmax(gradient)] = True
        x = _solved(scaled, wanted, x, used)
        used = x > 0
    answer: CostArray = x / scale
    return answer


def _solved(scaled: CostArray, wanted: CostArray, x: CostArray, used: BoolArray) -> CostArray:
    """Return the best x over the used columns, of which those that would become negative are left out again."""
    used = used.copy()
    while True:
        best = np.zeros_like(x)
        best[used] = np.linalg.lstsq(scaled[:, used], wanted, rcond=None)[0]
        below = used & (best <= 0)
        if not np.any(below):
            return best
        # as far from x towards the best as no column becomes negative
        step = np.min(x[below] / np.maximum(x[below] - best[below], np.finfo(np.float64).tiny))
        x = x + step * (best - x)
        used &= x > _ROUNDING
        x[~used] = 0
