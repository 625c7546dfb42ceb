"""DGL graphs as tables, through DGL's documented methods only; DGL itself is not imported.

The first of feat, feature, features, x becomes the column `x`; of label, labels, y `label`; train_mask, val_mask or
valid_mask, and test_mask `split`. Of an edge's data, weight, w or edge_weight becomes `weight`, and feat, feature,
edge_attr or x `edge_attr`. Other numbers keep their name. Node ids are DGL's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnnflow.datasets.columns import EdgeAttributes, NodeAttributes, add_degree_inputs, edge_table, node_table, to_array
from gnnflow.datasets.tables import GraphTables, TypedGraphTables, edge_type_name, type_name
from gnnflow.graph.errors import TableError

_NODE_INPUT = ("feat", "feature", "features", "x")
_EDGE_INPUT = ("feat", "feature", "edge_attr", "x")
_LABEL = ("label", "labels", "y")
_WEIGHT = ("weight", "w", "edge_weight")
_MASKS = {"train": ("train_mask",), "valid": ("val_mask", "valid_mask"), "test": ("test_mask",)}
_MAX_DIMENSIONS = 2


def from_dgl(graph: Any, *, mask_column: int = 0) -> GraphTables:
    """Return the tables of a DGL graph with one node type and one edge type.

    Raises TableError for a heterograph, or for attributes of a wrong shape.
    """
    if not graph.is_homogeneous:
        raise TableError("has several node or edge types", where="DGL graph", fix="Use from_dgl_hetero.")
    kind, relation = graph.ntypes[0], graph.canonical_etypes[0]
    nodes = _node_table(graph, kind, mask_column, "DGL graph")
    return add_degree_inputs(GraphTables(nodes, _edge_table(graph, relation, "DGL graph")))


def from_dgl_hetero(graph: Any, *, mask_column: int = 0) -> TypedGraphTables:
    """Return the tables of a DGL heterograph, one per node type and one per canonical edge type."""
    nodes = {
        type_name(kind, where="DGL graph"): _node_table(graph, kind, mask_column, f"DGL graph, {kind}")
        for kind in graph.ntypes
    }
    edges = {
        edge_type_name(*relation, where="DGL graph"): _edge_table(graph, relation, f"DGL graph, {relation}")
        for relation in graph.canonical_etypes
    }
    return TypedGraphTables(nodes, edges)


def _node_table(graph: Any, kind: str, mask_column: int, where: str) -> Any:
    stored = dict(graph.nodes[kind].data)
    x, label = _first(stored, _NODE_INPUT), _first(stored, _LABEL)
    masks = {split: stored[name] for split, names in _MASKS.items() for name in names if name in stored}
    taken = {x, label, *(name for names in _MASKS.values() for name in names)}
    inputs = {"x": stored[x]} if x else {}
    nodes = NodeAttributes(
        num_nodes=int(graph.num_nodes(kind)),
        inputs=inputs | _others(stored, taken),
        label=stored[label] if label else None,
        masks=masks,
    )
    return node_table(nodes, mask_column=mask_column, where=where)


def _edge_table(graph: Any, relation: tuple[str, str, str], where: str) -> Any:
    # Edge data is in the order of edge ids; without `order` the ends have another order.
    src, dst = graph.edges(form="uv", order="eid", etype=relation)
    stored = dict(graph.edges[relation].data)
    weight, attributes = _first(stored, _WEIGHT), _first(stored, _EDGE_INPUT)
    inputs = {"edge_attr": stored[attributes]} if attributes else {}
    edges = EdgeAttributes(
        src=to_array(src, where=where),
        dst=to_array(dst, where=where),
        weight=stored[weight] if weight else None,
        inputs=inputs | _others(stored, {weight, attributes}),
    )
    sources, targets = int(graph.num_nodes(relation[0])), int(graph.num_nodes(relation[2]))
    return edge_table(edges, num_sources=sources, num_targets=targets, where=where)


def _first(stored: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in stored), None)


def _others(stored: Mapping[str, Any], taken: set[str | None]) -> dict[str, Any]:
    # Names with an underscore in front are DGL's own, such as the ids of a parent graph.
    return {
        name: value
        for name, value in stored.items()
        if name not in taken and not name.startswith("_") and 1 <= value.ndim <= _MAX_DIMENSIONS
    }
