"""The roles of an edge table's columns: given by the caller, or evident from their names.

An error asks for a role that neither gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gnnflow.datasets.edge_headers import (
    Neo4jHeader,
    Pair,
    find_ends,
    find_relation,
    find_time,
    find_types,
    find_weight,
    neo4j_header,
    neo4j_nodes,
)
from gnnflow.datasets.tables import GraphTables, TypedGraphTables, type_name
from gnnflow.graph.errors import ConfigError, TableError, listed

Column = str | int
"""A column's name, or its position from 0."""

ONE_TYPE = ("", "")
_MOST_NAMES = 30  # in a message
_PAIR = 2
_RATINGS = 4  # columns: user, item, rating and time, without a header


@dataclass(frozen=True)
class EdgeChoices:
    """The roles of columns that the caller gives; None and () leave them to the header.

    relation: the column of each edge's relation; "" for none. types: one name for nodes of one type, two for the types
    of sources and targets.
    """

    src: Column | None = None
    dst: Column | None = None
    weight: Column | None = None
    time: Column | None = None
    relation: Column | None = None
    types: tuple[str, ...] = ()


@dataclass(frozen=True)
class EdgeColumns:
    """The names of an edge list's columns by role.

    types: of sources and targets, empty where nodes have one type. time_is_chosen: the caller chose the column of
    times; else it is used only where it holds integers. kind: the column of each edge's relation. kind_is_chosen: by
    the caller, or by a header of Neo4j. renamed: attributes with a new name. ignored: columns that are left out.
    """

    src: str
    dst: str
    types: Pair
    weight: str | None
    time: str | None
    time_is_chosen: bool = False
    kind: str | None = None
    kind_is_chosen: bool = False
    renamed: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    @property
    def roles(self) -> dict[str, str]:
        """The new names of columns that are not plain attributes."""
        named = {self.weight: "weight", self.time: "timestamp"}
        kind = {} if self.kind is None else {self.kind: "type"}
        return (
            self.renamed
            | kind
            | {self.src: "src", self.dst: "dst"}
            | {name: role for name, role in named.items() if name is not None}
        )


def find_columns(
    names: Sequence[str], said: EdgeChoices, *, has_header: bool, path: str, is_bipartite: bool = False
) -> EdgeColumns:
    """Return the roles of columns. Raises TableError where a role is not evident and not given, or is given twice.

    is_bipartite: the file says that its ends are of two types.
    """
    asked = {role: getattr(said, role) for role in ("src", "dst", "weight", "time")}
    asked["relation"] = said.relation or None
    found = {role: column_name(names, column, path) for role, column in asked.items() if column is not None}
    neo4j = neo4j_header(names) if has_header else None
    if has_header and neo4j is None and neo4j_nodes(names) is not None and not {"src", "dst"} <= {*found}:
        raise TableError(
            "has a header of Neo4j's nodes, not of relationships",
            where=path,
            fix="Name the folder of the export: gnnflow import neo4j:FOLDER.",
        )
    src, dst = _ends(names, found, neo4j, has_header=has_header, path=path)
    others = [name for name in names if name not in (src, dst, *found.values())] if has_header else []
    weight, time = found.get("weight", find_weight(others)), found.get("time", find_time(others))
    kind = found.get("relation", find_relation(others) if said.relation is None else None)
    taken = [name for name in (src, dst, weight, time, kind) if name is not None]
    if len({*taken}) < len(taken):
        raise TableError(
            f"src, dst, weight, time and relation are not different columns: {', '.join(taken)}",
            where=path,
            fix="Name another column for each.",
        )
    # published lists without a header have two ends, a weight or a time; with more columns they may be ratings
    is_list = len(names) < _RATINGS and not is_bipartite
    known = _types_by_names(src, dst, neo4j) if has_header else ONE_TYPE if is_list else None
    types = _types(src, dst, said.types, known, path=path)
    columns = EdgeColumns(
        src,
        dst,
        types,
        weight,
        time,
        time_is_chosen=said.time is not None,
        kind=kind,
        kind_is_chosen=said.relation is not None,
    )
    if neo4j is None:
        return columns
    renamed = {name: called for name, called in neo4j.names.items() if name not in taken}
    return replace(columns, kind=kind or neo4j.kind, kind_is_chosen=True, renamed=renamed, ignored=neo4j.ignored)


def _ends(
    names: Sequence[str], said: dict[str, str], neo4j: Neo4jHeader | None, *, has_header: bool, path: str
) -> Pair:
    if len(names) < _PAIR:
        raise TableError(
            f"has one column, {names[0]!r}",
            where=path,
            fix="Give every edge two ends; check the separator (--option sep).",
        )
    first, second = names[0], names[1]
    evident: Pair | None = (said.get("src", first), said.get("dst", second))
    if has_header and not {"src", "dst"} <= {*said}:
        evident = neo4j.ends if neo4j else find_ends(names)
    if evident is None or any(
        end in said and said[end] != name for end, name in zip(("src", "dst"), evident, strict=True)
    ):
        raise TableError(
            f"the names of the columns do not show which two are the ends of an edge: "
            f"{listed(names, at_most=_MOST_NAMES)}",
            where=path,
            fix="Give --ends SRC,DST (in Python src and dst), or --option header=false where there is no header.",
        )
    return evident


def _types(src: str, dst: str, said: tuple[str, ...], known: Pair | None, *, path: str) -> Pair:
    if len(said) > _PAIR or "" in said:
        raise ConfigError(f"types are {said}", where=path, fix="Give one name, or two: of sources and targets.")
    types = (said[0], said[-1]) if said else known
    if types is None:
        raise TableError(
            f"columns {src!r} and {dst!r} may hold nodes of one type or of two",
            where=path,
            fix="Give --types NAME for one type, --types SRC,DST for two (in Python types).",
        )
    return ONE_TYPE if types[0] == types[1] else (type_name(types[0], where=path), type_name(types[1], where=path))


def _types_by_names(src: str, dst: str, neo4j: Neo4jHeader | None) -> Pair | None:
    if neo4j is None or (src, dst) != neo4j.ends:
        return find_types(src, dst)
    # without groups Neo4j has one space of ids for all nodes
    return neo4j.groups if all(neo4j.groups) or not any(neo4j.groups) else None


def summary(columns: EdgeColumns, tables: GraphTables | TypedGraphTables) -> str:
    """Return the chosen roles as text: ends, types, relations, weight, time, and the other attributes."""
    parts = [f"ends {columns.src} -> {columns.dst}"]
    if isinstance(tables, GraphTables):
        edges = tables.edges
        parts += ["nodes of one type"]
    else:
        edges = next(iter(tables.edges.values()))
        parts += [f"types {listed(list(tables.nodes))}", f"relations {listed(list(tables.edges))}"]
    taken = {"weight": columns.weight, "timestamp": columns.time}
    parts += [f"weight {columns.weight or 'none'}", f"time {columns.time or 'none'}"]
    left = [name for name in edges.column_names if name not in ("src", "dst") and not taken.get(name)]
    return "; ".join([*parts, f"attributes {listed(left) or 'none'}"])


def column_name(names: Sequence[str], column: Column, path: str) -> str:
    """Return the name of a column, given by name or position from 0. Raises TableError where there is none."""
    if isinstance(column, int) and 0 <= column < len(names):
        return names[column]
    if column in names:
        return str(column)
    raise TableError(
        f"has no column {column!r}; it has {', '.join(names)}",
        where=path,
        fix="Name columns as in the header, or by position from 0; check the separator.",
    )
