"""How many intervals stay together while an edge phase goes over a relation, and what that reads.

With groups of g target intervals out of P, the source terms of all nodes are read P / g times, and so are states and
target terms in the backward pass, with groups of source intervals. What goes by takes a few intervals' memory whatever
the group, so in a cut of small intervals nearly all memory is of what stays.

A cut of P intervals has P * P chunks, and each has its own list of where the edges of a row begin: so the number of
intervals is what reads least in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from gnnflow.executions.streaming import GroupSizes
from gnnflow.train.streamed.cut import Cut
from gnnflow.train.streamed.phases import EdgePhase, backward_phase, forward_phase
from gnnflow.train.streamed.place import Place
from gnnflow.train.streamed.widths import NUMBER, PassWidths, TypeWidths

_PER_PIECE = 1 << 19  # bytes that are read in the time that a piece takes beside them: a quarter of a millisecond
_MERGED = 4  # rows of a state that are read and written where that of a piece is merged with what is there


@dataclass(frozen=True)
class Groups:
    """Groups of each layer and relation. row_bytes: of the rows that their edge phases hold; bytes_read: by all."""

    sizes: tuple[tuple[GroupSizes, ...], ...]
    row_bytes: int
    bytes_read: int


@dataclass(frozen=True)
class _Relation:
    """A relation's pass in a layer, and how its ends are cut. phases: forward, and backward where there is one.

    cut: intervals of sources and targets, on all ranks and on this one; nodes: of the same.
    """

    of: PassWidths
    phases: tuple[EdgePhase, EdgePhase | None]
    cut: tuple[int, int]
    nodes: tuple[int, int]

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
        numbers = ceil(targets / sizes.targets) * from_nodes * of.source
        numbers += back * ceil(sources / sizes.sources) * to_nodes * (of.state + of.target)
        numbers += sources * to_nodes + back * targets * from_nodes  # where edges begin
        numbers += 0 if of.in_place else _MERGED * (1 + back) * sources * to_nodes * of.state
        return NUMBER * numbers + (1 + back) * sources * targets * _PER_PIECE


def as_large_as_fit(
    layers: Sequence[Sequence[TypeWidths]],
    cut: Cut,
    *,
    row_bytes: int,
    place: Place,
) -> Groups:
    """Return the largest groups that keep to so many bytes of rows. layers: the widths of each, by type."""
    found, most, num_read = [], 0, 0
    for layer, following in zip(layers, [*layers[1:], None], strict=True):
        relations = [_relation(layer, following, cut, number, place) for number in range(cut.schema.num_relations)]
        room = 0 if cut.size.has_leaves else row_bytes // max(cut.rows, 1)
        sizes = [each.groups(room, place) for each in relations]
        pairs = list(zip(relations, sizes, strict=True))
        found.append(tuple(sizes))
        most = max(most, *(each.bytes_per_row(of, place) for each, of in pairs))
        num_read += sum(each.bytes_read(of) for each, of in pairs)
    return Groups(tuple(found), cut.rows * most, num_read)


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
    return _Relation(of, phases, intervals, (nodes[source] * ranks, nodes[target]))
