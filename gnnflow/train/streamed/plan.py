"""How a graph is cut so that training on it keeps a budget of memory: or why it cannot.

What a phase of the streamed execution holds at once is a few tensors of some intervals' rows, three pieces of edges
(the one computed on and those read ahead), and what is there throughout: weights with their optimiser, the logits and
labels of the targets. The first is in proportion to the nodes of an interval, so as few intervals as fit are the least
there can be. More of them leave room for groups of intervals (`groups.py`), by which less is read.

Every layer's terms and states are asked of the model itself (`widths.py`), and what phases hold of them follows
(`phases.py`). On a typed graph an interval is of one type; all have the same most number of rows, so a type has as many
intervals as its nodes ask for.
What training takes beside rows is in `needs.py`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

from pydantic import ByteSize

from gnnflow.config.messages import show
from gnnflow.executions.streamed import GroupSizes
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.schema import GraphSchema
from gnnflow.layers import Model
from gnnflow.train.streamed.coding import ROWS_OF_TWO_BYTES
from gnnflow.train.streamed.cut import Cut
from gnnflow.train.streamed.groups import Groups, as_large_as_fit, row_bytes_of
from gnnflow.train.streamed.needs import Needs, filing_bytes, widths_of
from gnnflow.train.streamed.phases import of_one_rank
from gnnflow.train.streamed.place import ON_CPU, Place
from gnnflow.train.streamed.size import GraphSize
from gnnflow.train.streamed.space import bytes_of_files, mib
from gnnflow.train.streamed.widths import TypeWidths

_MOST_INTERVALS = 1024  # of a type
_NUMBERS_OF_INTERVALS = 1 << 16  # that two bytes tell apart
_MORE_INTERVALS = 4  # times as many as have to be: more make chunks so small that reading them takes longest
_FILLED = 0.95  # of what is left for rows is given to groups: what lies between pieces of memory is never all in use
_FILLED_ON_RING = 0.75  # there ranks hold each other up, and what waits for them is more than is counted
_HARDLY_MORE = 1.02  # times what is read with the best of these: the first one is taken that reads no more
_LEAST_PICKED = 16_384  # rows that a piece may pick, or all there are
_MIB = 1 << 20


@dataclass(frozen=True)
class Plan:
    """How a graph is cut: into so many intervals of each rank, pieces of at most so many edges; and the most bytes.

    num_bytes: of a rank's memory; row_bytes: of them, those of rows of intervals that are not on their way between
    ranks; disk_bytes: of its files, wherever they lie. copies: each rank keeps the sources' terms of all ranks.
    of_types: how many of the intervals are of each node type; none where there is one. max_rows: that the leaves of a
    piece's edges may name; 0 for any number. together: how many intervals stay together, per layer and relation; none:
    one of each.
    """

    intervals: int
    max_edges: int
    num_bytes: int
    disk_bytes: int
    row_bytes: int
    copies: bool = False
    of_types: tuple[int, ...] = ()
    max_rows: int = 0
    together: tuple[tuple[GroupSizes, ...], ...] = ()


@dataclass(frozen=True)
class _Search:
    """What a cut is sought for: a graph and a model, of which these are the widths and needs, in a place."""

    size: GraphSize
    schema: GraphSchema
    layers: list[list[TypeWidths]]
    needs: Needs
    budget: int
    place: Place

    @classmethod
    def of(cls, model: Model, size: GraphSize, *, budget: int, place: Place, picks: bool = False) -> _Search:
        """Return the search. picks: pieces of edges with leaves name the rows that they read."""
        layers = widths_of(model, size, place, picks=picks)
        return cls(size, model.inputs.schema, layers, Needs.of(model, size, layers, place), budget, place)

    @property
    def most(self) -> int:
        """How many intervals the largest type may have."""
        return min(_MOST_INTERVALS, max(self.size.by_type.nodes), (_NUMBERS_OF_INTERVALS - 1) // self.schema.num_types)

    def cut(self, intervals: int) -> tuple[Cut, int]:
        """Return the cut of so many intervals, and the edges that a piece should have."""
        cut = Cut.of(self.size, self.schema, intervals)
        return cut, self.needs.edges(cut, self.budget)

    def fewest(self, most: int) -> int | None:
        """Return the fewest intervals that keep the budget; None where it takes more than `most`."""
        for intervals in range(1, most + 1):
            cut, edges = self.cut(intervals)
            if self.needs.in_all(cut.rows * self.needs.per_row, edges) <= self.budget:
                return intervals
        return None


def plan(model: Model, size: GraphSize, *, budget: int, copies: bool = False, place: Place = ON_CPU) -> Plan:
    """Return how to cut a graph. Raises TrainingError where no cut keeps the budget, with the least that one keeps.

    copies: where source terms are read more than once, all ranks keep what they read of the others' nodes.
    """
    if size.has_leaves and size.ranks > 1:
        raise TrainingError(
            f"edges with leaves cannot be divided among {size.ranks} ranks under train.memory: the leaves of one edge "
            "may lie in the intervals of any",
            where="train.workers",
            fix="Set it to 1, or leave train.memory out.",
        )
    search = _Search.of(model, size, budget=budget, place=place)
    picking = _Search.of(model, size, budget=budget, place=place, picks=True) if size.has_leaves else None
    if _lacking(search, picking):
        raise _too_small(search, picking)
    least = search.fewest(1 if size.has_leaves else search.most)
    if least is not None:
        return _cut(search, least, copies=copies)
    assert picking is not None, "without leaves there is a number of intervals that keeps the budget"
    return _picking_cut(picking)


def _lacking(search: _Search, picking: _Search | None) -> str:
    """Return what the budget is too small for; empty where some cut keeps it. picking: of edges with leaves."""
    needed, needs = _needed_by_any(search), search.needs
    what, most = max(needed.items(), key=lambda each: each[1])
    if search.budget < most:
        return what
    if search.fewest(1 if picking else search.most) is not None:
        return ""
    rows = f"{needs.per_row:,} bytes for each node of an interval, of which there can be {search.most}"
    if picking is None:
        return rows
    picked = f"{picking.needs.per_picked:,} for each row that a piece of edges with leaves reads"
    return "" if _picking_cuts(picking) else f"{rows}, and {picked}"


def _needed_by_any(search: _Search) -> dict[str, int]:
    """Return the bytes that are taken however the graph is cut, by what for."""
    size, needs = search.size, search.needs
    what = f"{mib(needs.fixed)} whatever the graph, pieces of edges, and weights with logits and labels of "
    needed = {f"{what}{size.num_targets:,} targets": needs.in_all(0, 2 * needs.least_edges(size))}
    return needed | (filing_bytes(size, search.place) if search.place.reads else {})


def _cut(search: _Search, least: int, *, copies: bool) -> Plan:
    """Return the cut of at least so many intervals, and the groups of them, by which least is read."""
    needs, place = search.needs, search.place
    left = search.budget - needs.resident - needs.fixed
    tried = {least}
    if place.groups and not search.size.has_leaves:
        # and so many that numbers of rows have two bytes
        short = -(-max(search.size.by_type.nodes) // ROWS_OF_TWO_BYTES)
        tried |= {*range(least, _MORE_INTERVALS * least + 3), max(least, short)}
    filled = _FILLED if search.size.ranks == 1 else _FILLED_ON_RING
    found: list[tuple[int, Cut, Groups]] = []
    for cut, edges in map(search.cut, sorted(each for each in tried if each <= search.most)):
        row_bytes = int(filled * (left - edges * needs.per_edge)) if place.groups else 0
        found.append((edges, cut, as_large_as_fit(search.layers, cut, row_bytes=row_bytes, place=place)))
    enough = _HARDLY_MORE * min(groups.bytes_read for _, _, groups in found)
    edges, cut, groups = next(each for each in found if each[2].bytes_read <= enough)
    row_bytes = row_bytes_of(search.layers, cut, groups.sizes, place)
    edges = max(edges, min((left - row_bytes) // needs.per_edge, 2 * cut.chunk))
    copies = copies and groups.rounds > 1  # else nothing is read again
    return Plan(
        sum(cut.of_types),
        edges,
        needs.in_all(row_bytes, edges),
        bytes_of_files(search.layers, cut, copies=copies),
        row_bytes_of([*map(of_one_rank, search.layers)], cut, groups.sizes, place),
        copies,
        cut.types_of_plan,
        together=groups.sizes,
    )


def _picking_cut(search: _Search) -> Plan:
    """Return the cut of a graph whose edges have leaves that reads fewest rows and keeps the budget.

    Every piece reads the intervals that its leaves lie in, so memory is best spent on the rows that a piece may pick,
    and intervals are small; but each of them takes a piece at least.
    """
    needs = search.needs
    # of several the one of fewest intervals
    cut, edges, picked = min(_picking_cuts(search), key=lambda each: _num_pieces(*each))
    return Plan(
        sum(cut.of_types),
        edges,
        needs.in_all(cut.rows * needs.per_row, edges, picked),
        bytes_of_files(search.layers, cut, copies=False),
        cut.rows * needs.per_row + picked * needs.per_picked,
        of_types=cut.types_of_plan,
        max_rows=picked,
    )


def _picking_cuts(search: _Search) -> list[tuple[Cut, int, int]]:
    """Return the cuts that keep the budget, each with the edges of a piece and the rows that it may pick."""
    needs, nodes = search.needs, search.size.by_type.nodes_of_all
    found = []
    for cut, edges in map(search.cut, range(2, search.most + 1)):
        left = search.budget - needs.in_all(cut.rows * needs.per_row, edges)
        picked = min(nodes, left // max(needs.per_picked, 1))
        if picked >= min(nodes, _LEAST_PICKED):
            found.append((cut, edges, picked))
    return found


def _num_pieces(cut: Cut, edges: int, picked: int) -> int:
    """Return about how many pieces a graph has whose leaves are drawn at random, which is the most."""
    size, nodes = cut.size, cut.size.by_type.nodes_of_all
    # so many leaves name so many different nodes of all
    leaves = -nodes * math.log1p(-picked / nodes) if picked < nodes else math.inf
    found = 0
    for number, target in zip(size.by_type.edges, cut.schema.target_types, strict=True):
        into = number / cut.of_types[target]
        found += cut.of_types[target] * max(1, math.ceil(into / edges), math.ceil(into * size.leaves / leaves))
    return found


def _too_small(search: _Search, picking: _Search | None) -> TrainingError:
    """Return the error of a budget that no cut keeps, with the fewest whole MiB that one does, and what needs them."""

    def lacking(size: int) -> str:
        budget = size * _MIB
        return _lacking(replace(search, budget=budget), picking and replace(picking, budget=budget))

    too_few = search.budget // _MIB
    enough = too_few + 1
    while lacking(enough):
        too_few, enough = enough, 2 * enough
    # between these; more memory never needs more
    least = bisect_left(range(enough), 1, too_few + 1, enough, key=lambda size: not lacking(size))
    needed = mib(least * _MIB)
    return TrainingError(
        f"{show(ByteSize(search.budget))} is not enough: {needed} are needed ({lacking(least - 1)})",
        where="train.memory",
        fix=f"Set it to {needed} or more.",
    )
