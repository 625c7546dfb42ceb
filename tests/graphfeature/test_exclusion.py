from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.graph.batch import Block
from gnnflow.graph.sampling import EVERY_EDGE
from gnnflow.graphfeature.blocks import build_minibatch
from gnnflow.graphfeature.exclusion import RowPairs, pairs_seen, without_pairs
from gnnflow.graphfeature.neighborhood import Neighborhood
from tests.fanouts import sampling_of
from tests.graphfeature.random_graphs import graphs
from tests.graphfeature.random_typed import typed_graphs


def edges_of(block: Block) -> list[tuple[int, int, float]]:
    """Target row, source row and scale of every edge, in order."""
    rows = np.tile(np.arange(block.num_targets), block.edges.num_relations)
    targets = np.repeat(rows, block.edges.lengths).tolist()
    scale = np.ones(block.num_edges) if block.edge_scale is None else block.edge_scale
    return list(zip(targets, block.edges.sources.tolist(), scale.tolist(), strict=True))


def pairs_of(graph: Neighborhood, seed: int) -> tuple[np.ndarray, RowPairs]:
    rng = np.random.default_rng(seed)
    rows = rng.permutation(graph.num_nodes)[: rng.integers(1, graph.num_nodes + 1)]
    sources, targets = rng.integers(0, len(rows), (2, rng.integers(0, 6)))
    return rows, RowPairs(sources, targets, len(rows))


@given(
    graphs(arrives=True) | typed_graphs(arrives=True),
    st.integers(0, 99),
    st.sampled_from(["none", "uniform", "weighted"]),
)
def test_the_edges_between_ends_of_a_pair_and_no_others_are_left_out(
    graph: Neighborhood, seed: int, sampling: str
) -> None:
    weight = np.random.default_rng(seed).random(graph.num_edges).astype(np.float32)
    arrives = graph.edges.next_arrival if sampling == "weighted" else None
    graph = replace(graph, edges=replace(graph.edges, weight=weight, next_arrival=arrives))
    rows, pairs = pairs_of(graph, seed)
    fanouts = None if sampling == "none" else [3, 2]
    batch = build_minibatch(graph, rows, sampling=sampling_of(fanouts, sampling), num_layers=2)  # type: ignore[arg-type]
    hidden = {(int(a), int(b)) for a, b in zip(pairs.targets, pairs.sources, strict=True)}
    hidden |= {(b, a) for a, b in hidden}
    found = without_pairs(batch, pairs)
    for before, after in zip(batch.blocks, found.blocks, strict=True):
        assert edges_of(after) == [edge for edge in edges_of(before) if edge[:2] not in hidden]
        assert after.num_targets == before.num_targets
        np.testing.assert_array_equal(after.sample_scale, before.sample_scale)
    assert not len(pairs_seen(found.blocks, pairs))


@given(graphs() | typed_graphs(), st.integers(0, 99))
def test_a_pair_whose_edge_is_in_a_block_is_named(graph: Neighborhood, seed: int) -> None:
    rows, pairs = pairs_of(graph, seed)
    batch = build_minibatch(graph, rows, sampling=EVERY_EDGE, num_layers=1)
    held = {edge[:2] for edge in edges_of(batch.blocks[0])}
    ends = list(zip(pairs.targets.tolist(), pairs.sources.tolist(), strict=True))
    expected = [number for number, (a, b) in enumerate(ends) if (a, b) in held or (b, a) in held]
    assert pairs_seen(batch.blocks, pairs).tolist() == expected
