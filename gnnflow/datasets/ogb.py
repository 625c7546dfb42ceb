"""The folder of a node property data set of the Open Graph Benchmark, as it is downloaded: `raw/` and `split/`.

Nothing there is unpickled: splits in `.pt` and graphs in `.npz` or `.pt` are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from gnnflow.datasets.columns import (
    EdgeAttributes,
    NodeAttributes,
    add_degree_inputs,
    edge_table,
    node_table,
)
from gnnflow.datasets.matrices import read_columns, read_matrix
from gnnflow.datasets.options import Options, Tell
from gnnflow.datasets.tables import GraphTables, TypedGraphTables, edge_type_name, type_name
from gnnflow.graph.arrays import Array
from gnnflow.graph.errors import TableError, listed
from gnnflow.graph.splits import SPLITS
from gnnflow.storage.filesystem import is_folder, join, list_names

_ZIPPED = ".csv.gz"
_ENDS, _BAR = "edge", "___"
_NOT_COLUMNS = ("num-", "edge_reltype")
_PAIR = 2


def load_ogb(path: str, options: Options, tell: Tell) -> GraphTables | TypedGraphTables:
    """Return the tables of a folder of OGB: `raw/`, and a split below `split/`.

    Option split: the name of a folder below `split/`, where there are several. Edges are taken as the file has them,
    one direction of an undirected graph. Raises TableError for a folder of another form.
    """
    chosen = options.take("split", "")
    options.finish()
    raw = join(path, "raw")
    names = list_names(raw)
    if f"{_ENDS}{_ZIPPED}" not in names and "relations" not in names:
        also = f"; it has {listed(names)}" if names else ""
        raise TableError(
            f"has no raw/edge.csv.gz and no raw/relations{also}",
            where=path,
            fix="Name the folder with raw and split in it. Binary files (data.npz) are read by the package ogb: pass "
            "its graph to gnnflow.datasets.from_pyg.",
        )
    split = _split_folder(path, chosen)
    tables = _typed(raw, split) if "relations" in names else _plain(raw, split)
    edges = [tables.edges] if isinstance(tables, GraphTables) else list(tables.edges.values())
    tell(
        f"{path}: splits from {split.removeprefix(path).strip('/') if split else 'none'}; "
        f"{sum(table.num_rows for table in edges)} edges, in the direction of the file (for both set "
        "graph.reverse_edges)"
    )
    return tables


def _split_folder(path: str, chosen: str) -> str:
    """Return the folder of splits; "" where there is none."""
    folders = [name for name in list_names(join(path, "split")) if is_folder(join(path, "split", name))]
    if chosen and chosen not in folders:
        raise TableError(f"has no split {chosen!r}; it has {listed(folders)}", where=path, fix="Name one of them.")
    if not chosen and len(folders) > 1:
        raise TableError(f"has several splits: {listed(folders)}", where=path, fix="Choose one: --option split=NAME.")
    return join(path, "split", chosen or folders[0]) if folders else ""


def _plain(raw: str, split: str) -> GraphTables:
    counts = read_matrix(join(raw, f"num-node-list{_ZIPPED}"))
    if counts.size != 1:
        raise TableError(
            f"holds {counts.size} graphs",
            where=raw,
            fix="gnnflow learns on the nodes of one graph; name such a data set.",
        )
    nodes = _nodes(raw, int(counts.item()), split)
    return add_degree_inputs(GraphTables(nodes, _edges(raw, len(nodes), len(nodes))))


def _typed(raw: str, split: str) -> TypedGraphTables:
    held = read_columns(join(raw, f"num-node-dict{_ZIPPED}"))
    counts = {column[0].as_py(): int(column[1].as_py()) for column in held.columns}
    nodes = {}
    for kind, count in counts.items():
        columns = _column_files(raw, "node-", kind) | _column_files(raw, "node_", kind)
        folder = join(split, kind) if split and kind in list_names(split) else ""
        nodes[type_name(kind, where=raw)] = _node_table(columns, count, folder, where=f"{raw}, {kind}")
    edges = {}
    for name in list_names(join(raw, "relations")):
        source, _, rest = name.partition(_BAR)
        relation, _, target = rest.partition(_BAR)
        if source not in counts or target not in counts:
            raise TableError(f"relation {name!r} joins unknown types", where=raw, fix="Get the folder again.")
        folder = join(raw, "relations", name)
        edges[edge_type_name(source, relation, target, where=raw)] = _edges(folder, counts[source], counts[target])
    return TypedGraphTables(nodes, edges)


def _column_files(raw: str, prefix: str, kind: str = "") -> dict[str, str]:
    """Return files by the name of their column: `node-feat.csv.gz` or, of a type, `node-feat/TYPE/node-feat.csv.gz`."""
    if kind:
        names = [name for name in list_names(raw) if name.startswith(prefix) and is_folder(join(raw, name))]
        return {name: join(raw, name, kind, name + _ZIPPED) for name in names if kind in list_names(join(raw, name))}
    found = [name for name in list_names(raw) if name.startswith(prefix) and name.endswith(_ZIPPED)]
    return {name.removesuffix(_ZIPPED): join(raw, name) for name in found if not name.startswith(_NOT_COLUMNS)}


def _nodes(raw: str, count: int, split: str) -> pa.Table:
    columns = _column_files(raw, "node-") | _column_files(raw, "node_")
    return _node_table(columns, count, split, where=raw)


def _node_table(columns: Mapping[str, str], count: int, split: str, *, where: str) -> pa.Table:
    inputs = {
        ("x" if name == "node-feat" else name): _vector(read_matrix(place))
        for name, place in columns.items()
        if name != "node-label"
    }
    label = _labels(read_matrix(columns["node-label"])) if "node-label" in columns else None
    masks = _masks(split, count) if split else {}
    attributes = NodeAttributes(num_nodes=count, inputs=inputs, label=label, masks=masks)
    return node_table(attributes, mask_column=0, where=where)


def _edges(folder: str, num_sources: int, num_targets: int) -> pa.Table:
    place = join(folder, f"{_ENDS}{_ZIPPED}")
    ends = read_matrix(place)
    if ends.shape[1] != _PAIR or ends.dtype.kind not in "iu":
        raise TableError(f"has {ends.shape[1]} columns, not two of integers", where=place, fix="Get the file again.")
    held = _column_files(folder, "edge-") | _column_files(folder, "edge_")
    inputs = {name: _vector(read_matrix(place)) for name, place in held.items()}
    weight = inputs.pop("edge_weight", None)
    inputs = {("edge_attr" if name == "edge-feat" else name): value for name, value in inputs.items()}
    attributes = EdgeAttributes(ends[:, 0], ends[:, 1], weight, inputs)
    return edge_table(attributes, num_sources=num_sources, num_targets=num_targets, where=place)


def _vector(values: Array) -> Array:
    """Return a matrix of one column as a vector."""
    return values[:, 0] if values.shape[1] == 1 else values


def _labels(values: Array) -> Array:
    """Return labels, whole numbers with gaps as classes from 0 with -1 for none."""
    if values.dtype.kind != "f" or values.shape[1] > 1:
        return values
    given = values[~np.isnan(values)]
    if len(given) and (given == np.floor(given)).all() and (given >= 0).all():
        return np.where(np.isnan(values), -1, values).astype(np.int64)
    return values


def _masks(folder: str, count: int) -> dict[str, Array]:
    """Return the nodes of each split, from the files of their row numbers."""
    masks = {}
    for split in SPLITS:
        place = join(folder, f"{split}{_ZIPPED}")
        if f"{split}{_ZIPPED}" not in list_names(folder):
            raise TableError(
                f"has no {split}{_ZIPPED}; it has {listed(list_names(folder))}",
                where=folder,
                fix="Splits in .pt are read by unpickling: write the row numbers as CSV.",
            )
        rows = read_matrix(place)[:, 0]
        if len(rows) and not (rows.min() >= 0 and rows.max() < count):
            raise TableError(f"has rows beyond the {count} nodes", where=place, fix="Get the folder again.")
        masks[split] = np.zeros(count, bool)
        masks[split][rows.astype(np.int64)] = True
    return masks
