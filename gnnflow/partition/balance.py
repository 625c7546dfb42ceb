"""Balances the costs of partitions: moves nodes from expensive partitions to cheap ones, and cuts few edges.

Application-driven balancing of FlexGraph (Wang et al., EuroSys 2021, section 5). While the balance factor, the largest
cost of a partition over the mean, is above a threshold, a migration from the most expensive partition to a cheaper one
is planned five times: a breadth-first search over the induced graph, which joins each root with the leaves of its
instances, starts at a node of the boundary and takes nodes until the budget is spent, the smaller of the one's excess
and the other's deficit. The plan that cuts the fewest edges is carried out.

A search takes a whole frontier at a time; nothing loops over nodes. Where searches start is chosen by the hash of the
nodes' keys, so the result is a function of graph, costs and seed. Memory: the induced graph twice, 16 bytes an edge,
and a few numbers a node. FlexGraph's coordinator plans in one place too; it needs only the ends of edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.graph.arrays import BoolArray, IntArray, KeyArray, distinct, offsets_of, ragged_ranges
from gnnflow.graph.hashing import combine, seed_word
from gnnflow.partition.costs import CostArray
from gnnflow.partition.planning import Plan, present_owner, read_ends, read_keys

if TYPE_CHECKING:
    from gnnflow.partition.costs import CostModel, DirectInstances, PathInstances
    from gnnflow.storage.graph_store import GraphStore

NUM_PLANS = 5
_MOVES_PER_PARTITION = 16
_FULL = 0.9  # of the largest plan's cost: smaller plans are not compared by their cut
_LEAST_MOVE = 1e-4  # of the mean cost of a partition: smaller moves are not worthwhile


@dataclass(frozen=True)
class InducedGraph:
    """Pairs of nodes that are root and leaf of an instance, in both directions.

    neighbors [E] grouped by offsets [N + 1]. Each pair is there once for any number of instances.
    """

    offsets: IntArray
    neighbors: IntArray

    @staticmethod
    def of(roots: IntArray, leaves: IntArray, *, num_nodes: int) -> InducedGraph:
        """Return the graph of (root, leaf) pairs, which may be repeated and in any order."""
        apart = roots != leaves
        roots, leaves = roots[apart], leaves[apart]
        # each pair in both directions as one integer, ascending
        pairs = distinct(np.concatenate([roots * num_nodes + leaves, leaves * num_nodes + roots]))
        first = pairs // max(num_nodes, 1)
        return InducedGraph(offsets_of(np.bincount(first, minlength=num_nodes)), pairs - first * num_nodes)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.offsets) - 1

    def neighbors_of(self, nodes: IntArray) -> IntArray:
        """Return the neighbours of some nodes, one node's after the other's."""
        lengths = self.offsets[nodes + 1] - self.offsets[nodes]
        return self.neighbors[ragged_ranges(self.offsets[nodes], lengths)]

    def cut(self, owner: IntArray) -> int:
        """Return the number of pairs with ends in two partitions. owner: [N]."""
        # the first node of each pair; a pair is there in both directions [E]
        first = np.repeat(np.arange(self.num_nodes), np.diff(self.offsets))
        return int(np.count_nonzero(owner[first] != owner[self.neighbors])) // 2


@dataclass(frozen=True)
class Move:
    """A migration: the number and cost of its nodes, and the pairs that it cuts in addition."""

    source: int
    target: int
    num_nodes: int
    cost: float
    added_cut: int


class _PlannedMove(NamedTuple):
    """A migration, and the nodes to move."""

    nodes: IntArray
    made: Move


@dataclass(frozen=True)
class Balanced:
    """The owner of each node [N] after the moves."""

    owner: IntArray
    moves: tuple[Move, ...]


def balance_factor(cost: CostArray, owner: IntArray, *, num_partitions: int) -> float:
    """Return the largest cost of a partition over the mean; 1.0 where all costs are 0."""
    loads = _loads(cost, owner, num_partitions)
    return float(loads.max() / loads.mean()) if loads.any() else 1.0


def _loads(cost: CostArray, owner: IntArray, num_partitions: int) -> CostArray:
    loads: CostArray = np.bincount(owner, cost, minlength=num_partitions).astype(np.float64)
    return loads


def balance(
    graph: InducedGraph,
    cost: CostArray,
    owner: IntArray,
    *,
    num_partitions: int,
    keys: KeyArray,
    threshold: float,
    seed: int = 0,
) -> Balanced:
    """Move nodes until the balance factor is at most the threshold, or no plan helps.

    cost, owner, keys: [N]; keys do not depend on dense ids. A node without cost moves with its neighbours.
    """
    owner, moves = owner.copy(), list[Move]()
    while len(moves) < _MOVES_PER_PARTITION * num_partitions:
        loads = _loads(cost, owner, num_partitions)
        if not loads.any() or loads.max() <= threshold * loads.mean():
            break
        move = _next_move(graph, cost, owner, loads, order=combine(keys, seed_word(seed, len(moves))))
        if move is None:
            break
        owner[move.nodes] = move.made.target
        moves.append(move.made)
    return Balanced(owner, tuple(moves))


def _next_move(
    graph: InducedGraph, cost: CostArray, owner: IntArray, loads: CostArray, *, order: KeyArray
) -> _PlannedMove | None:
    """Return the next migration; None where no partition can take any node."""
    source, mean = int(loads.argmax()), loads.mean()
    # the cheapest partition first; the next one only where no plan towards it moves anything
    for target in np.argsort(loads, kind="stable").tolist():
        budget = min(loads[source] - mean, mean - loads[target])
        if budget <= _LEAST_MOVE * mean:
            return None
        plans = _plans(graph, cost, owner, (source, target), budget=budget, order=order)
        moved = [float(cost[plan].sum()) for plan in plans]
        if max(moved) <= _LEAST_MOVE * mean:
            continue
        # of the plans that move nearly as much as any, the one that cuts fewest edges (FlexGraph, section 5)
        full = [number for number, each in enumerate(moved) if each >= _FULL * max(moved)]
        added = {number: _added_cut(graph, plans[number], owner, target) for number in full}
        best = min(full, key=lambda number: (added[number], number))
        return _PlannedMove(plans[best], Move(source, target, len(plans[best]), moved[best], added[best]))
    return None


def _plans(
    graph: InducedGraph,
    cost: CostArray,
    owner: IntArray,
    between: tuple[int, int],
    *,
    budget: float,
    order: KeyArray,
) -> list[IntArray]:
    """Return the nodes that each plan moves from one partition to the other."""
    source, target = between
    movable = owner == source
    nodes = np.flatnonzero(movable)
    # for each pair of a movable node and a node of the target partition: the former's number among the movable
    degrees = graph.offsets[nodes + 1] - graph.offsets[nodes]
    around = np.repeat(np.arange(len(nodes)), degrees)[owner[graph.neighbors_of(nodes)] == target]
    # whether each has no neighbour in the target partition [n]; nodes with one come first, by their hash
    inner = np.bincount(around, minlength=len(nodes)) == 0
    starts = nodes[np.lexsort((order[nodes], inner))]
    return [_grown(graph, cost, movable, starts[number:], budget=budget) for number in range(NUM_PLANS)]


def _grown(graph: InducedGraph, cost: CostArray, movable: BoolArray, starts: IntArray, *, budget: float) -> IntArray:
    """Return the nodes that a search from the first of the starts takes.

    Where it ends with budget left it continues from the next starts, twice as many each time.
    """
    waiting, taken = movable.copy(), [np.zeros(0, np.int64)]
    frontier, begun = starts[:1], 1
    smallest = float(cost[starts].min(initial=np.inf))
    while smallest <= budget and (len(frontier) or begun < len(starts)):
        if not len(frontier):
            frontier, begun = starts[begun : 2 * begun], 2 * begun
        # the frontier's nodes that can move and were not met before, then the ones that each fit in the budget
        frontier = frontier[waiting[frontier]]
        waiting[frontier] = False
        fitting = frontier[cost[frontier] <= budget]
        # the frontier's first nodes that the budget allows
        own = fitting[np.cumsum(cost[fitting]) <= budget]
        taken.append(own)
        budget -= float(cost[own].sum())
        frontier = distinct(graph.neighbors_of(own))
    return np.concatenate(taken)


def _added_cut(graph: InducedGraph, moved: IntArray, owner: IntArray, target: int) -> int:
    """Return the number of pairs that a move of nodes to another partition cuts in addition; may be negative."""
    gone = np.zeros(graph.num_nodes, bool)
    gone[moved] = True
    around = graph.neighbors_of(moved)
    # whether each pair of a moved node is cut anew: its other end stays in the node's partition
    stayed = (owner[around] == owner[moved[0]]) & ~gone[around]
    return int(np.count_nonzero(stayed)) - int(np.count_nonzero(owner[around] == target))


@dataclass(frozen=True)
class EvenCosts:
    """Plans moves until costs are even. costs: of the relations that instances are counted in."""

    costs: CostModel
    threshold: float
    instances: DirectInstances | PathInstances
    clusters: int = 0

    def plan(self, store: GraphStore, *, seed: int) -> Plan:
        """Return the owner of each node once costs are even."""
        parts, num_nodes = store.num_partitions, store.facts.num_nodes
        ends = read_ends(store)
        cost = self.costs.seconds(*self.instances.counts(ends, schema=store.schema, num_nodes=num_nodes))
        dst, src = (np.concatenate(each) for each in zip(*ends, strict=True))
        graph = InducedGraph.of(dst, src, num_nodes=num_nodes)
        owner, keys = present_owner(store), read_keys(store)
        found = balance(graph, cost, owner, num_partitions=parts, keys=keys, threshold=self.threshold, seed=seed)
        figures = {
            "factor_before": balance_factor(cost, owner, num_partitions=parts),
            "factor": balance_factor(cost, found.owner, num_partitions=parts),
            "cut_before": graph.cut(owner),
            "cut": graph.cut(found.owner),
            "moves": len(found.moves),
        }
        return Plan(
            found.owner, figures=figures, settings={"threshold": self.threshold, "costs": self.costs.as_document()}
        )
