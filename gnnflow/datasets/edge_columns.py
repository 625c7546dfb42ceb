"""Roles of an edge list's columns: as the caller says, else as its header does; what neither says is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gnnflow.datasets.edge_headers import (
    Neo4jHeader,
    Pair,
    are_numbers,
    find_ends,
    find_time,
    find_weight,
    neo4j_header,
    types_of,
)
from gnnflow.datasets.tables import type_name
from gnnflow.graph.errors import ConfigError, TableError, listed
from gnnflow.storage.csv_blocks import CsvFile, open_csv

Column = str | int
"""A column's name, or its position from 0."""

ONE_TYPE = ("", "")
_SEPARATORS = ("\t", ";", "|", " ")
_MOST_NAMES = 30  # that a message lists
_PAIR = 2


@dataclass(frozen=True)
class Said:
    """The caller's words about columns; None and () leave it to the header.

    types: one name for nodes of one type, two for those of sources and of targets.
    """

    src: Column | None = None
    dst: Column | None = None
    weight: Column | None = None
    time: Column | None = None
    types: tuple[str, ...] = ()


@dataclass(frozen=True)
class EdgeColumns:
    """The columns of an edge list by what they are, as the file calls them.

    types: those of sources and of targets, empty where nodes are of one type. time_is_said: else the column is taken
    only where it holds integers. kind: holds the name of each edge's relation. renamed: attributes that get another
    name. ignored: columns that are left out.
    """

    src: str
    dst: str
    types: Pair
    weight: str | None
    time: str | None
    time_is_said: bool = False
    kind: str | None = None
    renamed: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    @property
    def roles(self) -> dict[str, str]:
        """The name that each column which is no plain attribute has in the edge table."""
        named = {self.weight: "weight", self.time: "timestamp"}
        kind = {} if self.kind is None else {self.kind: "type"}
        return (
            self.renamed
            | kind
            | {self.src: "src", self.dst: "dst"}
            | {name: role for name, role in named.items() if name is not None}
        )


def open_edges(path: str, *, sep: str | None, header: bool | None) -> tuple[CsvFile, bool]:
    """Return an edge list with its first line read, and whether that line is a header.

    sep: None for the comma, or what else separates columns where there is no comma. header: None where a first line
    that is of numbers alone tells that there is none. Raises ConfigError for a separator of several characters.
    """
    if sep is not None:
        _check_separator(sep, path)
    file = open_csv(path, separator=sep or ",", comments=True)
    if sep is None and len(file.names) == 1:
        other = next((each for each in _SEPARATORS if each in file.names[0]), ",")
        file = open_csv(path, separator=other, comments=True)
    has_header = not are_numbers(file.names) if header is None else header
    if not has_header:
        file = open_csv(path, separator=file.separator, header=False, comments=True)
    refuse_repeated(file.names, path)
    return file, has_header


def understood(names: Sequence[str], said: Said, *, has_header: bool, path: str) -> EdgeColumns:
    """Return what the columns are. Raises TableError where it is not evident and not said, or is said twice."""
    asked = {role: getattr(said, role) for role in ("src", "dst", "weight", "time")}
    found = {role: column_name(names, column, path) for role, column in asked.items() if column is not None}
    neo4j = neo4j_header(names) if has_header else None
    src, dst = _ends(names, found, neo4j, has_header=has_header, path=path)
    others = [name for name in names if name not in (src, dst, *found.values())] if has_header else []
    weight, time = found.get("weight", find_weight(others)), found.get("time", find_time(others))
    taken = [name for name in (src, dst, weight, time) if name is not None]
    if len({*taken}) < len(taken):
        raise TableError(
            f"src, dst, weight and time are not columns of their own: {', '.join(taken)}",
            where=path,
            fix="Name another column for each.",
        )
    types = _types(src, dst, said.types, neo4j, has_header=has_header, path=path)
    columns = EdgeColumns(src, dst, types, weight, time, time_is_said=said.time is not None)
    if neo4j is None:
        return columns
    renamed = {name: called for name, called in neo4j.names.items() if name not in taken}
    return replace(columns, kind=neo4j.kind, renamed=renamed, ignored=neo4j.ignored)


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
            f"which two columns are the ends of an edge is not evident from their names: "
            f"{listed(names, at_most=_MOST_NAMES)}",
            where=path,
            fix="Give --ends SRC,DST (in Python src and dst), or --option header=false where there is no header.",
        )
    return evident


def _types(
    src: str, dst: str, said: tuple[str, ...], neo4j: Neo4jHeader | None, *, has_header: bool, path: str
) -> Pair:
    if len(said) > _PAIR or "" in said:
        raise ConfigError(f"types are {said}", where=path, fix="Give one name, or two: of sources and of targets.")
    types = (said[0], said[-1]) if said else _types_by_names(src, dst, neo4j) if has_header else ONE_TYPE
    if types is None:
        raise TableError(
            f"columns {src!r} and {dst!r} may hold nodes of one type or of two",
            where=path,
            fix="Give --types NAME for one type, --types SRC,DST for two (in Python types).",
        )
    return ONE_TYPE if types[0] == types[1] else (type_name(types[0], where=path), type_name(types[1], where=path))


def _types_by_names(src: str, dst: str, neo4j: Neo4jHeader | None) -> Pair | None:
    if neo4j is None or (src, dst) != neo4j.ends:
        return types_of(src, dst)
    # without groups Neo4j has one space of ids for all nodes
    return neo4j.groups if all(neo4j.groups) or not any(neo4j.groups) else None


def _check_separator(sep: str, path: str) -> None:
    if len(sep) != 1 or not sep.isascii() or sep in '"\r\n\0':
        raise ConfigError(
            f"{sep!r} is no separator", where=path, fix="Give one character, or tab, space, comma, semicolon or pipe."
        )


def refuse_repeated(names: Sequence[str], path: str) -> None:
    """Raise TableError where two columns have one name."""
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise TableError(f"two columns would be called {repeated[0]!r}", where=path, fix="Rename one in the file.")


def column_name(names: Sequence[str], column: Column, path: str) -> str:
    """Return the name of a column that is named, or numbered from 0. Raises TableError where there is none."""
    if isinstance(column, int) and 0 <= column < len(names):
        return names[column]
    if column in names:
        return str(column)
    raise TableError(
        f"has no column {column!r}; it has {', '.join(names)}",
        where=path,
        fix="Name columns as in the header, or by position from 0; check the separator.",
    )
