"""A graph named in one line: `pyg:Planetoid/Cora`, `csv:edges.csv`, `networkx:graph.graphml`.

Pickles are refused by name, because loading a pickle runs any code that its author put in it. NetworkX reads only
formats of text here: GraphML, GML and edge lists.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

from gnnflow.datasets.edge_csv import from_edge_csv
from gnnflow.datasets.edge_headers import is_header
from gnnflow.datasets.networkx import from_networkx
from gnnflow.datasets.options import Options
from gnnflow.datasets.pyg import load_pyg
from gnnflow.datasets.tables import GraphTables, TypedGraphTables, save_tables
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.graph.libraries import load_library
from gnnflow.storage.filesystem import read_bytes
from gnnflow.storage.table_files import require_file

_SEPARATORS = {"comma": ",", "tab": "\t", "space": " ", "semicolon": ";", "pipe": "|"}
_PICKLES = (".gpickle", ".pickle", ".pkl", ".pt", ".pth", ".joblib")

_FORMATS = (".graphml", ".gml", ".edgelist")
# Errors of NetworkX for a file of another format than its name says; its message may quote the file.
_PARSING = (ArithmeticError, AttributeError, LookupError, RecursionError, SyntaxError, TypeError, ValueError)

Tell = Callable[[str], None]
"""Receives a sentence about the roles that an importer chose."""


def import_graph(
    spec: str, *, out: str, options: Mapping[str, str] | None = None, tell: Tell | None = None
) -> list[str]:
    """Import the graph a spec names, write its tables below `out`, and return their URIs, node tables first.

    tell: is called with the chosen roles. Raises ConfigError for an unknown spec or option, TableError for a graph that
    breaks the table contract.
    """
    return save_tables(import_spec(spec, options=options, tell=tell), out)


def import_spec(
    spec: str, *, options: Mapping[str, str] | None = None, tell: Tell | None = None
) -> GraphTables | TypedGraphTables:
    """Return the tables of the graph a spec names: `pyg:CLASS[/ARGUMENT...]`, `csv:PATH` or `networkx:PATH`."""
    source, colon, name = spec.partition(":")
    if source == "pyg-file" or name.lower().endswith(_PICKLES):
        raise TableError(
            "is read by unpickling, which runs code from the file",
            where=spec,
            fix="Load it yourself where you trust it, and pass it to gnnflow.datasets: from_pyg, from_pyg_hetero or "
            "from_networkx.",
        )
    if source not in _LOADERS or not colon or not name:
        extra = (
            " A DGL graph is passed to gnnflow.datasets.from_dgl or from_dgl_hetero in Python."
            if source == "dgl"
            else ""
        )
        raise ConfigError(
            f"{spec!r} does not name a graph",
            where="import",
            fix=f"Use pyg:CLASS/NAME, csv:PATH or networkx:PATH.{extra}",
        )
    left = Options(options or {}, where=spec)
    return _LOADERS[source](name, left, tell or (lambda _: None))


def _load_csv(path: str, options: Options, tell: Tell) -> GraphTables | TypedGraphTables:
    sep = options.take("sep", "") if options.has("sep") else None
    header = options.boolean("header", default=True) if options.has("header") else None
    src, dst, weight, time = (options.column(name, "") for name in ("src", "dst", "weight", "time"))
    types, nodes, node_id = options.names("types"), options.take("nodes", ""), options.take("node_id", "id")
    options.finish()
    return from_edge_csv(
        path,
        src=None if src == "" else src,
        dst=None if dst == "" else dst,
        types=types or (),
        sep=None if sep is None else _SEPARATORS.get(sep, sep),
        header=header,
        weight=None if weight == "" else weight,
        time=None if time == "" else time,
        nodes=nodes or None,
        node_id=node_id,
        tell=tell,
    )


def _load_networkx(path: str, options: Options, tell: Callable[[str], None]) -> GraphTables:
    """Return the tables of a GraphML, GML or edge-list file.

    Options: node_attributes and edge_attributes (names separated by commas; all where not given), label, split, weight;
    for GML `ids` (the attribute that names a node: id, label or another); for edge lists `directed`. Raises TableError
    for another format and for a file that does not parse.
    """
    suffix = next((suffix for suffix in _FORMATS if path.endswith(suffix)), None)
    if suffix is None:
        raise TableError(f"is not one of {', '.join(_FORMATS)}", where=path, fix="Write the graph as GraphML.")
    require_file(path)
    graph = _READERS[suffix](path, options, tell)
    node_attributes, edge_attributes = options.names("node_attributes"), options.names("edge_attributes")
    label, split, weight = (options.take(name, name) for name in ("label", "split", "weight"))
    options.finish()
    tables = from_networkx(
        graph,
        node_attributes=node_attributes,
        edge_attributes=edge_attributes,
        label=label,
        split=split,
        weight=weight,
    )
    held = {"label": (label, tables.nodes), "split": (split, tables.nodes), "weight": (weight, tables.edges)}
    found = (
        f"{role} from {name!r}" if role in table.column_names else f"no {role}" for role, (name, table) in held.items()
    )
    tell(f"{path}: {'; '.join(found)}")
    return tables


def _read_graphml(path: str, _: Options, __: Callable[[str], None]) -> Any:
    content = read_bytes(path)
    # Entities can expand to gigabytes or name other files; GraphML needs none.
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise TableError("declares a DOCTYPE or entities", where=path, fix="Write it without; GraphML needs none.")
    return _parse(path, "read_graphml", content)


def _read_gml(path: str, options: Options, tell: Callable[[str], None]) -> Any:
    """Return the graph of a GML file, with nodes' labels, which NetworkX would drop.

    Option `ids` chooses the attribute that names a node, or `id`. Without it the label does where all nodes have
    different labels that are all text or all integers.
    """
    networkx = load_library("networkx", extra="networkx")
    chosen = options.take("ids", "") if options.has("ids") else None
    graph = _parse(path, "read_gml", read_bytes(path), label="id")
    names = {} if chosen == "id" else dict(graph.nodes(data="label" if chosen is None else chosen))
    can_name = any(all(isinstance(name, kind) for name in names.values()) for kind in (str, int))
    can_name = can_name and len({*names.values()}) == len(names)
    if chosen not in (None, "id") and not can_name:
        raise TableError(
            f"attribute {chosen!r} does not name the nodes: it is missing, repeated, or not all text or all integers",
            where=path,
            fix="Leave ids out, or give --option ids=id.",
        )
    named = bool(names) and can_name
    tell(f"{path}: ids from {((chosen or 'label') if named else 'id')!r}")
    return networkx.relabel_nodes(graph, names) if named else graph


def _read_edgelist(path: str, options: Options, _: Callable[[str], None]) -> Any:
    networkx = load_library("networkx", extra="networkx")
    kind = networkx.DiGraph if options.boolean("directed", default=False) else networkx.Graph
    content = read_bytes(path)
    lines = (line.strip() for line in io.BytesIO(content))
    first = next((line for line in lines if line and not line.startswith(b"#")), b"")
    if is_header(names := first.decode(errors="replace").split()[:2]):
        raise TableError(
            f"its first line is a header, which NetworkX would read as an edge: {' '.join(names)}",
            where=path,
            fix="Give it as csv:PATH, or take the line out.",
        )
    return _parse(path, "read_edgelist", content, create_using=kind)


def _parse(path: str, reader: str, content: bytes, **arguments: Any) -> Any:
    networkx = load_library("networkx", extra="networkx")
    try:
        return getattr(networkx, reader)(io.BytesIO(content), **arguments)
    except (networkx.NetworkXException, *_PARSING) as error:
        raise TableError(
            f"cannot be read by networkx.{reader} ({type(error).__name__})",
            where=path,
            fix="Check the format; for columns use csv:PATH.",
        ) from error


_READERS = {".graphml": _read_graphml, ".gml": _read_gml, ".edgelist": _read_edgelist}


_LOADERS: dict[str, Callable[[str, Options, Tell], GraphTables | TypedGraphTables]] = {
    "csv": _load_csv,
    "networkx": _load_networkx,
    "pyg": load_pyg,
}
