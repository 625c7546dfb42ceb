"""What every task of ingest knows: the tables, where to write, and how types, relations and tasks are numbered."""

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
    from gnnflow.graph.scales import Scales
    from gnnflow.graph.schema import GraphSchema
    from gnnflow.ingest.tables import EdgeTable, NodeTable, Tables
    from gnnflow.ingest.targets import EdgeTargets
    from gnnflow.storage.writing import FileEntry


class TableNames(NamedTuple):
    """What the node tables and the edge tables are called in facts, in the order of the job's tables."""

    nodes: list[str]
    edges: list[str]


class ScaledTable(NamedTuple):
    """A table that has columns to scale by `standard`, and how many."""

    name: str
    uri: str
    width: int


class NumberedTable(NamedTuple):
    """The number of a node type, and its table."""

    node_type: int
    table: NodeTable


@dataclass(frozen=True)
class IngestJob:
    """What every ingest task knows: where to write, and the tables, whose chunks an error may have to name.

    scales: what columns are scaled by where that is not for the tables to say (`graph.scaled_as`).
    """

    artifact: str
    config: GraphConfig
    tables: Tables
    scales: Scales = field(default_factory=dict)

    @cached_property
    def graph(self) -> GraphSchema:
        """The graph's types and relations."""
        return self.config.schema

    @property
    def targets(self) -> EdgeTargets | None:
        """What is asked of the edge table where targets are edges; None where they are nodes."""
        return self.tables.targets

    @property
    def partitions(self) -> int:
        """How many partitions the store gets."""
        assert self.config.partitions is not None, "a resolved run has a number of partitions"
        return self.config.partitions

    @property
    def destinations(self) -> int:
        """How many tasks rows are sent to at most: those of the round that has most."""
        return self.partitions * max(self.graph.num_types, self.graph.num_relations)

    @property
    def table_names(self) -> TableNames:
        """What the node tables and the edge tables are called in facts, in the order of `tables`."""
        return TableNames([*node_tables_by_name(self.config)], [*edge_tables_by_name(self.config)])

    @property
    def scaled_tables(self) -> list[ScaledTable]:
        """Name, place and number of columns of each table that has such to scale by `standard`."""
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
        """By what the tables are scaled that have columns to scale, where it is not for these to say."""
        return {each.name: self.scales[each.name] for each in self.scaled_tables if each.name in self.scales}

    def node_table(self, task: int) -> NumberedTable:
        """Return the number of a type and its table, one of whose chunks a task reads."""
        return next(NumberedTable(*each) for each in enumerate(self.tables.nodes) if task in each[1].tasks)

    def edge_table(self, task: int) -> EdgeTable:
        """Return the edge table one of whose chunks a task reads."""
        return next(table for table in self.tables.edges if task in table.tasks)

    def first_column(self, node_type: int) -> int:
        """Return the number of a type's first counted column among those of all types."""
        return sum(len(column_names(table.schema)) for table in self.tables.nodes[:node_type])

    def home_of(self, ids: pa.Array) -> IntArray:
        """Return the partition that each id's node lives in."""
        return (id_keys(ids) % np.uint64(self.partitions)).astype(np.int64)

    def set_aside(self, name: str, rows: pa.Table) -> tuple[FileEntry, ...]:
        """Commit quarantined rows, if there are any."""
        return (commit_table(self.artifact, f"quarantine/{name}.parquet", rows),) if rows.num_rows else ()
