"""A typed graph in files: what is read back is the graph, whatever the order of its nodes and however it is cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gnnflow.executions.streamed import EVERY
from gnnflow.executions.tensors import types_of
from gnnflow.graph.batch import Features
from gnnflow.graph.schema import UNTYPED
from gnnflow.layers import TypedInputs, TypeInputs
from gnnflow.train.streamed.numbering import by_type, numbered, numbered_by_type, types_in
from tests.budget import examples
from tests.contracts.adapters import Case
from tests.contracts.in_files import filed
from tests.contracts.in_memory import FEATURE_WIDTH, GraphShape, rows_of, whole_graph
from tests.contracts.in_process import on_ranks
from tests.contracts.typed_graphs import SCHEMA, TypedShape, sampled_relations, typed_graph, typed_shapes
from tests.train.globalbatch.stored import job_for, write

LAYERS = 2


def case_of(shape, *, sample, num_targets):
    graph = typed_graph(shape)
    blocks = sampled_relations(graph, num_layers=LAYERS, seed=shape.seed) if sample else [graph.adjacency] * LAYERS
    number = np.random.default_rng(shape.seed).permutation(len(graph.nodes))
    return Case(graph, blocks, np.arange(num_targets), shape.seed), number


def in_edges(block, relation, targets):
    """Return a relation's in-edges of some targets: target, leaves, scale of the target, columns of the edge."""
    part, found = block.relation(relation), []
    edges = part.edges
    for target in targets:
        for edge in range(*edges.offsets[target : target + 2]):
            scale = 0.0 if part.sample_scale is None else float(part.sample_scale[target])
            own = [] if edges.weight is None else [float(edges.weight[edge])]
            own += [] if part.edge_scale is None else [float(part.edge_scale[edge])]
            own += [] if edges.attributes is None else edges.attributes[edge].tolist()
            found.append((int(target), tuple(edges.sources_of(np.array([edge])).tolist()), scale, *own))
    return sorted(found)


def edges_read(graph, layer, relation, nodes):
    """Return the same of what pieces hold. nodes: which node each row is."""
    firsts, found, every = graph.numbering.firsts, [], nodes
    for piece in graph.pieces(layer, relation):
        block = piece.load()
        leaves = block.csr if block.leaves is None else block.leaves
        first = 0 if piece.source == EVERY else firsts[piece.source]
        sizes = graph.active(layer) if piece.source == EVERY else [graph.active(layer)[piece.source]]
        nodes = every if piece.rows is None else every[piece.rows().numpy()]
        assert leaves.num_sources == (sum(sizes) if piece.rows is None else len(nodes))
        assert (np.diff([] if piece.rows is None else piece.rows()) > 0).all()
        assert (piece.rows is not None) == (piece.source == EVERY and len(graph.sizes) > graph.schema.num_types)
        assert block.num_targets == graph.active(layer + 1)[piece.target]
        assert piece.num_edges == block.csr.num_edges
        targets = every[firsts[piece.target] + block.csr.targets.numpy()]
        for edge, target in enumerate(targets.tolist()):
            run = slice(edge, edge + 1) if block.leaves is None else slice(*leaves.offsets[edge : edge + 2].tolist())
            sources = nodes[first + leaves.sources[run].numpy()]
            scale = 0.0 if block.sample_scale is None else float(block.sample_scale[block.csr.targets[edge]])
            own = [] if block.edge.weight is None else [float(block.edge.weight[edge])]
            own += [] if block.edge_scale is None else [float(block.edge_scale[edge])]
            own += [] if block.edge.attributes is None else block.edge.attributes[edge].tolist()
            found.append((target, tuple(sources.tolist()), scale, *own))
    return sorted(found)


def assert_rows_are(graph, case, number, schema):
    """Check the intervals that are here: types, degrees and features."""
    nodes, types = case.graph.nodes.take(number), types_of(case.graph.nodes)[number]
    row_of = graph.numbering.rows_of(np.arange(len(number)))
    by_row, features = np.argsort(row_of), case.graph.features.take(number)
    for interval in range(len(graph.sizes)) if graph.ring is None else graph.ring.own:
        first, last = graph.numbering.firsts[interval : interval + 2]
        held, node_type = by_row[first:last], graph.types[interval]
        assert (types[held] == node_type).all()
        found = graph.nodes(interval)
        for name in ("in_degree", "out_degree", "in_weight"):
            assert torch.equal(getattr(found, name), torch.from_numpy(getattr(nodes, name)[held]).float())
        read = graph.features(interval)
        active = held[: graph.active(0)[interval]]
        part = features if isinstance(features, Features) else features.parts[node_type]
        if part is None:
            assert read.dense.shape == (len(active), 0)
            continue
        own = part.take(active if part is features else features.places[active])
        for name in ("dense", "index", "value"):
            column = getattr(own, name)
            if column is not None and len(active):
                np.testing.assert_array_equal(getattr(read, name).numpy(), column)


