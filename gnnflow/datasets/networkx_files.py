"""Graphs in files that NetworkX reads: GraphML, GML, GEXF, Pajek, edge lists and adjacency lists, gzipped or not.

Pickles are refused elsewhere, because loading a pickle runs any code that its author put in it.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable
from typing import Any

from gnnflow.datasets.edge_headers import is_header
from gnnflow.datasets.networkx import from_networkx
from gnnflow.datasets.options import Options, Tell
from gnnflow.datasets.tables import GraphTables
from gnnflow.graph.errors import TableError
from gnnflow.graph.libraries import load_library
from gnnflow.storage.csv_dialects import decode
from gnnflow.storage.filesystem import read_bytes, require_file

# Errors of NetworkX for a file of another format than its name says; its message may quote the file.
_PARSING = (ArithmeticError, AttributeError, LookupError, RecursionError, SyntaxError, TypeError, ValueError)


def load_networkx(path: str, options: Options, tell: Tell) -> GraphTables:
    """Return the tables of a file that NetworkX reads: GraphML, GML, GEXF, Pajek, edge and adjacency lists.

    Options: node_attributes and edge_attributes (names separated by commas; all where not given), label, split, weight;
    for GML and GEXF `ids` (the attribute that names a node: id, label or another); for lists `directed`; for Pajek
    `encoding`. Raises TableError for another format and for a file that does not parse.
    """
    suffix = next((each for each in _READERS if path.removesuffix(".gz").lower().endswith(each)), None)
    if suffix is None:
        raise TableError(f"is not one of {', '.join(_READERS)}", where=path, fix="Write the graph as GraphML.")
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


def _read_graphml(path: str, _: Options, __: Tell) -> Any:
    return _parse(path, "read_graphml", _safe_xml(path))


def _safe_xml(path: str) -> bytes:
    """Return a file's bytes. Raises TableError where it declares entities."""
    content = _content(path)
    # Entities can expand to gigabytes or name other files; a graph needs none.
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise TableError("declares a DOCTYPE or entities", where=path, fix="Write it without; a graph needs none.")
    return content


def _content(path: str) -> bytes:
    """Return a file's bytes, unzipped."""
    content = read_bytes(path)
    if not path.endswith(".gz"):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TableError("is not a whole gzip file", where=path, fix="Write or copy the file again.") from error


def _read_gml(path: str, options: Options, tell: Tell) -> Any:
    """Return the graph of a GML file, with nodes' labels, which NetworkX would drop.

    Option `ids` chooses the attribute that names a node, or `id`. Without it the label does where all nodes have
    different labels that are all text or all integers.
    """
    return _named(path, _parse(path, "read_gml", _content(path), label="id"), options, tell)


def _read_gexf(path: str, options: Options, tell: Tell) -> Any:
    """Return the graph of a GEXF file, without positions, colours and sizes; nodes are named as in GML."""
    graph = _parse(path, "read_gexf", _safe_xml(path))
    for *_, held in (*graph.nodes(data=True), *graph.edges(data=True)):
        for name in ("viz", "id", "parents"):
            held.pop(name, None)
    edges = [held for *_, held in graph.edges(data=True)]
    for held in edges if any("weight" in held for held in edges) else ():
        held.setdefault("weight", 1.0)  # the default of the format
    return _named(path, graph, options, tell)


def _read_pajek(path: str, options: Options, tell: Tell) -> Any:
    """Return the graph of a Pajek file, whose nodes' labels name them; their numbers and looks are left out."""
    text = decode(_content(path), options.take("encoding", "utf-8"), where=path)
    graph = _parse(path, "read_pajek", text.encode())
    counted = re.search(r"(?im)^\s*\*vertices\s+([0-9]+)", text)
    if counted is None or int(counted[1]) != len(graph):
        raise TableError(
            f"names {len(graph)} nodes, and *Vertices says {counted[1] if counted else 'nothing'}",
            where=path,
            fix="Give every node a line and another label.",
        )
    looks = {name for _, held in graph.nodes(data=True) for name in held if name in ("id", "x", "y", "z", "shape")}
    for _, held in graph.nodes(data=True):
        for name in looks:
            held.pop(name, None)
    tell(f"{path}: ids from the labels; without {', '.join(sorted(looks)) or 'any attribute'}")
    return graph


def _named(path: str, graph: Any, options: Options, tell: Tell) -> Any:
    """Return the graph with nodes named by option `ids`, or by their labels where these can name them."""
    networkx = load_library("networkx", extra="networkx")
    chosen = options.take("ids", "") if options.has("ids") else None
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


def _read_edgelist(path: str, options: Options, _: Tell) -> Any:
    content = _content(path)
    first = _first_line(content)
    if is_header(names := first.decode(errors="replace").split()[:2]):
        raise TableError(
            f"its first line is a header, which NetworkX would read as an edge: {' '.join(names)}",
            where=path,
            fix="Give it as csv:PATH, or take the line out.",
        )
    return _parse(path, "read_edgelist", content, create_using=_list_kind(options))


def _read_adjlist(path: str, options: Options, _: Tell) -> Any:
    """Return the graph of lines that hold a node and its neighbours."""
    return _parse(path, "read_adjlist", _content(path), create_using=_list_kind(options))


def _read_multiline_adjlist(path: str, options: Options, _: Tell) -> Any:
    """Return the graph of lines that hold a node and its number of neighbours, and a line per neighbour below."""
    return _parse(path, "read_multiline_adjlist", _content(path), create_using=_list_kind(options))


def _list_kind(options: Options) -> Any:
    networkx = load_library("networkx", extra="networkx")
    return networkx.DiGraph if options.boolean("directed", default=False) else networkx.Graph


def _first_line(content: bytes) -> bytes:
    lines = (line.strip() for line in io.BytesIO(content))
    return next((line for line in lines if line and not line.startswith(b"#")), b"")


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


_READERS: dict[str, Callable[[str, Options, Tell], Any]] = {
    ".graphml": _read_graphml,
    ".gml": _read_gml,
    ".gexf": _read_gexf,
    ".net": _read_pajek,
    ".paj": _read_pajek,
    ".edgelist": _read_edgelist,
    ".multiline_adjlist": _read_multiline_adjlist,
    ".adjlist": _read_adjlist,
}
