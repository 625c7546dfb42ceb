"""What a config's tables are called: nodes and edges, or nodes/<type> and edges/<relation> where there are several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.graph.schema import qualified

if TYPE_CHECKING:
    from gnnflow.config.graph_section import GraphConfig


def node_tables_by_name(graph: GraphConfig) -> dict[str, str]:
    """Return where the node table of each type lies, in the order of the types."""
    return {qualified("nodes", graph.schema.name_of(kind), "/"): uri for kind, uri in graph.node_tables.items()}


def edge_tables_by_name(graph: GraphConfig) -> dict[str, str]:
    """Return where each edge table lies, in the order of the relations that have one."""
    return {qualified("edges", graph.schema.name_of(kind), "/"): uri for kind, uri in graph.edge_tables.items()}


def tables_by_name(graph: GraphConfig) -> dict[str, str]:
    """Return where each table lies."""
    return node_tables_by_name(graph) | edge_tables_by_name(graph)


def table_key(name: str) -> str:
    """Return the key of the config that says where a table lies."""
    return f"graph.{name.replace('/', '.')}"