@settings(max_examples=examples(40), deadline=None)
@given(shape=typed_shapes(), sample=st.booleans(), targets=st.integers(0, 5))
def test_all_edges_are_read_back_in_every_relation(shape, sample, targets):
    case, number = case_of(shape, sample=sample, num_targets=min(targets, 1))
    places = np.arange(min(targets, len(number)))
    with_depth = filed(None, case, number, targets=places if targets else None, typed=shape.inputs, leaves=shape.leaves)
    kept = with_depth.numbering.rows_of(np.arange(len(number)))
    blocks = [rows_of(block, number)[0] for block in case.per_layer]
    assert_rows_are(with_depth, case, number, shape.schema)
    written = with_depth.written()
    for graph in (written, written.pruned):
        for layer, block in enumerate(blocks):
            firsts, active = graph.numbering.firsts, graph.active(layer + 1)
            within = kept - firsts[np.searchsorted(firsts, kept, side="right") - 1]
            interval = np.searchsorted(firsts, kept, side="right") - 1
            reached = np.flatnonzero(within < np.array(active)[interval])
            for relation in range(shape.schema.num_relations):
                expected = in_edges(block, relation, reached)
                assert edges_read(graph, layer, relation, np.argsort(kept)) == expected
                assert graph.num_edges(layer, relation) == len(expected)
                pieces = graph.pieces(layer, relation)
                order = [(piece.target, piece.source, piece.number) for piece in pieces]
                assert order == sorted(order)
                several = bool(shape.leaves) and shape.leaves[relation] != 1
                sources = {EVERY if piece.source == EVERY else graph.types[piece.source] for piece in pieces}
                assert sources == {EVERY if several else shape.schema.source_types[relation]}
                into = [at for at, of in enumerate(graph.types) if of == shape.schema.target_types[relation]]
                assert sorted({piece.target for piece in pieces}) == into
    with_depth.scratch.close()


@settings(max_examples=examples(10), deadline=None)
@given(shape=typed_shapes(), sample=st.booleans(), size=st.integers(2, 3))
def test_ranks_have_the_edges_into_their_own_rows_of_each_type(shape, sample, size):
    assume(not shape.leaves)
    case, number = case_of(shape, sample=sample, num_targets=1)
    blocks = [rows_of(block, number)[0] for block in case.per_layer]

    def read(exchange):
        graph = filed(None, case, number, exchange, typed=shape.inputs, leaves=shape.leaves)
        nodes = np.argsort(graph.numbering.rows_of(np.arange(len(number))))
        assert_rows_are(graph, case, number, shape.schema)
        graph = graph.written()
        assert [graph.types[each] for each in graph.ring.own] == list(graph.types[: len(graph.ring.own)])
        found = [
            [edges_read(graph, layer, relation, nodes) for relation in range(shape.schema.num_relations)]
            for layer in range(LAYERS)
        ]
        counts = [[graph.num_edges(layer, each) for each in range(shape.schema.num_relations)] for layer in range(2)]
        graph.scratch.close()
        return found, counts

    ran = on_ranks(size, read)
    for layer, block in enumerate(blocks):
        for relation in range(shape.schema.num_relations):
            expected = in_edges(block, relation, range(len(number)))
            assert sorted(edge for found, _ in ran for edge in found[layer][relation]) == expected
            assert all(counts[layer][relation] == len(expected) for _, counts in ran)


def test_rows_of_one_type_have_room_in_its_intervals_alone():
    shape = TypedShape(SCHEMA, (3, 4, 2, 5), (9,) * SCHEMA.num_relations, seed=2)
    case, number = case_of(shape, sample=False, num_targets=1)
    graph = filed(None, case, number, typed=shape.inputs, leaves=shape.leaves)
    for node_type in range(SCHEMA.num_types):
        rows = graph.rows(3, level=1, node_type=node_type)
        for interval, (size, of) in enumerate(zip(graph.sizes, graph.types, strict=True)):
            rows.write(interval, [torch.full((3 * size * (of == node_type),), float(interval))])
        for interval, (size, of) in enumerate(zip(graph.sizes, graph.types, strict=True)):
            assert rows.read(interval).tolist() == [interval] * 3 * size * (of == node_type)
        rows.release()
        assert graph.rows(3, level=0, node_type=node_type) is rows
    graph.scratch.close()


