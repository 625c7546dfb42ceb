"""The graph store as later stages read it: per partition the node rows, and the in-edges sorted by destination.

There is a file of nodes per partition and type and one of edges per partition and relation, numbered as in
`GraphFacts.schema`. A store is only a manifest's facts and an artifact's URI, so it is cheap to send to workers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gnnflow.graph.batch import Degrees, Features, NodeFeatures, TypedFeatures
from gnnflow.graph.book import PartitionBook
from gnnflow.graph.facts import FeatureFacts, GraphFacts, RelationFacts, SelectFacts
from gnnflow.graph.labels import LABEL_KINDS
from gnnflow.graph.schema import qualified
from gnnflow.storage.columns import from_matrix, take_rows, to_matrix, to_numpy, to_ragged, to_rows
from gnnflow.storage.manifest import read_facts, read_manifest
from gnnflow.storage.tables import count_values, iter_artifact_table, read_artifact_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.graph.schema import GraphSchema
    from gnnflow.storage.manifest import Manifest

ENDS = ("dst", "src")
DEGREE_COLUMNS = ("in_degree", "out_degree", "in_weight")


@dataclass(frozen=True)
class GraphStore:
    """A committed graph store. facts: of its manifest, without the column statistics, which no task needs.

    Where selected neighbours are not direct ones, the store has their relations instead (`selected`): edges and degrees
    then come from `selection`, the artifact of the selection, and facts describe these relations; written is the schema
    that names the files of nodes.
    """

    artifact: str
    facts: GraphFacts
    num_bytes: int
    selection: str = ""
    written: GraphSchema | None = None

    @staticmethod
    def of(artifact: str, manifest: Manifest) -> GraphStore:
        """Return the store a manifest describes. Raises StorageError where it describes none."""
        kept = [entry.size for entry in manifest.files if not entry.name.startswith("quarantine/")]
        facts = read_facts(artifact, manifest, GraphFacts)
        return GraphStore(artifact, replace(facts, columns=(), column_errors={}), sum(kept))

    def selected(self, artifact: str, relations: Sequence[RelationFacts]) -> GraphStore:
        """Return the store of the same nodes with a selection's relations; itself where there are none."""
        if not relations:
            return self
        facts = self.facts.replace_relations(relations)
        return GraphStore(self.artifact, facts, self.num_bytes, artifact, self.schema)

    @staticmethod
    def of_run(artifact: str, selection: str) -> GraphStore:
        """Return the store that stages after select read, from the committed artifacts of store and selection."""
        store = GraphStore.of(artifact, read_manifest(artifact))
        return store.selected(selection, read_facts(selection, read_manifest(selection), SelectFacts).relations)

    @property
    def book(self) -> PartitionBook:
        """The partition book: the range of dense ids that each partition owns."""
        return self.facts.book

    @property
    def num_partitions(self) -> int:
        """Number of partitions."""
        return self.book.num_partitions

    def feature_columns_of(self, node_type: int) -> tuple[str, ...]:
        """Return the columns that hold the features of one type's nodes; none where the type has no features."""
        features = self.facts.features_of_types[node_type]
        return () if features is None else _feature_columns(features)

    @property
    def edge_columns(self) -> tuple[str, ...]:
        """The columns of an edge besides its ends and key; with types, the columns of any relation."""
        return self._edge_columns(self.facts)

    def edge_columns_of(self, relation: int) -> tuple[str, ...]:
        """Return the columns of an edge of one relation besides its ends and key."""
        return self._edge_columns(self.facts.relations[relation] if self.facts.relations else self.facts)

    def _edge_columns(self, of: GraphFacts | RelationFacts) -> tuple[str, ...]:
        held = {"weight": of.has_weight, "attributes": of.attribute_width, "time": of.has_time}
        return tuple(name for name, is_there in held.items() if is_there)

    @property
    def pair_columns(self) -> tuple[str, ...]:
        """The columns of a pair to predict besides its ends, key and split."""
        if self.facts.targets == "nodes":
            return ()
        labels = ("label",) if LABEL_KINDS[self.facts.label_kind].has_labels else ()
        # links are compared with random pairs, which have no attributes
        of_edges = self.facts.label_kind != "link"
        attributes = ("attributes",) if of_edges and self.facts.pair_attribute_width else ()
        return (*labels, *attributes, "time") if self.facts.has_time else (*labels, *attributes)

    @property
    def schema(self) -> GraphSchema:
        """The graph's types and relations."""
        return self.facts.schema

    def nodes(self, partition: int, columns: Sequence[str], *, node_type: int = 0) -> pa.Table:
        """Return columns of a partition's nodes of one type, in dense id order."""
        name = nodes_file(partition, self.written or self.schema, node_type=node_type)
        if not self.selection or not set(columns) & set(DEGREE_COLUMNS):
            return read_artifact_table(self.artifact, name, columns)
        # degrees of the selection's relations lie in its artifact
        held = [each for each in columns if each in DEGREE_COLUMNS]
        degrees = read_artifact_table(self.selection, degrees_file(partition, self.schema, node_type=node_type), held)
        others = [each for each in columns if each not in held]
        nodes = read_artifact_table(self.artifact, name, others) if others else degrees
        return pa.table({each: (degrees if each in held else nodes)[each] for each in columns})

    def take_nodes(self, nodes: IntArray, columns: Sequence[str], *, node_type: int = 0) -> pa.Table:
        """Return columns of some nodes of one type in their order, from the partitions that own them.

        nodes [n]: dense ids in any order, repeated or not.
        """
        mine, pieces = [], []
        for partition, own, rows in self.places_of(nodes, node_type=node_type):
            mine.append(own)
            pieces.append(self.nodes(partition, columns, node_type=node_type).take(pa.array(rows, pa.int64())))
        # back to the order asked for
        return pa.concat_tables(pieces).take(pa.array(np.argsort(np.concatenate(mine)), pa.int64()))

    def places_of(self, nodes: IntArray, *, node_type: int = 0) -> Iterator[tuple[int, IntArray, IntArray]]:
        """Yield each partition that owns some nodes of one type, their positions [k], and their rows there [k].

        nodes [n]: dense ids in any order, repeated or not; without any, one partition owns none of them.
        """
        owners = self.book.owner(nodes)
        for partition in np.unique(owners).tolist() or [0]:
            own = np.flatnonzero(owners == partition)
            first = self.book.start(partition) + self.book.rows(partition, node_type).start
            yield partition, own, nodes[own] - first

    def num_entries(self, partition: int, *, node_type: int = 0) -> int:
        """Return about how many sparse entries a partition's nodes of one type have; 0 without sparse features.

        A row without an entry counts as one. No row is read.
        """
        features = self.facts.features_of_types[node_type]
        if features is None or features.kind != "sparse":
            return 0
        name = nodes_file(partition, self.written or self.schema, node_type=node_type)
        return count_values(self.artifact, name, "x_index")

    def edges(self, partition: int, columns: Sequence[str], *, relation: int = 0) -> pa.Table:
        """Return columns of a partition's in-edges in one relation, sorted by (dst, src, occurrence).

        Selected edges are sorted by dst, each node's in priority order, and src may be a list of leaves.
        """
        name = edges_file(partition, self.schema, relation=relation)
        return read_artifact_table(self.selection or self.artifact, name, columns)

    def placed_edges(self, partition: int, columns: Sequence[str], *, relation: int = 0) -> pa.Table:
        """Return columns of the edges in one relation that a partition computes, sorted by (dst, src, occurrence).

        They are its in-edges, unless `GraphFacts.placement` puts them elsewhere; then neither end need lie in it.
        """
        if not self.facts.placement:
            return self.edges(partition, columns, relation=relation)
        assert not self.selection, "the config refuses neighbours that are selected where edges are placed"
        return read_artifact_table(self.artifact, placed_file(partition, self.schema, relation=relation), columns)

    def degrees(self, partition: int) -> Degrees:
        """Return the degrees of a partition's nodes, all types one after the other."""
        kinds = range(self.schema.num_types)
        return degrees_of([self.nodes(partition, DEGREE_COLUMNS, node_type=number) for number in kinds])

    def in_degrees(self, partition: int, relation: int) -> IntArray:
        """Return the in-degrees in one relation of the nodes it leads to in a partition [N]."""
        node_type = self.schema.target_types[relation]
        column = self.nodes(partition, ["in_degree"], node_type=node_type)["in_degree"]
        return to_matrix(column, np.int64)[:, relation] if _is_per_relation(column) else to_numpy(column)

    def pairs(self, partition: int, columns: Sequence[str]) -> pa.Table:
        """Return columns (src, dst, key, split, and `pair_columns`) of the pairs that lead to a partition.

        In (dst, src) order, parallel edges in the order of the table. A split of -1: not to be predicted.
        """
        return read_artifact_table(self.artifact, pairs_file(partition), columns)

    def iter_edges(self, partition: int, columns: Sequence[str], *, relation: int = 0) -> Iterator[pa.Table]:
        """Yield a partition's in-edges in one relation in pieces of bounded size."""
        name = edges_file(partition, self.schema, relation=relation)
        return iter_artifact_table(self.selection or self.artifact, name, columns)


