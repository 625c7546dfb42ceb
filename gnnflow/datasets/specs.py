"""A graph named in one line: `pyg:Planetoid/Cora`, `csv:edges.csv`, `networkx:graph.graphml`, `sqlite:file.db`.

Pickles are refused by name, because loading a pickle runs any code that its author put in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa

from gnnflow.datasets.edge_csv import NodePlaces, from_edge_csv, from_edge_table
from gnnflow.datasets.edge_roles import Column, EdgeChoices
from gnnflow.datasets.elliptic import load_elliptic
from gnnflow.datasets.neo4j import load_neo4j
from gnnflow.datasets.networkx_files import load_networkx
from gnnflow.datasets.node_files import USUAL_ID
from gnnflow.datasets.ogb import load_ogb
from gnnflow.datasets.options import Options, Tell
from gnnflow.datasets.other_tables import READERS, WITH_TABLES
from gnnflow.datasets.pyg import load_pyg
from gnnflow.datasets.tables import GraphTables, TypedGraphTables, save_tables
from gnnflow.datasets.triples import load_triples
from gnnflow.graph.errors import ConfigError, TableError

_SEPARATORS = {"comma": ",", "tab": "\t", "space": " ", "semicolon": ";", "pipe": "|"}
_PICKLES = (".gpickle", ".pickle", ".pkl", ".pt", ".pth", ".joblib")
_KINDS = "pyg:CLASS/NAME, csv:PATH or networkx:PATH"


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
    """Return the tables of the graph a spec names: `KIND:PLACE`, such as `csv:PATH` or `pyg:CLASS[/ARGUMENT...]`."""
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
        others = [kind for kind in _LOADERS if kind not in ("pyg", "csv", "networkx")]
        raise ConfigError(
            f"{spec!r} does not name a graph",
            where="import",
            fix=f"Use {_KINDS}; other kinds with a path: {', '.join(others)}.{extra}",
        )
    left = Options(options or {}, where=spec)
    return _LOADERS[source](name, left, tell or (lambda _: None))


def _load_csv(path: str, options: Options, tell: Tell) -> GraphTables | TypedGraphTables:
    sep = options.take("sep", "") if options.has("sep") else None
    header = options.boolean("header", default=True) if options.has("header") else None
    counts = options.boolean("counts", default=False) if options.has("counts") else None
    encoding, decimal = options.take("encoding", ""), options.take("decimal", "")
    said, nodes, node_id = _choices(options), options.names("nodes"), options.take("node_id", USUAL_ID)
    options.finish()
    return from_edge_csv(
        path,
        src=said.src,
        dst=said.dst,
        types=said.types,
        sep=None if sep is None else _SEPARATORS.get(sep, sep),
        header=header,
        encoding=encoding or None,
        decimal=decimal,
        counts=counts,
        weight=said.weight,
        time=said.time,
        relation=said.relation,
        nodes=nodes,
        node_id=node_id,
        tell=tell,
    )


def _choices(options: Options) -> EdgeChoices:
    """Return the roles of columns among the options."""

    def column(name: str) -> Column | None:
        return found if (found := options.column(name, "")) != "" else None

    relation = options.column("relation", "") if options.has("relation") else None
    ends, types = (column("src"), column("dst")), options.names("types") or ()
    return EdgeChoices(*ends, column("weight"), column("time"), relation, types)


def _load_table(path: str, options: Options, tell: Tell, *, kind: str) -> GraphTables | TypedGraphTables:
    """Return the tables of edges in a format of its kind, and of node tables in the same format.

    Options: the roles of columns as of a CSV; nodes (places, or names of tables in the file) and node_id; edges: the
    table of edges, where one file holds several tables.
    """
    read, has_tables = READERS[kind], kind in WITH_TABLES
    edges = options.take("edges", "") if has_tables else ""
    said, nodes, node_id = _choices(options), options.names("nodes") or (), options.take("node_id", USUAL_ID)
    options.finish()
    table = read(path, edges)

    def read_nodes(place: str) -> pa.Table:
        return read(path, place) if has_tables else read(place, "")

    places = NodePlaces(nodes, node_id, read_nodes)
    return from_edge_table(table, path=f"{path}, {edges}" if edges else path, said=said, nodes=places, tell=tell)


_LOADERS: dict[str, Callable[[str, Options, Tell], GraphTables | TypedGraphTables]] = {
    "csv": _load_csv,
    "networkx": load_networkx,
    "pyg": load_pyg,
    "triples": load_triples,
    "neo4j": load_neo4j,
    "ogb": load_ogb,
    "elliptic": load_elliptic,
    **{kind: partial(_load_table, kind=kind) for kind in READERS},
}
