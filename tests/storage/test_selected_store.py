"""A store with a selection has the same nodes and features, and the selection's relations and degrees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.facts import RelationFacts
from gnnflow.graph.schema import GraphSchema
from gnnflow.storage.graph_store import GraphStore, degrees_file, edges_file
from tests.typed_stores import PAYMENTS, random_tables, write_store


@pytest.fixture
def base(tmp_path: Path) -> GraphStore:
    return write_store(tmp_path / "store", random_tables(PAYMENTS, 3), partitions=2)


def select(base: GraphStore, folder: Path, relations: tuple[RelationFacts, ...]) -> GraphStore:
    """Write a selection in which each node has one edge, from itself, in every relation that leads to its type."""
    folder.mkdir()
    schema = GraphSchema.named(base.schema.types, (each.name for each in relations))
    for partition in range(base.num_partitions):
        for node_type in range(schema.num_types):
            rows = base.book.rows(partition, node_type)
            nodes = base.book.start(partition) + np.arange(rows.start, rows.stop)
            degrees = np.zeros((len(nodes), schema.num_relations), np.int64)
            for relation in schema.relations_into(node_type):
                degrees[:, relation] = 1
                name = edges_file(partition, schema, relation=relation)
                pq.write_table(pa.table({"dst": nodes, "src": nodes}), folder / name)
            columns = pa.FixedSizeListArray.from_arrays(pa.array(degrees.ravel()), schema.num_relations)
            weights = pa.FixedSizeListArray.from_arrays(
                pa.array(degrees.ravel().astype(np.float32)), schema.num_relations
            )
            table = pa.table({"in_degree": columns, "out_degree": columns, "in_weight": weights})
            pq.write_table(table, folder / degrees_file(partition, schema, node_type=node_type))
    return base.selected(str(folder), relations)


def test_a_selection_takes_the_place_of_the_relations_and_of_nothing_else(base: GraphStore, tmp_path: Path):
    names = sorted(f"{each}__again__{each}" for each in base.schema.types)
    relations = tuple(RelationFacts(name, 1, 0, False, (0, 1), 1) for name in names)
    store = select(base, tmp_path / "selection", relations)
    assert [str(each) for each in store.schema.relations] == names
    assert (store.schema.types, store.book.num_nodes) == (base.schema.types, base.book.num_nodes)
    assert not store.facts.has_weight
    for partition in range(base.num_partitions):
        for node_type in range(store.schema.num_types):
            held = store.nodes(partition, ["in_degree", "id"], node_type=node_type)
            assert held.column_names == ["in_degree", "id"]
            assert held["id"].equals(base.nodes(partition, ["id"], node_type=node_type)["id"])
        degrees = store.degrees(partition)
        assert degrees.in_degree.sum(1).tolist() == [1] * len(degrees)
        edges = store.edges(partition, ["dst", "src"], relation=0)
        assert edges["dst"].equals(edges["src"])


def test_one_relation_of_one_type_is_a_graph_without_types(base: GraphStore):
    one = RelationFacts("node__path__node", 5, 0, True, (1, 2), 3, leaves=2)
    bare = replace(base.facts, types=(), relations=(), target="")
    facts = bare.replace_relations((one,))
    assert not facts.schema.is_typed
    assert (facts.num_edges, facts.has_weight, facts.max_in_degree) == (5, True, 3)
    assert facts.leaves_of_relations == (2,)
    two = bare.replace_relations((one, replace(one, name="node__ring__node", leaves=1, degree_bins=(4,))))
    assert (two.schema.is_typed, two.target, two.leaves_of_relations) == (True, "node", (2, 1))
    assert (two.num_edges, two.degree_bins) == (10, (5, 2))
