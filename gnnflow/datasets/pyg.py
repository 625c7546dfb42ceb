"""PyG graphs and public data sets as tables.

Graphs are read by their documented attributes, without an import of PyG: x becomes the column `x` (or
`x_index`/`x_value`), y `label`, train_mask/val_mask/test_mask `split`, edge_weight `weight`, edge_attr `edge_attr`. Any
other tensor of numbers with a row per node or per edge becomes a column with its name; other values (of the graph,
text, three dimensions) are left out. Node ids are the row numbers.

Data sets are named by class, and PyG downloads and reads them. It reads raw files as their authors published them, some
of which are pickles: import only the data sets of sources you trust. A data set of many graphs in splits (PPI) becomes
one graph with a `split` column.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gnnflow.datasets.columns import (
    EdgeAttributes,
    NodeAttributes,
    add_degree_inputs,
    edge_table,
    is_sparse,
    node_table,
    parse_ends,
    to_array,
)
from gnnflow.datasets.options import Options
from gnnflow.datasets.tables import GraphTables, TypedGraphTables, edge_type_name, type_name
from gnnflow.graph.arrays import Array
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.graph.libraries import load_library
from gnnflow.graph.splits import SPLITS

_MASKS = {"train": ("train_mask",), "valid": ("val_mask", "valid_mask"), "test": ("test_mask",)}
_TAKEN = {
    "x",
    "y",
    "edge_index",
    "adj_t",
    "edge_weight",
    "edge_attr",
    *(name for names in _MASKS.values() for name in names),
}
_MAX_DIMENSIONS = 2
_SPLITS = {"train": "train", "valid": "val", "test": "test"}  # our name: PyG's
_OURS = {"self", "root", "transform", "pre_transform", "pre_filter", "force_reload", "kwargs"}
_VALUES: dict[str, Any] = {"true": True, "false": False, "none": None}


def from_pyg(data: Any, *, mask_column: int = 0) -> GraphTables:
    """Return the tables of a PyG `Data`; mask_column chooses among the splits of 2-D masks.

    Raises TableError for a `HeteroData`, a graph without edges, labels of the whole graph, or attributes of a wrong
    shape.
    """
    where = f"PyG {type(data).__name__}"
    if hasattr(data, "edge_types"):
        raise TableError("has several node types", where=where, fix="Use from_pyg_hetero for HeteroData.")
    nodes = node_table(_nodes(data, where), mask_column=mask_column, where=where)
    edges = edge_table(
        _edges(data, where), num_sources=len(nodes), num_targets=len(nodes), where=f"{where}, edge_index"
    )
    return add_degree_inputs(GraphTables(nodes, edges))


def from_pyg_hetero(data: Any, *, mask_column: int = 0) -> TypedGraphTables:
    """Return the tables of a PyG `HeteroData`, one per node type and one per (source, relation, target).

    A type without features has ids alone. Raises TableError for a type without a number of nodes, and for a type or
    relation that cannot be part of a file name.
    """
    where = f"PyG {type(data).__name__}"
    if not hasattr(data, "edge_types"):
        raise TableError("has one node type", where=where, fix="Use from_pyg for Data.")
    ends = (kind for source, _, target in data.edge_types for kind in (source, target))
    unknown = next((kind for kind in ends if kind not in data.node_types), None)
    if unknown is not None:
        raise TableError(
            f"has edges of nodes {unknown!r} whose number is not known",
            where=where,
            fix=f"Set data[{unknown!r}].num_nodes, or give them features.",
        )
    nodes = {
        type_name(kind, where=where): node_table(
            _nodes(data[kind], f"{where} {kind}"), mask_column=mask_column, where=f"{where} {kind}"
        )
        for kind in data.node_types
    }
    edges = {}
    for source, relation, target in data.edge_types:
        place = f"{where} ({source}, {relation}, {target})"
        edges[edge_type_name(source, relation, target, where=where)] = edge_table(
            _edges(data[source, relation, target], place),
            num_sources=len(nodes[source]),
            num_targets=len(nodes[target]),
            where=place,
        )
    return TypedGraphTables(nodes, edges)


def from_pyg_graphs(splits: Mapping[str, Iterable[Any]]) -> GraphTables:
    """Return many `Data` as one graph: {"train": graphs, "valid": graphs, "test": graphs}, as for PPI.

    Nodes are numbered in the order given; every node of a graph gets the graph's split.
    """
    nodes: list[pa.Table] = []
    edges: list[pa.Table] = []
    first = 0
    for split, graphs in splits.items():
        assert split in SPLITS
        for graph in graphs:
            tables = from_pyg(graph)
            nodes.append(_number_nodes(tables.nodes, split, first))
            moved = tables.edges
            for number, end in enumerate(("src", "dst")):
                moved = moved.set_column(number, end, pa.array(moved[end].to_numpy() + first))
            edges.append(moved)
            first += len(tables.nodes)
    return GraphTables(pa.concat_tables(nodes).combine_chunks(), pa.concat_tables(edges).combine_chunks())


def _number_nodes(nodes: pa.Table, split: str, first: int) -> pa.Table:
    if "label" not in nodes.column_names:
        raise TableError("graphs have no labels of their nodes", where="PyG Data", fix="Choose a node-level data set.")
    nodes = nodes.drop_columns(["split"]) if "split" in nodes.column_names else nodes
    nodes = nodes.set_column(0, "id", pa.array(np.arange(first, first + len(nodes))))
    return nodes.append_column("split", pa.array([split]).take(pa.array(np.zeros(len(nodes), np.int64))))


def _nodes(store: Any, where: str) -> NodeAttributes:
    if store.num_nodes is None:
        raise TableError("does not know its number of nodes", where=where, fix="Set num_nodes.")
    label = store.get("y")
    if label is not None and np.shape(label)[:1] != (int(store.num_nodes),):
        raise TableError(
            f"y has shape {list(np.shape(label))} for {store.num_nodes} nodes: it labels the graph, not its nodes",
            where=where,
            fix="Give one label per node; gnnflow does not label whole graphs.",
        )
    inputs = {"x": store["x"]} if store.get("x") is not None and _width(store["x"]) else {}
    inputs |= {key: store[key] for key in store.keys() if _extra(store, key) and store.is_node_attr(key)}  # noqa: SIM118
    masks = {split: store[name] for split, names in _MASKS.items() for name in names if name in store}
    return NodeAttributes(int(store.num_nodes), inputs, label, masks)


def _width(x: Any) -> int:
    # torch-sparse has sizes instead of a shape; a vector is one column.
    shape = x.sparse_sizes() if callable(getattr(x, "sparse_sizes", None)) else x.shape
    return int(shape[1]) if len(shape) > 1 else 1


def _extra(store: Any, key: str) -> bool:
    value = store[key]
    if key in _TAKEN or key.startswith("_") or is_sparse(value) or not hasattr(value, "ndim"):
        return False
    return 1 <= value.ndim <= _MAX_DIMENSIONS and to_array(value, where=key).dtype.kind in "biuf"


def _edges(store: Any, where: str) -> EdgeAttributes:
    src, dst, stored = _ends(store, where)
    inputs = {"edge_attr": store["edge_attr"]} if store.get("edge_attr") is not None else {}
    inputs |= {key: store[key] for key in store.keys() if _extra(store, key) and store.is_edge_attr(key)}  # noqa: SIM118
    weight = store["edge_weight"] if store.get("edge_weight") is not None else stored
    return EdgeAttributes(src, dst, weight, inputs)


def _ends(store: Any, where: str) -> tuple[Array, Array, Array | None]:
    if store.get("edge_index") is not None:
        return *parse_ends(store["edge_index"], where=f"{where}, edge_index"), None
    adjacency = store.get("adj_t")
    if adjacency is None:
        raise TableError("has neither edge_index nor adj_t", where=where, fix="Give the graph its edges.")
    # adj_t is transposed: its rows are targets.
    if callable(getattr(adjacency, "coo", None)):
        dst, src, value = adjacency.coo()
        return src.numpy(), dst.numpy(), None if value is None else value.numpy()
    coo = adjacency.to_sparse_coo().coalesce()
    dst, src = coo.indices().numpy()
    return src, dst, coo.values().numpy()


def load_pyg(name: str, options: Options, _: Callable[[str], None]) -> GraphTables | TypedGraphTables:
    """Return the tables of `CLASS[/ARGUMENT...]`, a class of torch_geometric.datasets and its arguments in order.

    Options: root (the local folder PyG downloads to; a cache folder by default), mask_column (of several splits), and
    the class's keyword arguments. Raises ConfigError for an unknown class or argument, TableError where the download
    fails or nodes have no labels.
    """
    module = load_library("torch_geometric.datasets", extra="pyg")
    kind, *given = name.split("/")
    dataset = _dataset_class(module, kind)
    parameters = inspect.signature(dataset.__init__).parameters
    arguments = _arguments(f"pyg:{name}", given, options, parameters)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = options.take("root", str(cache / "gnnflow" / "pyg" / name.replace("/", "-")))
    mask_column = options.integer("mask_column", 0)
    options.finish()
    _check_complete(f"pyg:{name}", parameters, arguments)
    if "root" in parameters:
        arguments["root"] = root
    if "split" not in arguments and "split" in parameters and parameters["split"].default == "train":
        # a class that holds one split at a time, as PPI: several graphs per split
        parts = {ours: {**arguments, "split": pyg} for ours, pyg in _SPLITS.items()}
        return from_pyg_graphs({split: _build(f"pyg:{name}", dataset, part) for split, part in parts.items()})
    return _load_single(f"pyg:{name}", _build(f"pyg:{name}", dataset, arguments), mask_column)


def _dataset_class(module: Any, kind: str) -> Any:
    base = load_library("torch_geometric.data", extra="pyg").Dataset
    found = getattr(module, kind, None)
    if inspect.isclass(found) and issubclass(found, base):
        return found
    known = [name for name in dir(module) if inspect.isclass(getattr(module, name))]
    near = difflib.get_close_matches(kind, known, 3, 0.5)
    raise ConfigError(
        f"torch_geometric.datasets has no class {kind!r}",
        where=f"pyg:{kind}",
        fix=f"Did you mean {', '.join(near)}?" if near else "Use a class of torch_geometric.datasets.",
    )


def _arguments(
    where: str, given: list[str], options: Options, parameters: Mapping[str, inspect.Parameter]
) -> dict[str, Any]:
    own = [key for key in parameters if key not in _OURS]
    if len(given) > len(own):
        raise ConfigError(
            f"{len(given)} arguments given, the class takes {len(own)}",
            where=where,
            fix=f"Its arguments are {', '.join(own)}." if own else "Leave them out.",
        )
    arguments = dict(zip(own, given, strict=False)) | options.rest(dict.fromkeys(own))
    return {key: _value(text, parameters[key].annotation) for key, text in arguments.items()}


def _value(text: str, annotation: Any) -> Any:
    if annotation is str:
        return text
    if text.lower() in _VALUES:
        return _VALUES[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_complete(where: str, parameters: Mapping[str, inspect.Parameter], arguments: Mapping[str, Any]) -> None:
    missing = [
        key
        for key, parameter in parameters.items()
        if key not in _OURS and parameter.default is inspect.Parameter.empty and key not in arguments
    ]
    if missing:
        example = "/".join([where, *(key.upper() for key in missing)])
        raise ConfigError(f"needs {', '.join(missing)}", where=where, fix=f"Write {example}.")


def _build(where: str, dataset: Any, arguments: Mapping[str, Any]) -> Any:
    try:
        return dataset(**arguments)
    except OSError as error:  # a failed download: URLError, timeouts, refused connections, a full disk
        folder = f" or put its raw files into {arguments['root']}" if "root" in arguments else ""
        raise TableError(
            f"PyG could not get the data set ({error})",
            where=where,
            fix=f"Check the connection and proxy{folder}, then run again.",
        ) from error
    except (ImportError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"PyG refused it ({type(error).__name__}: {error})",
            where=where,
            fix="Check its arguments in the PyG documentation of the class.",
        ) from error


def _load_single(where: str, dataset: Any, mask_column: int) -> GraphTables | TypedGraphTables:
    if len(dataset) != 1:
        raise TableError(
            f"holds {len(dataset)} graphs",
            where=where,
            fix="Choose a data set of one graph, or of train/val/test splits.",
        )
    graph = dataset[0]
    load = from_pyg_hetero if hasattr(graph, "edge_types") else from_pyg
    tables: GraphTables | TypedGraphTables = load(graph, mask_column=mask_column)
    return tables
