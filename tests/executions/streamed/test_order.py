"""The order of pieces: whatever stays together, all come once, and each end sees the other in one order."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st

from gnnflow.executions.streamed import MOST_AT_ONCE, Piece, groups_of


@st.composite
def chunks(draw):
    """Pieces by target and source, as a graph has them: some chunks empty, some in several pieces."""
    targets, sources = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    counts = draw(
        st.lists(st.lists(st.integers(1, 9), max_size=3), min_size=targets * sources, max_size=targets * sources)
    )
    return [
        Piece(place // sources, place % sources, number, num_edges, load=list)
        for place, held in enumerate(counts)
        for number, num_edges in enumerate(held)
    ]


def name(piece):
    return piece.target, piece.source, piece.number


def ordered(pieces, size):
    held = [(target, list(of)) for target, of in groupby(pieces, key=attrgetter("target"))]
    source = attrgetter("source")
    return groups_of(held, size=size, passing=source, rank=source)


@given(chunks(), st.integers(1, 7))
def test_every_piece_comes_once_and_a_target_sees_its_sources_in_their_order(pieces, size):
    groups = ordered(pieces, size)
    seen = [name(piece) for group in groups for turn in group.turns for batch in turn.batches for piece in batch]
    assert sorted(seen) == sorted(map(name, pieces))
    assert sorted(seen, key=lambda each: each[0]) == [name(piece) for piece in pieces]


@given(chunks(), st.integers(1, 7))
def test_a_source_goes_by_once_per_group(pieces, size):
    groups = ordered(pieces, size)
    targets = sorted({piece.target for piece in pieces})
    assert [list(group.staying) for group in groups] == [targets[at : at + size] for at in range(0, len(targets), size)]
    for group in groups:
        passing = [turn.passing for turn in group.turns]
        assert passing == sorted(set(passing))
        for turn in group.turns:
            assert {piece.source for batch in turn.batches for piece in batch} == {turn.passing}


@given(chunks(), st.integers(1, 7))
def test_what_is_read_at_once_is_no_more_than_the_largest_piece(pieces, size):
    most = max((piece.num_edges for piece in pieces), default=0)
    for group in ordered(pieces, size):
        for turn in group.turns:
            for batch in turn.batches:
                assert 1 <= len(batch) <= MOST_AT_ONCE
                assert sum(piece.num_edges for piece in batch) <= most
