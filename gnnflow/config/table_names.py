"""What a config's tables are called: nodes and edges, or nodes/<type> and edges/<relation> where there are several."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnnflow.config.graph_section import GraphConfig


def node_tables_by_name(graph: GraphConfig) -> dict[str, str]:
    """Return where the node table of each type lies, in the order of the types."""
    return {f"nodes/{name}" if graph.schema.is_typed else "nodes": uri for name, uri in graph.node_tables.items()}


def edge_tables_by_name(graph: GraphConfig) -> dict[str, str]:
    """Return where each edge table lies, in the order of the relations that have one."""
    return {f"edges/{name}" if graph.schema.is_typed else "edges": uri for name, uri in graph.edge_tables.items()}


def tables_by_name(graph: GraphConfig) -> dict[str, str]:
    """Return where each table lies."""
    return node_tables_by_name(graph) | edge_tables_by_name(graph)


def table_key(name: str) -> str:
    """Return the key of the config that says where a table lies."""
    return f"graph.{name.replace('/', '.')}"
