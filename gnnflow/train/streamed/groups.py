"""How many intervals stay together while an edge phase goes over a relation, and what that reads.

With groups of g target intervals out of P, the source terms of all nodes are read P / g times, and so are states and
target terms in the backward pass, with groups of source intervals. What goes by takes a few intervals' memory whatever
the group, so in a cut of small intervals nearly all memory is of what stays.

A cut of P intervals has P * P chunks, and each has its own list of where the edges of a row begin: so the number of
intervals is what reads least in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, expm1

from gnnflow.executions.streamed import GroupSizes
from gnnflow.train.streamed.coding import ROWS_OF_TWO_BYTES
from gnnflow.train.streamed.cut import Cut
from gnnflow.train.streamed.phases import EdgePhase, backward_phase, bytes_per_row, forward_phase
from gnnflow.train.streamed.place import Place
from gnnflow.train.streamed.widths import NUMBER, PassWidths, TypeWidths

_PER_PIECE = 1 << 19  # bytes that are read in the time that a piece takes beside them: a quarter of a millisecond
_MERGED = 4  # rows of a state that are read and written where that of a piece is merged with what is there
_TOUCHED = 0.1  # the same where a piece is added to it, and has edges of the row: in memory, and not from a file


@dataclass(frozen=True)
class Groups:
    """Groups of each layer and relation. bytes_read: by their edge phases.

    rounds: how often source terms go by in the forward pass of the relation where they do so most often.
    """

    sizes: tuple[tuple[GroupSizes, ...], ...]
    bytes_read: int
    rounds: int


@dataclass(frozen=True)
class _Relation:
    """A relation's pass in a layer, and how its ends are cut. phases: forward, and backward where there is one.

    cut: intervals of sources and targets, on all ranks and on this one; nodes: of the same. edges: on this one.
    """

    of: PassWidths
    phases: tuple[EdgePhase, EdgePhase | None]
    cut: tuple[int, int]
    nodes: tuple[int, int]
    edges: int

    def groups(self, room: int, place: Place) -> GroupSizes:
        """Return the largest groups that keep to so many bytes per row."""
        forward, backward = self.phases
        targets = forward.largest(room, self.cut[1], place)
        return GroupSizes(targets, 1 if backward is None else backward.largest(room, self.cut[0], place))

    def bytes_per_row(self, sizes: GroupSizes, place: Place) -> int:
        """Return the bytes per row of an interval that the larger phase holds."""
        forward, backward = self.phases
        behind = 0 if backward is None else backward.bytes_per_row(sizes.sources, place)
        return max(forward.bytes_per_row(sizes.targets, place), behind)

    def bytes_read(self, sizes: GroupSizes) -> int:
        """Return about how many bytes the phases read, and as how many of them the rest of their time counts."""
        of, (sources, targets), (from_nodes, to_nodes) = self.of, self.cut, self.nodes
        back = self.phases[1] is not None
        numbers = ceil(targets / sizes.targets) * from_nodes * (of.made_of or of.source)
        numbers += back * ceil(sources / sizes.sources) * to_nodes * (of.state + of.target)
        # where a row's edges begin, in a byte of each row of a chunk, by target backward too; and the edges' other ends
        edges = (1 + back) * sources * to_nodes + back * targets * from_nodes
        edges += self.edges * (_end_bytes(from_nodes / sources) + back * _end_bytes(to_nodes / targets))
        return NUMBER * (numbers + self._added()) + edges + (1 + back) * sources * targets * _PER_PIECE

    def _added(self) -> int:
        """Return how many numbers of states, and of gradients, pieces are added to, as numbers that are read."""
        of, (sources, targets), (from_nodes, to_nodes) = self.of, self.cut, self.nodes
        back = self.phases[1] is not None
        if not of.in_place:
            return _MERGED * (1 + back) * sources * to_nodes * of.state
        numbers = self._touched(sources * to_nodes) * of.state + back * self._touched(targets * from_nodes) * of.source
        return int(_TOUCHED * numbers)

    def _touched(self, rows: int) -> float:
        """Return how many of all chunks' rows have an edge, where edges are drawn at random."""
        return -rows * expm1(-self.edges / max(rows, 1))


def _end_bytes(rows: float) -> int:
    """Return the bytes of the number of a row, as `coding.py` has them."""
    return 2 if rows <= ROWS_OF_TWO_BYTES else NUMBER


def as_large_as_fit(
    layers: Sequence[Sequence[TypeWidths]],
    cut: Cut,
    *,
    row_bytes: int,
    place: Place,
) -> Groups:
    """Return the largest groups that keep to so many bytes of rows. layers: the widths of each, by type."""
    found, num_read, rounds = [], 0, 0
    for relations in _relations(layers, cut, place):
        room = 0 if cut.size.has_leaves else row_bytes // max(cut.rows, 1)
        sizes = [each.groups(room, place) for each in relations]
        pairs = list(zip(relations, sizes, strict=True))
        found.append(tuple(sizes))
        num_read += sum(each.bytes_read(of) for each, of in pairs)
        rounds = max(rounds, *(ceil(each.cut[1] / of.targets) for each, of in pairs))
    return Groups(tuple(found), num_read, rounds)


def row_bytes_of(
    layers: Sequence[list[TypeWidths]], cut: Cut, sizes: Sequence[Sequence[GroupSizes]], place: Place
) -> int:
    """Return the bytes of rows of intervals that the largest phase holds, vertex phases among them."""
    most = bytes_per_row(layers, place)
    for relations, of_layer in zip(_relations(layers, cut, place), sizes, strict=True):
        pairs = zip(relations, of_layer, strict=True)
        most = max(most, *(each.bytes_per_row(of, place) for each, of in pairs))
    return cut.rows * most


def _relations(layers: Sequence[Sequence[TypeWidths]], cut: Cut, place: Place) -> Iterator[list[_Relation]]:
    """Yield the relations of each layer."""
    for layer, following in zip(layers, [*layers[1:], None], strict=True):
        yield [_relation(layer, following, cut, number, place) for number in range(cut.schema.num_relations)]


def _relation(
    layer: Sequence[TypeWidths],
    following: Sequence[TypeWidths] | None,
    cut: Cut,
    number: int,
    place: Place,
) -> _Relation:
    """Return one of a layer's relations."""
    source, target = cut.schema.source_types[number], cut.schema.target_types[number]
    of_type, ranks, nodes = layer[target], cut.size.ranks, cut.size.by_type.nodes
    of = of_type.into[cut.schema.relations_into(target).index(number)]
    phases = (
        forward_phase(of, of_type, None if following is None else following[target], place),
        backward_phase(of) if of.learns else None,
    )
    intervals = (cut.of_types[source] * ranks, cut.of_types[target])
    ends = (nodes[source] * ranks, nodes[target])
    return _Relation(of, phases, intervals, ends, cut.size.by_type.edges[number])
