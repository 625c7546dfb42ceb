"""Selections of graphs that have hardly a node, more partitions than nodes, or no edge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gnnflow.config.neighbors_section import (
    AnchorNeighbors,
    MetapathNeighbors,
    OwnNeighbors,
    RingNeighbors,
    WalkNeighbors,
)
from gnnflow.neighbors import anchors, metapaths, own, rings, walks
from tests.neighbors.selections import assert_degrees, select
from tests.typed_stores import PAYMENTS, TypedTables, random_tables, write_store

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {
    "walks": (walks, WalkNeighbors(), {}),
    "walks that travel": (walks, WalkNeighbors(), {"whole_bytes": 0}),
    "rings": (rings, RingNeighbors(), {}),
    "anchors": (anchors, AnchorNeighbors(), {}),
    "metapaths": (metapaths, MetapathNeighbors(paths=(("account", "device", "account"),)), {}),
    "own": (own, OwnNeighbors(kind="tests.neighbors.own_functions:everyone_before"), {}),
}


def two_of_each_type(*, edges: bool) -> TypedTables:
    """Return the first two nodes of each type, with the edges among them or without any."""
    whole = random_tables(PAYMENTS, 2)
    kept = [(ends < 2).all(0) & edges for ends in whole.ends]

    def some(columns: Any) -> tuple[Any, ...]:
        return tuple(None if held is None else held[own] for held, own in zip(columns, kept, strict=True))

    ends = tuple(held[:, own] for held, own in zip(whole.ends, kept, strict=True))
    ids = tuple(held[:2] for held in whole.ids)
    return TypedTables(PAYMENTS, ids, ends, some(whole.weights), some(whole.attributes), 2)


@pytest.mark.table(15)
@pytest.mark.parametrize("edges", [True, False], ids=["few edges", "no edge"])
@pytest.mark.parametrize("kind", KINDS)
def test_partitions_without_nodes_select_nothing(tmp_path: Path, kind: str, edges: bool) -> None:
    store = write_store(tmp_path / "store", two_of_each_type(edges=edges), partitions=9)
    module, section, options = KINDS[kind]
    made = select(module.run_rounds, section, store, tmp_path, **options)
    assert_degrees(made)
    # without edges a node's anchors are the sets that it is in itself
    itself = all(
        leaves == (root,) for held in made.instances.values() for root, listed in held.items() for leaves, *_ in listed
    )
    assert itself or edges
    assert np.isfinite(made.result.num_edges)
