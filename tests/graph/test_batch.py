"""Several relations lie in one array of edges, and are taken apart again into what a layer of one relation sees."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Degrees, Features, TypedFeatures, relation_blocks, sampled_block
from gnnflow.graph.book import PartitionBook
from gnnflow.graph.edges import InEdges, join_relations, sample_scale
from gnnflow.graph.sampling import EVERY_EDGE
from gnnflow.graph.schema import UNTYPED, GraphSchema, Relation
from gnnflow.graphfeature.blocks import build_minibatch
from gnnflow.graphfeature.neighborhood import Neighborhood
from tests.graphfeature.random_instances import instance_graphs, sources_of
from tests.graphfeature.random_typed import SCHEMA as TYPED

SCHEMA = GraphSchema.of(
    ["user", "item", "shop"],
    [
        Relation("user", "buys", "item"),
        Relation("item", "bought_by", "user"),
        Relation("user", "knows", "user"),
        Relation("shop", "sells", "item"),
    ],
)


@dataclass(frozen=True)
class Typed:
    """Typed rows, their in-edges by relation, each a list of (source, target), and the same as one."""

    types: np.ndarray
    pairs: tuple[np.ndarray, ...]
    edges: InEdges
    num_targets: int


@st.composite
def typed_graphs(draw: st.DrawFn) -> Typed:
    """Up to 12 rows, the first of which are targets, with random edges that keep to the schema."""
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    types = np.array(draw(st.lists(st.integers(0, 2), min_size=1, max_size=12)), np.int64)
    num_targets = draw(st.integers(0, len(types)))
    parts, pairs = [], []
    for source_type, target_type in zip(SCHEMA.source_types, SCHEMA.target_types, strict=True):
        sources = np.flatnonzero(types == source_type)
        targets = np.flatnonzero(types[:num_targets] == target_type)
        drawn = draw(st.integers(0, 9)) if len(sources) and len(targets) else 0
        pair = np.stack([rng.choice(sources, drawn), rng.choice(targets, drawn)], 1) if drawn else np.zeros((0, 2), int)
        pair = pair[np.argsort(pair[:, 1], kind="stable")]
        pairs.append(pair)
        parts.append(InEdges(offsets_of(np.bincount(pair[:, 1], minlength=num_targets)), pair[:, 0]))
    return Typed(types, tuple(pairs), join_relations(parts), num_targets)


@given(typed_graphs())
def test_each_relation_is_a_block_of_the_rows_it_joins(graph: Typed) -> None:
    block = sampled_block(
        graph.edges, num_sources=len(graph.types), in_degree=np.zeros((graph.num_targets, 4)), sampling="none"
    )
    for part, pair in zip(relation_blocks(block, graph.types, SCHEMA), graph.pairs, strict=True):
        edges = part.block.edges
        found = np.stack(
            [part.sources[edges.sources], part.targets[np.repeat(np.arange(edges.num_targets), edges.lengths)]], 1
        )
        np.testing.assert_array_equal(found, pair)
        assert np.array_equal(part.sources[: len(part.targets)], part.targets)
        assert len(set(part.sources.tolist())) == part.block.num_sources
        wanted = np.flatnonzero(graph.types[: graph.num_targets] == SCHEMA.target_types[part.relation])
        np.testing.assert_array_equal(part.targets, wanted)


@given(typed_graphs(), st.one_of(st.none(), st.integers(0, 4)), st.integers(0, 2))
def test_a_prefix_is_that_of_every_relation(graph: Typed, limit: int | None, taken: int) -> None:
    nodes = np.arange(graph.num_targets)[::-1].copy()
    picked = graph.edges.prefix(nodes, limit=limit, taken=taken)
    taken_edges = graph.edges.take(picked.positions, offsets=picked.offsets)
    for number in range(4):
        own = graph.edges.relation(number)
        alone = own.prefix(nodes, limit=limit, taken=taken)
        np.testing.assert_array_equal(taken_edges.relation(number).sources, own.sources[alone.positions])
        np.testing.assert_array_equal(taken_edges.relation(number).lengths, alone.counts)
    np.testing.assert_array_equal(picked.each(nodes), np.repeat(np.tile(nodes, 4), picked.counts))


@given(typed_graphs())
def test_the_scale_of_a_sample_is_that_of_each_relation(graph: Typed) -> None:
    full = graph.edges.lengths.reshape(4, -1).T * 3
    block = sampled_block(graph.edges, num_sources=len(graph.types), in_degree=full, sampling="uniform")
    for part in relation_blocks(block, graph.types, SCHEMA):
        kept = part.block.edges.lengths
        assert part.block.sample_scale is not None
        np.testing.assert_array_equal(part.block.sample_scale, sample_scale(kept * 3, kept))


@given(instance_graphs())
def test_a_relations_block_has_the_leaves_of_its_edges(graph: Neighborhood) -> None:
    batch = build_minibatch(graph, graph.roots, sampling=EVERY_EDGE, num_layers=1)
    (block,), ids = batch.blocks, graph.node_ids
    # the node of each source row of the block, and its type
    nodes = np.zeros(block.num_sources, np.int64)
    nodes[: len(graph.roots)] = graph.roots
    read = graph.edges.sources_of(graph.edges.prefix(graph.roots, limit=None).positions)
    nodes[block.edges.sources] = read
    is_typed = graph.edges.num_relations > 1
    types = graph.degrees.types[nodes] if graph.degrees.types is not None else np.zeros(len(nodes), np.int64)
    for part in relation_blocks(block, types, TYPED if is_typed else UNTYPED):
        own, edges = graph.edges.relation(part.relation), part.block.edges
        for row, target in enumerate(part.targets.tolist()):
            found = [ids[nodes[part.sources[sources_of(edges, e)]]] for e in range(*edges.offsets[row : row + 2])]
            root = graph.roots[target]
            wanted = [ids[sources_of(own, edge)] for edge in range(*own.offsets[root : root + 2])]
            assert [each.tolist() for each in found] == [each.tolist() for each in wanted]
        read_here = set(part.sources[edges.sources].tolist())
        assert set(part.sources.tolist()) == read_here | set(part.targets.tolist())
        assert len(part.sources) == part.block.num_sources


def test_columns_that_only_some_relations_have_are_filled() -> None:
    edges = InEdges(np.array([0, 2]), np.array([4, 5]))
    weight, attributes = np.array([2, 3], np.float32), np.array([[1], [2]], np.float32)
    wide = np.array([[5, 6], [7, 8]], np.float32)
    joined = join_relations(
        [
            edges,
            replace(edges, weight=weight, attributes=attributes),
            replace(edges, attributes=wide, time=np.arange(2)),
        ]
    )
    assert joined.weight is not None
    assert joined.attributes is not None
    assert joined.time is not None
    assert joined.weight.tolist() == [1, 1, 2, 3, 1, 1]
    assert joined.attributes.tolist() == [[0, 0], [0, 0], [1, 0], [2, 0], [5, 6], [7, 8]]
    assert joined.time.tolist()[4:] == [0, 1]
    assert max(joined.time.tolist()[:4]) < 0
    assert joined.num_targets == 1


def test_types_and_relations_are_numbered_by_name() -> None:
    assert SCHEMA.types == ("item", "shop", "user")
    assert [str(each) for each in SCHEMA.relations] == [
        "item__bought_by__user",
        "shop__sells__item",
        "user__buys__item",
        "user__knows__user",
    ]
    assert SCHEMA.relations_into(0) == (1, 2)
    assert SCHEMA.is_typed
    assert not UNTYPED.is_typed


def test_a_relation_is_read_as_it_is_written() -> None:
    assert Relation.parse("a__to_b__c") == Relation("a", "to_b", "c")
    assert Relation.parse("a__c") is None
    assert str(Relation("a", "b", "c")) == "a__b__c"


def test_the_book_knows_owner_and_type_of_every_node() -> None:
    book = PartitionBook(np.array([0, 2, 2, 5, 6, 9, 9]), num_types=3)
    assert book.num_partitions == 2
    assert book.owner(np.arange(9)).tolist() == [0] * 5 + [1] * 4
    assert book.type_of(np.arange(9)).tolist() == [0, 0, 2, 2, 2, 0, 1, 1, 1]
    assert (book.start(1), book.size(0), book.size(1), book.num_nodes) == (5, 5, 4, 9)
    assert book.rows(0, 2) == slice(2, 5)
    assert book.rows(1, 1) == slice(1, 4)


def test_features_of_types_are_taken_row_by_row() -> None:
    types = np.array([0, 1, 0, 2, 1])
    features = TypedFeatures(
        types,
        (
            Features(1, dense=np.array([[10], [20]], np.float32)),
            Features(3, offsets=np.array([0, 1, 3]), index=np.array([2, 0, 1])),
            None,
        ),
    )
    taken = features.take(np.array([4, 3, 2, 2]))
    assert taken.types.tolist() == [1, 2, 0, 0]
    first, second, third = taken.parts
    assert first is not None
    assert first.dense is not None
    assert first.dense.tolist() == [[20], [20]]
    assert second is not None
    assert second.index is not None
    assert second.index.tolist() == [0, 1]
    assert third is None


def test_degrees_of_one_relation_are_its_column() -> None:
    columns = np.arange(6).reshape(3, 2)
    degrees = Degrees(columns, columns + 10, columns.astype(np.float32), np.array([0, 1, 0]))
    one = degrees.take(np.array([2, 0])).relation(1)
    assert (one.in_degree.tolist(), one.out_degree.tolist()) == ([5, 1], [15, 11])
    assert one.types is not None
    assert one.types.tolist() == [0, 0]
