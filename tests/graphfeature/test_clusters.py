"""A batch of clusters holds exactly the edges among its nodes, and with a boundary deep enough scores exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.config import model_from_dict
from gnnflow.executions import clusterbatch, reference
from gnnflow.graph.batch import Degrees, Features
from gnnflow.graph.edges import InEdges, join_relations
from gnnflow.graphfeature.blocks import new_scratch
from gnnflow.graphfeature.clusters import ClusterRows, cut_clusters
from gnnflow.graphfeature.neighborhood import Neighborhood
from gnnflow.layers import ModelInputs, build_model
from tests.budget import examples
from tests.contracts.in_memory import EDGE_WIDTH, FEATURE_WIDTH, GraphShape, graph_shapes, whole_graph


def neighborhood_of(graph) -> Neighborhood:
    edges = graph.adjacency.edges
    sources = edges.sources.astype(np.int32)
    count = len(graph.nodes)
    held = InEdges(edges.offsets, sources, edges.weight, edges.attributes, leaves=edges.leaves)
    return Neighborhood(np.zeros(0, np.int64), np.arange(count), graph.nodes, graph.features, held)


def cut(graph: Neighborhood, members, targets, hops: int = 0) -> ClusterRows:
    scratch = new_scratch(graph.num_nodes)
    rows = cut_clusters(graph, np.array(targets), members=np.array(members), boundary_hops=hops, scratch=scratch)
    assert (scratch == -1).all()
    return rows


@settings(max_examples=examples(60))
@given(shape=graph_shapes(), hops=st.integers(0, 2), seed=st.integers(0, 99))
def test_rows_are_targets_members_boundary_and_edges_are_those_among_them(shape: GraphShape, hops: int, seed: int):
    graph = neighborhood_of(whole_graph(shape))
    rng = np.random.default_rng(seed)
    members = np.flatnonzero(rng.random(shape.num_nodes) < 0.5)
    targets = rng.permutation(members)[: len(members) // 2]
    rows = cut(graph, members, targets, hops)
    edges, inside = graph.edges, set(members.tolist())
    sources = [edges.sources_of(np.arange(*edges.offsets[[node, node + 1]])) for node in range(shape.num_nodes)]
    for _ in range(hops):
        inside |= {int(source) for node in inside for source in sources[node]}
    assert len(set(rows.nodes.tolist())) == len(rows.nodes)
    assert set(rows.nodes.tolist()) == inside
    np.testing.assert_array_equal(rows.nodes[: len(targets)], targets)
    assert set(rows.nodes[: len(members)].tolist()) == set(members.tolist())
    for row, node in enumerate(rows.nodes):
        places = np.arange(*edges.offsets[[node, node + 1]])
        kept = [place for place in places if set(edges.sources_of(np.array([place])).tolist()) <= inside]
        own = np.arange(*rows.block.edges.offsets[[row, row + 1]])
        np.testing.assert_array_equal(
            rows.nodes[rows.block.edges.sources_of(own)], edges.sources_of(np.array(kept, np.int64))
        )
        np.testing.assert_array_equal(rows.block.edges.attributes[own], edges.attributes[kept])
        if rows.block.sample_scale is not None:
            assert rows.block.sample_scale[row] == pytest.approx(len(places) / len(kept) if kept else 1)


@settings(max_examples=examples(30))
@given(shape=graph_shapes(), seed=st.integers(0, 99), kind=st.sampled_from(["gcn", "sage", "gat", "gin"]))
def test_a_boundary_as_deep_as_the_model_gives_the_targets_exactly(shape: GraphShape, seed: int, kind: str):
    whole = whole_graph(shape)
    graph, rng = neighborhood_of(whole), np.random.default_rng(seed)
    members = np.flatnonzero(rng.random(shape.num_nodes) < 0.5)
    targets = rng.permutation(members)[: len(members) // 2 + 1]
    torch.manual_seed(seed)
    inputs = ModelInputs(FEATURE_WIDTH, 3, sparse=shape.sparse, attribute_width=EDGE_WIDTH, leaves=(shape.leaves or 2,))
    model = build_model(model_from_dict({"kind": kind, "hidden": 4, "layers": 2}), inputs).eval()
    if not len(targets):
        return
    rows = cut(graph, members, targets, hops=2)
    batch = clusterbatch.cluster_batch(
        rows.block,
        nodes=graph.degrees.take(rows.nodes),
        features=graph.features.take(rows.nodes),
        targets=targets,
        num_layers=2,
    )
    with torch.no_grad():
        found, wanted = clusterbatch.forward(model, batch), reference.forward(model, whole)[targets]
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5 * max(1.0, float(wanted.abs().max())))


def test_relations_keep_their_own_edges_and_scales():
    first = InEdges(np.array([0, 2, 3, 3, 3]), np.array([1, 2, 3], np.int32))
    second = InEdges(np.array([0, 0, 1, 3, 3]), np.array([0, 0, 3], np.int32))
    edges = join_relations([first, second])
    in_degree = np.array([[2, 0], [1, 1], [0, 2], [0, 0]])
    nodes = Degrees(in_degree, in_degree, in_degree.astype(np.float32), np.zeros(4, np.int64))
    features = Features(1, dense=np.zeros((4, 1), np.float32))
    graph = Neighborhood(np.zeros(0, np.int64), np.arange(4), nodes, features, edges)
    rows = cut(graph, [0, 1, 2], [2])
    assert rows.nodes.tolist() == [2, 0, 1]
    assert rows.block.edges.offsets.tolist() == [0, 0, 2, 2, 3, 3, 4]
    assert rows.nodes[rows.block.edges.sources].tolist() == [1, 2, 0, 0]
    assert rows.block.sample_scale.tolist() == [1, 1, 1, 2, 1, 1]
    last = rows.block.first(1)
    assert last.edges.offsets.tolist() == [0, 0, 1]
    assert last.sample_scale.tolist() == [1, 2]
    assert last.num_sources == 3