def test_leaves_of_an_edge_may_be_of_any_type():
    shape = TypedShape(SCHEMA, (3,) * SCHEMA.num_types, (9,) * SCHEMA.num_relations, seed=2, leaves=(2,) * 5)
    case, number = case_of(shape, sample=False, num_targets=1)
    edges = case.graph.adjacency.edges
    edges.sources[:] = np.random.default_rng(0).permutation(edges.sources)
    graph = filed(None, case, number, typed=shape.inputs, leaves=shape.leaves)
    nodes = np.argsort(graph.numbering.rows_of(np.arange(len(number))))
    block, every = rows_of(case.per_layer[0], number)[0], np.arange(len(number))
    for relation in range(SCHEMA.num_relations):
        assert edges_read(graph, 0, relation, nodes) == in_edges(block, relation, every)
    graph.scratch.close()


@given(
    types=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    intervals=st.lists(st.integers(1, 3), min_size=4, max_size=4),
    depth=st.integers(0, 2**16),
    is_skewed=st.booleans(),
)
def test_every_interval_is_of_one_type_and_active_rows_lie_first(types, intervals, depth, is_skewed):
    types = np.array(types)
    number = len(types)
    deep = np.random.default_rng(depth).integers(-1, 3, number).astype(np.int8)
    degree = np.arange(number, dtype=np.int32)[::-1] ** 3 if is_skewed else np.ones(number, np.int32)
    found = numbered_by_type(types, intervals, in_degree=degree, out_degree=degree, depth=deep, num_levels=3)
    assert sorted(found.rows) == list(range(number))
    assert found.types == tuple(np.repeat(np.arange(4), intervals).tolist())
    by_row = np.argsort(found.rows)
    for interval, of in enumerate(found.types):
        held = by_row[slice(*found.firsts[interval : interval + 2])]
        assert (types[held] == of).all()
        for level in range(3):
            active = found.active(level)[interval]
            assert (deep[held[:active]] >= level).all()
            assert (deep[held[active:]] < level).all()


@given(
    degree=st.lists(st.integers(0, 50), min_size=1, max_size=40),
    intervals=st.integers(1, 5),
    prunes=st.booleans(),
)
def test_nodes_of_one_type_lie_as_those_of_a_graph_without_types(degree, intervals, prunes):
    degree = np.array(degree, np.int32)
    depth = (degree % 4 - 1).astype(np.int8) if prunes else None
    keys = {"in_degree": degree, "out_degree": degree[::-1], "depth": depth, "num_levels": 3 * prunes}
    typed = numbered_by_type(np.zeros(len(degree), np.int16), (intervals,), **keys)
    alone, every = numbered(intervals, **keys), np.arange(len(degree))
    assert typed.rows_of(every).tolist() == alone.rows_of(every).tolist()
    assert (typed.sizes, typed.levels) == (alone.sizes, alone.levels)


@pytest.mark.parametrize("sparse", [False, True])
def test_pieces_of_one_type_and_relation_are_those_of_a_graph_without_types(sparse):
    shape = GraphShape(9, tuple((node * 5 % 9, node % 4) for node in range(30)), 4, sparse=sparse, weighted=True)
    graph = whole_graph(shape)
    case, number = Case(graph, [graph.adjacency] * LAYERS, np.arange(2), shape.seed), np.arange(9)[::-1]
    inputs = TypedInputs((TypeInputs("node", FEATURE_WIDTH, sparse),), tuple(map(str, UNTYPED.relations)))
    read = []
    for typed in (None, inputs):
        held = filed(None, case, number, targets=np.array([5, 8]), typed=typed)
        graph = held.written().pruned
        read.append([])
        for layer in range(LAYERS):
            for piece in graph.pieces(layer):
                block = piece.load()
                found = (block.csr.offsets, block.csr.sources, block.edge.weight, block.edge.attributes)
                read[-1].append((piece.target, piece.source, piece.number, *(each.tolist() for each in found)))
        for interval in range(len(graph.sizes)):
            features = graph.features(interval)
            columns = (features.dense, features.index, features.value, *vars(graph.nodes(interval)).values())
            read[-1].append([each if each is None else each.tolist() for each in columns])
        held.scratch.close()
    assert read[0] == read[1]
    assert len(read[0]) > 6


def test_ranks_have_their_ids_type_by_type(tmp_path):
    types = np.array([1, 0, 1, 1, 0, 2, 2, 0])
    found = by_type(types, (1, 2, 1), bounds=[0, 5, 8])
    assert found.types == (0, 1, 1, 2) * 2
    assert found.sizes == (2, 1, 2, 0, 1, 0, 0, 2)
    assert found.rows.tolist() == [2, 0, 3, 4, 1, 6, 7, 5]
    write(tmp_path)
    book = job_for(tmp_path).neighbors.store.book
    assert types_in(book).tolist() == book.type_of(np.arange(book.num_nodes)).tolist()