def _feature_columns(features: FeatureFacts) -> tuple[str, ...]:
    if features.kind == "dense":
        return ("x",)
    return ("x_index", "x_value") if features.has_value else ("x_index",)


def features_of(table: pa.Table, facts: FeatureFacts) -> Features:
    """Return the features of rows with an x column, or x_index and perhaps x_value. Narrow rows stay narrow."""
    width = facts.width
    if "x" in table.column_names:
        dense = to_rows(table["x"]).view(facts.stored_as)
        return Features(width, dense=dense, narrow=facts.narrow)
    offsets, index = to_ragged(table["x_index"])
    value = to_ragged(table["x_value"])[1] if "x_value" in table.column_names else None
    return Features(width, offsets=offsets, index=index.astype(np.int64), value=value)


def degrees_of(tables: Sequence[pa.Table]) -> Degrees:
    """Return the degrees of nodes from a table per type: [N], or [N, R] with types where the graph is typed."""
    table = pa.concat_tables([each.select(DEGREE_COLUMNS) for each in tables]).combine_chunks()
    if not _is_per_relation(table["in_degree"]):
        return Degrees(*(to_numpy(table[name]) for name in DEGREE_COLUMNS))
    in_degree, out_degree = (to_matrix(table[name], np.int64) for name in ("in_degree", "out_degree"))
    types = np.repeat(np.arange(len(tables)), [each.num_rows for each in tables])
    return Degrees(in_degree, out_degree, to_matrix(table["in_weight"]), types)


