"""Learns the cost of aggregating a root from timed tasks: a polynomial of its instances and their leaves.

FlexGraph (Wang et al., EuroSys 2021, section 5) predicts a root's time from n_r, its number of instances in relation r,
and m_r, their number of leaves, by polynomial regression. The terms here are the meaningful ones of degree two at most:
1, n_r, n_r m_r and n_r^2. FlexGraph logs roots; here tasks are logged, each over many roots. The model is linear in its
coefficients, so the terms of a task are the sums of its roots' terms, and nothing is lost.

No term may shorten a task, so coefficients come from non-negative least squares (Lawson and Hanson, "Solving least
squares problems", 1974, chapter 23), in NumPy: there are a few columns, whatever the graph's size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gnnflow.graph.arrays import Array, BoolArray, IntArray
from gnnflow.graph.schema import GraphSchema

CostArray = npt.NDArray[np.float64]

_TERMS_OF_RELATION = 3
_ROUNDING = 1e-10


@dataclass(frozen=True)
class CostModel:
    """Seconds per root: `per_root`, and for each relation's name seconds per (instance, leaf, instance squared)."""

    per_root: float
    relations: Mapping[str, tuple[float, float, float]]

    def seconds(self, instances: IntArray, leaves: IntArray) -> CostArray:
        """Return the seconds of each root [V]. instances, leaves [V, R]: as in `terms_of`, relations in order."""
        return self.of_terms(terms_of(instances, leaves))

    def of_terms(self, terms: CostArray) -> CostArray:
        """Return the seconds of rows of terms [V], of roots or of whole tasks."""
        of_relations = [each for row in self.relations.values() for each in row]
        seconds: CostArray = terms @ np.array([self.per_root, *of_relations])
        return seconds

    def as_document(self) -> dict[str, Any]:
        """Return the model as plain values, for JSON."""
        return asdict(self)


def terms_of(instances: IntArray, leaves: IntArray) -> CostArray:
    """Return the terms of each root [V, 1 + 3 R]: 1, then per relation instances, leaves and instances squared.

    instances [V, R]: a root's number in each relation; leaves [V, R]: the number of leaves of all of these, n_r m_r. A
    task's terms are the sum of its roots' rows.
    """
    counts, held = instances.astype(np.float64), leaves.astype(np.float64)
    # the width is explicit, since reshape cannot infer it without roots
    width = _TERMS_OF_RELATION * counts.shape[1]
    of_relations = np.stack([counts, held, counts**2], axis=2).reshape(len(counts), width)
    return np.concatenate([np.ones((len(counts), 1)), of_relations], axis=1)


def learn(terms: CostArray, seconds: Array, *, relations: Sequence[str]) -> CostModel:
    """Return the model that fits tasks best. terms [K, 1 + 3 R] and seconds [K] of each task.

    It minimises the relative error, since the uncertainty of a task grows with its length. Squares of instances are
    used only where each half of the tasks then predicts the other better: tasks over many roots say little of them.
    """
    wanted = np.asarray(seconds, np.float64)
    squares = np.zeros(terms.shape[1], bool)
    squares[_TERMS_OF_RELATION::_TERMS_OF_RELATION] = True
    plain = np.where(squares, 0, terms)
    # the terms of tasks, squares as zeros where they do not help [K, 1 + 3 R]
    of_all = terms if _error(terms, wanted) < _error(plain, wanted) else plain
    found = _fitted(of_all, wanted)
    rows = [(float(n), float(nm), float(nn)) for n, nm, nn in found[1:].reshape(-1, _TERMS_OF_RELATION)]
    return CostModel(float(found[0]), dict(zip(relations, rows, strict=True)))


def _fitted(terms: CostArray, seconds: CostArray) -> CostArray:
    relative = np.maximum(seconds, np.finfo(np.float64).tiny)
    return non_negative_least_squares(terms / relative[:, None], seconds / relative)


def _error(terms: CostArray, seconds: CostArray) -> float:
    """Return the mean relative error of predicting each half of the tasks from the other."""
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
    for _ in range(3 * len(x)):  # each column enters once or twice; rounding could repeat steps forever
        # how fast the error falls with each column [C]; used columns are at their best
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
    """Return the best x over the used columns, without the columns that would become negative."""
    used = used.copy()
    while True:
        best = np.zeros_like(x)
        # the best coefficients of the used columns, zeros elsewhere [C]
        best[used] = np.linalg.lstsq(scaled[:, used], wanted, rcond=None)[0]
        below = used & (best <= 0)
        if not np.any(below):
            return best
        # as far from x towards the best as no column becomes negative
        step = np.min(x[below] / np.maximum(x[below] - best[below], np.finfo(np.float64).tiny))
        x = x + step * (best - x)
        used &= x > _ROUNDING
        x[~used] = 0


class Ends(NamedTuple):
    """Targets and sources of a relation's edges [E]."""

    targets: IntArray
    sources: IntArray


class InstanceCounts(NamedTuple):
    """Each node's instances, and the leaves of all of them, per relation [N, R]."""

    instances: IntArray
    leaves: IntArray


@dataclass(frozen=True)
class DirectInstances:
    """A node's in-edges in each relation of the graph, of which `kept` at most are aggregated; None: all."""

    kept: tuple[int, ...] | None

    def counts(self, ends: Sequence[Ends], *, schema: GraphSchema, num_nodes: int) -> InstanceCounts:
        """Return each node's instances, and the leaves of all of them, per relation [N, R]."""
        # in-edges of each node in each relation [N, R]
        held = np.stack([np.bincount(dst, minlength=num_nodes) for dst, _ in ends], axis=1)
        held = held if self.kept is None else np.minimum(held, np.array(self.kept))
        return InstanceCounts(held, held)


@dataclass(frozen=True)
class PathInstances:
    """The paths to a node along each list of node types, the node's own first, of which `most` are aggregated."""

    paths: tuple[tuple[str, ...], ...]
    most: int

    def counts(self, ends: Sequence[Ends], *, schema: GraphSchema, num_nodes: int) -> InstanceCounts:
        """Return each node's instances, and the leaves of all of them, per list [N, R].

        No path is listed: the paths from a node are the sum over its neighbours, step by step.
        """
        held = [np.minimum(_paths_to(path, ends, schema, num_nodes), self.most) for path in self.paths]
        # paths to each node along each list [N, R]
        counts = np.stack(held, axis=1).astype(np.int64)
        return InstanceCounts(counts, counts * (np.array([len(path) for path in self.paths]) - 1))


def _paths_to(path: tuple[str, ...], ends: Sequence[Ends], schema: GraphSchema, num_nodes: int) -> np.ndarray:
    """Return the number of paths to each node [N]; 0 for nodes of other types."""
    # number of ways to walk the rest of the path from each node [N], last step first
    found = np.ones(num_nodes)
    for target, source in reversed(list(pairwise(path))):
        added = np.zeros(num_nodes)
        for relation, (dst, src) in zip(schema.relations, ends, strict=True):
            if (relation.target, relation.source) == (target, source):
                added += np.bincount(dst, found[src], minlength=num_nodes)
        found = added
    return found
