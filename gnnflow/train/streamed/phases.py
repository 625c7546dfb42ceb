"""What each phase of the streamed execution holds of an interval's rows at once, in bytes per row.

    vertex phases     rows of an interval and of the next, which is read ahead, and what is made of them
    edge phases       of each interval of a group what stays (`streamed/order.py`), and what goes by

Of what a phase reads there is what it computes on and the next; of what it writes, what it fills and what is on its way
to the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gnnflow.executions.streamed import MOST_AT_ONCE
from gnnflow.train.streamed.place import Place
from gnnflow.train.streamed.widths import DEGREES, NUMBER, PassWidths, TypeWidths

# Intervals of source terms on their way round a ring: two read ahead, and what is computed on, waits to be taken and is
# coming, which lies in memory of the rank before, as the same of this rank does for the next one: each maps both.
_PASSED = 2 + 2 * 3
# With their gradients: what came and what is sent, in memory of either, a part that is made and two on their way home.
_PASSED_BACK = _PASSED + 2 * 2 + 3


@dataclass(frozen=True)
class EdgePhase:
    """Numbers per row that an edge phase holds: of what goes by, and of what stays, for each interval of a group.

    ahead: of a second interval of the next group, which is read before this one is done, where groups have several.
    """

    passing: int
    staying: int
    ahead: int

    def bytes_per_row(self, size: int, place: Place) -> int:
        """Return the bytes per row with a group of a size."""
        numbers = self.passing + size * self.staying + self.ahead * (size > 1)
        return NUMBER * numbers + place.per_offset * min(size, MOST_AT_ONCE)

    def largest(self, room: int, most: int, place: Place) -> int:
        """Return the largest group, of `most` at most, that keeps to so many bytes per row; 1 also where none does."""
        beside = NUMBER * (self.passing + self.ahead) + place.per_offset * MOST_AT_ONCE
        return min(most, max(1, (room - beside) // (NUMBER * self.staying)))


def forward_phase(of: PassWidths, layer: TypeWidths, following: TypeWidths | None, place: Place) -> EdgePhase:
    """Return what aggregating a relation holds. layer, following: of its targets' type in the layer and the next.

    What follows the edges of the type's last relation reads the states and target terms of the others.
    """
    own = _own(layer, following)
    # a state that relations have in common is read again for each of them
    read = own + (layer.states - of.kept if not layer.merges else layer.states * (len(layer.into) > 1))
    # where pieces are not added in place: a part's state and what the two are merged with
    parts = of.at_self if of.in_place else 4 * of.state + of.at_self
    # what is computed on and the next; where rows are picked, the intervals that two threads pick them from
    sources = place.sources * (of.spread or 1) * of.source
    if of.made_of:
        sources = of.source + DEGREES + of.made_of  # values are made where features lie; the next ones are read
    passing = of.kept + read + parts + sources + _PASSED * of.passed + 2 * _behind(layer, following)
    return EdgePhase(passing, of.kept + read, read)


def backward_phase(of: PassWidths) -> EdgePhase:
    """Return what differentiating a relation's pieces holds."""
    # where pieces are not added in place: the whole states, a part with its gradient, what that is made of, and the
    # gradients of terms
    differentiated = 0 if of.in_place else 5 * of.state + 2 * (of.spread * of.source + of.target)
    differentiated += 0 if of.in_place or of.adds else 3 * of.kept
    differentiated += of.at_self
    # attention keeps of each target what it needs of all its edges, and reads and writes the gradients of target terms
    attended = 4 * of.heads + 2 * of.target if of.in_place and not of.adds else 0
    # terms that are read, and gradients that are added to and, before that, written; where rows are picked of an
    # interval
    sources = (of.spread or 1) * (of.source + of.read_back)
    passing = sources + _PASSED_BACK * of.passed + 2 * (of.state + of.target) + differentiated + attended
    # of a ring, terms that stay lie in memory of the rank before, as those of the next rank do here: each counts both;
    # and gradients wait as one run until they are sent on
    return EdgePhase(passing, sources + 2 * of.passed, sources)


def bytes_per_row(layers: Sequence[list[TypeWidths]], place: Place) -> int:
    """Return the bytes per node of an interval that the largest phase holds, of whatever type it is."""
    pairs = zip(layers, [*layers[1:], None], strict=True)
    return max(_of_head(layers), *(_bytes_per_layer(*pair, place) for pair in pairs))


def _of_head(layers: Sequence[list[TypeWidths]]) -> int:
    """Return what the head holds of rows after several layers: those of an interval and of the next, and gradients.

    These are made and, of the interval before, on their way to the file. A fifth of them is for what lies between.
    """
    if not any(of.rows for of in layers[-1]):
        return 0  # rows go to the head as they are computed
    return 5 * NUMBER * max(sum(layer[of].rows for layer in layers) for of in range(len(layers[-1])))


def _bytes_per_layer(layer: list[TypeWidths], following: list[TypeWidths] | None, place: Place) -> int:
    """Return the bytes per node of an interval that the largest phase of a layer holds, of whatever type it is.

    Of an edge phase where one interval stays.
    """
    found, none = [], [None] * len(layer)
    for each, behind in zip(layer, following or none, strict=True):
        phases = [forward_phase(of, each, behind, place) for of in each.into]
        phases += [backward_phase(of) for of in each.into if of.learns]
        found += [_vertex_phases(each, behind), *(phase.bytes_per_row(1, place) for phase in phases)]
    return max(found)


def of_one_rank(layer: list[TypeWidths]) -> list[TypeWidths]:
    """Return the same widths without what lies in memory of the exchange between ranks."""
    kept = [[replace(each, passed=0) for each in of.into] for of in layer]
    return [replace(of, into=into) for of, into in zip(layer, kept, strict=True)]


def _vertex_phases(layer: TypeWidths, following: TypeWidths | None) -> int:
    """Return the bytes per node of an interval of a type that the largest vertex phase about a layer holds."""
    own, behind = _own(layer, following), _behind(layer, following)
    terms = 2 * (layer.read + layer.degrees + layer.made)
    last_back = 2 * (own + layer.states + behind)
    if layer.learns:
        last_back += 2 * (layer.summed + layer.target + layer.own + layer.h * layer.has_shortcut)
    whole = 2 * (layer.states + own + behind)  # of a type that no relation leads to as well
    return NUMBER * max(terms, last_back, whole)


def _own(layer: TypeWidths, following: TypeWidths | None) -> int:
    """Return what the phase behind a layer reads of a target beside its state."""
    return layer.target + layer.own + layer.read * layer.has_shortcut + layer.degrees * (following is not None)


def _behind(layer: TypeWidths, following: TypeWidths | None) -> int:
    """Return what is written behind a layer, and whose gradients are read: rows that are read again, next terms."""
    return layer.rows + (following.made if following is not None else 0)


def bytes_per_picked(layer: list[TypeWidths]) -> int:
    """Return the bytes per row that a piece of edges with leaves picks: forward three pieces' are read.

    Backward: the terms of two, and of one the gradients, what autograd makes of them and what is added to an interval.
    """
    return 6 * NUMBER * max((each.source for of in layer for each in of.into if not each.spread), default=0)
