"""Pieces cover every edge once, in order, within the bound."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.executions.pieces import cut


@given(degrees=st.lists(st.integers(0, 9), max_size=12), max_edges=st.integers(1, 12), may_split_targets=st.booleans())
def test_pieces_cover_all_edges_in_order_within_the_bound(degrees, max_edges, may_split_targets):
    offsets = torch.tensor([0, *torch.tensor(degrees, dtype=torch.int64).cumsum(0).tolist()])
    groups = cut(offsets, max_edges=max_edges, may_split_targets=may_split_targets)
    pieces = [piece for group in groups for piece in group]
    assert [edge for piece in pieces for edge in range(piece.edges.start, piece.edges.stop)] == list(
        range(sum(degrees))
    )
    targets = [target for group in groups for target in range(group[0].targets.start, group[0].targets.stop)]
    assert targets == list(range(len(degrees)))
    for group in groups:
        assert len({(piece.targets.start, piece.targets.stop) for piece in group}) == 1
        assert len(group) == 1 or (may_split_targets and group[0].targets.stop - group[0].targets.start == 1)
    lone = not may_split_targets
    assert all(
        piece.edges.stop - piece.edges.start <= max_edges or (lone and piece.targets.stop - piece.targets.start == 1)
        for piece in pieces
    )
