"""The job of ingest, known to every task: tables, artifact, and the numbers of types, relations and tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.config.graph_section import edge_tables_by_name, node_tables_by_name
from gnnflow.ingest.statistics import column_names
from gnnflow.storage.columns import id_keys
from gnnflow.storage.tables import commit_table

if TYPE_CHECKING:
    import pyarrow as pa

    from gnnflow.config import GraphConfig
    from gnnflow.graph.arrays import IntArray
    from gnnflow.graph.narrow import Ranges
    from gnnflow.graph.scales import Scales
    from gnnflow.graph.schema import GraphSchema
    from gnnflow.ingest.tables import EdgeTable, NodeTable, Tables
    from gnnflow.ingest.targets import EdgeTargets
    from gnnflow.storage.writing import FileEntry


_PROCESS_BYTES = 320 << 20  # of a worker without any rows
_LEAST_SHARE, _TIMES_OVER = 4, 16


class TableNames(NamedTuple):
    """The names of node and edge tables in facts, in the order of the job's tables."""

    nodes: list[str]
    edges: list[str]


class ScaledTable(NamedTuple):
    """A table with columns to scale by `standard`, and their number."""

    name: str
    uri: str
    width: int


class NumberedTable(NamedTuple):
    """The number of a node type, and its table."""

    node_type: int
    table: NodeTable


@dataclass(frozen=True)
class IngestJob:
    """The job that every ingest task gets: where to write, and the tables, whose chunks an error may name.

    scales, ranges: given scales and ranges of columns, which then do not follow from the tables (`graph.scaled_as`).
    memory: bytes that a worker may have. trains: whether a model will train on the tables, for which train and valid
    need targets. maps_ids: whether tasks map the ids of nodes (`owned_ids`); None chooses.
    """

    artifact: str
    config: GraphConfig
    tables: Tables
    scales: Scales = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)
    memory: int = 2 << 30
    trains: bool = True
    maps_ids: bool | None = None

    @cached_property
    def graph(self) -> GraphSchema:
        """The graph's types and relations."""
        return self.config.schema

    @property
    def targets(self) -> EdgeTargets | None:
        """The task's demands on the edge tables; None where targets are nodes."""
        return self.tables.targets

    @property
    def partitions(self) -> int:
        """Number of partitions of the store."""
        assert self.config.partitions is not None, "a resolved run has a number of partitions"
        return self.config.partitions

    @property
    def run_bytes(self) -> int:
        """Bytes of edges that are worked on at once; while they are sorted and written they take 16 times as many."""
        return max(self.memory - _PROCESS_BYTES, self.memory // _LEAST_SHARE) // _TIMES_OVER

    @property
    def destinations(self) -> int:
        """Number of tasks of the largest round, which bounds the destinations of rows."""
        return self.partitions * max(self.graph.num_types, self.graph.num_relations)

    @property
    def table_names(self) -> TableNames:
        """The names of node and edge tables in facts, in the order of `tables`."""
        return TableNames([*node_tables_by_name(self.config)], [*edge_tables_by_name(self.config)])

    @property
    def scaled_tables(self) -> list[ScaledTable]:
        """The tables with columns to scale by `standard`."""
        found: list[ScaledTable] = []
        nodes, edges = self.table_names
        if self.config.normalize == "standard":
            found += [
                ScaledTable(name, t.uri, t.schema.feature_width)
                for name, t in zip(nodes, self.tables.nodes, strict=True)
            ]
        if self.config.edge_normalize == "standard":
            found += [
                ScaledTable(name, t.uri, t.schema.attribute_width)
                for name, t in zip(edges, self.tables.edges, strict=True)
            ]
        return [each for each in found if each.width]

    @cached_property
    def given_scales(self) -> Scales:
        """The given scales of tables that have columns to scale."""
        return {each.name: self.scales[each.name] for each in self.scaled_tables if each.name in self.scales}

    def node_table(self, task: int) -> NumberedTable:
        """Return the node table of which a task reads a chunk, with the number of its type."""
        return next(NumberedTable(*each) for each in enumerate(self.tables.nodes) if task in each[1].tasks)

    def edge_table(self, task: int) -> EdgeTable:
        """Return the edge table of which a task reads a chunk."""
        return next(table for table in self.tables.edges if task in table.tasks)

    def first_column(self, node_type: int) -> int:
        """Return the number of a type's first counted column among the counted columns of all types."""
        return sum(len(column_names(table.schema)) for table in self.tables.nodes[:node_type])

    def home_of(self, ids: pa.Array) -> IntArray:
        """Return the partition that each id's node lives in."""
        keys = id_keys(ids)
        home = np.empty(len(keys), np.int64)
        np.remainder(keys, np.uint64(self.partitions), out=home.view(np.uint64))
        return home

    def set_aside(self, name: str, rows: pa.Table) -> tuple[FileEntry, ...]:
        """Commit quarantined rows, if there are any."""
        return (commit_table(self.artifact, f"quarantine/{name}.parquet", rows),) if rows.num_rows else ()