def _is_per_relation(column: Any) -> bool:
    """Return whether a column of degrees has a list of R degrees per node, as typed graphs do."""
    return bool(pa.types.is_fixed_size_list(column.type))


def degree_column(degrees: Array, schema: GraphSchema) -> Any:
    """Return degrees [N, R] as a column of lists of R, or of numbers where the graph is untyped."""
    return from_matrix(degrees) if schema.is_typed else degrees[:, 0].copy()


def nodes_file(partition: int, schema: GraphSchema, *, node_type: int = 0) -> str:
    """Return the name of a partition's nodes of one type below the artifact of a store."""
    return _file(qualified("nodes", schema.name_of(schema.types[node_type])), partition)


def degrees_file(partition: int, schema: GraphSchema, *, node_type: int = 0) -> str:
    """Return the name of the degrees of a partition's nodes of one type below the artifact of a selection."""
    return _file(qualified("degrees", schema.name_of(schema.types[node_type])), partition)


def edges_file(partition: int, schema: GraphSchema, *, relation: int = 0) -> str:
    """Return the name of a partition's in-edges in one relation below the artifact of a store or of `select`."""
    return _file(qualified("edges", schema.name_of(schema.relations[relation])), partition)


def placed_file(partition: int, schema: GraphSchema, *, relation: int = 0) -> str:
    """Return the name of the edges in one relation that a partition computes, below the artifact of a store."""
    return f"placed-{edges_file(partition, schema, relation=relation)}"


def pairs_file(partition: int) -> str:
    """Return the name of the pairs that are predicted and lead to a partition, below the artifact of a store."""
    return _file("pairs", partition)


def _file(what: str, partition: int) -> str:
    return f"{what}-{partition:05d}.parquet"


def read_features(store: GraphStore, rows: Mapping[int, IntArray]) -> NodeFeatures:
    """Return the features of some nodes by partition and place there, ascending: in dense id order."""
    parts: list[Features | None] = []
    for node_type, facts in enumerate(store.facts.features_of_types):
        if facts is None:
            parts.append(None)
            continue
        tables = []
        for partition, held in rows.items():
            run = store.book.rows(partition, node_type)
            # rows of this type, numbered within it
            own = held[(held >= run.start) & (held < run.stop)] - run.start
            if len(own):  # else nothing reads this type here, so its file stays closed
                table = store.nodes(partition, store.feature_columns_of(node_type), node_type=node_type)
                tables.append(table if len(own) == table.num_rows else take_rows(table, own))
        parts.append(features_of(pa.concat_tables(tables).combine_chunks(), facts) if tables else _no_rows(facts))
    if len(parts) == 1 and parts[0] is not None:
        return parts[0]
    ids = np.concatenate([held + store.book.start(partition) for partition, held in rows.items()])
    return TypedFeatures(store.book.type_of(ids), tuple(parts))


def _no_rows(facts: FeatureFacts) -> Features:
    """Return features as they are stored, of no node."""
    if facts.kind == "dense":
        dense = np.zeros((0, facts.row_bytes), np.uint8).view(facts.stored_as)
        return Features(facts.width, dense=dense, narrow=facts.narrow)
    value = np.zeros(0, np.float32) if facts.has_value else None
    return Features(facts.width, offsets=np.zeros(1, np.int64), index=np.zeros(0, np.int64), value=value)
