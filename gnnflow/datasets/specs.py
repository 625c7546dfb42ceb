"""A graph named in one line: `pyg:Planetoid/Cora`, `csv:edges.csv`, `networkx:graph.graphml`.

What would have to be unpickled is refused by name: loading a pickle runs whatever code its author put in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gnnflow.datasets.edge_csv import from_edge_csv
from gnnflow.datasets.graph_files import load_networkx
from gnnflow.datasets.options import Options
from gnnflow.datasets.pyg_datasets import load_pyg
from gnnflow.datasets.tables import GraphTables, TypedGraphTables, save_tables
from gnnflow.graph.errors import ConfigError, TableError

_SEPARATORS = {"comma": ",", "tab": "\t", "space": " ", "semicolon": ";", "pipe": "|"}
_PICKLES = (".gpickle", ".pickle", ".pkl", ".pt", ".pth", ".joblib")


Tell = Callable[[str], None]
"""Hears in a sentence what an importer took for what."""


def import_graph(
    spec: str, *, out: str, options: Mapping[str, str] | None = None, tell: Tell | None = None
) -> list[str]:
    """Import the graph a spec names, write its tables below `out`, and return their URIs, node tables first.

    tell: hears what was taken for what.

    Raises ConfigError for a spec or option that is not known, TableError for a graph that breaks the table contract.
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
            f"{spec!r} names no graph",
            where="import",
            fix=f"Use pyg:CLASS/NAME, csv:PATH or networkx:PATH.{extra}",
        )
    left = Options(options or {}, where=spec)
    return _LOADERS[source](name, left, tell or _unheard)


def _unheard(_: str) -> None:
    """Drop what is told."""


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


_LOADERS: dict[str, Callable[[str, Options, Tell], GraphTables | TypedGraphTables]] = {
    "csv": _load_csv,
    "networkx": load_networkx,
    "pyg": load_pyg,
}
