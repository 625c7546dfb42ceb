"""A folder of CSV files with headers of `neo4j-admin import`: nodes (`:ID`, `:LABEL`) and relationships (`:START_ID`).

A node's type is its first label, else the group of its id; a relation is a `:TYPE` between two types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.datasets.edge_building import relation_names, split_by
from gnnflow.datasets.edge_headers import neo4j_header, neo4j_nodes, neo4j_types
from gnnflow.datasets.options import Options, Tell
from gnnflow.datasets.tables import GraphTables, TypedGraphTables
from gnnflow.datasets.text_files import TextChoices, open_text
from gnnflow.graph.errors import TableError, listed
from gnnflow.storage.columns import combine, refuse_repeated
from gnnflow.storage.csv_blocks import CsvFile
from gnnflow.storage.filesystem import is_folder, join, list_names
from gnnflow.storage.text_types import TextType, convert, facts_of
from gnnflow.storage.user_tables import csv_chunks, read_typed, settled

_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_HEADER = ("-header", "_header", ".header")
_LIST_END = "[]"
_LISTS = {"int": pa.int64(), "long": pa.int64(), "short": pa.int64(), "byte": pa.int64()}
_LISTS |= {"float": pa.float64(), "double": pa.float64()}
_NO_TYPE = "node"  # of nodes without a label or a group


@dataclass(frozen=True)
class _NodeFile:
    """Nodes of one file: `id` as text, `kind`, and properties. group: of their ids."""

    table: pa.Table
    group: str


@dataclass(frozen=True)
class _EdgeFile:
    """Relationships of one file: `src` and `dst` as text, `kind`, and properties. groups: of both ends' ids."""

    table: pa.Table
    groups: tuple[str, str]
    place: str


def load_neo4j(path: str, options: Options, tell: Tell) -> GraphTables | TypedGraphTables:
    """Return the tables of a folder of CSV files for `neo4j-admin import`.

    Option `sep`: the separator, where it is not found. Headers may be files with names such as `people-header.csv`.
    Raises TableError for a folder without relationships, and for an end that is not a node.
    """
    said = TextChoices(sep=options.take("sep", "") or None, header=True)
    options.finish()
    nodes: list[_NodeFile] = []
    edges: list[_EdgeFile] = []
    for file, place in _files(path, said):
        if (header := neo4j_nodes(file.names)) is not None:
            table = _read(file, (header.ids,), (*header.ignored,))
            kinds = _first_labels(table, header.label, header.group)
            table = _renamed(table, {header.ids: "id"} | header.names, header.label, place)
            nodes.append(_NodeFile(table.append_column("kind", kinds), header.group))
        elif (ends := neo4j_header(file.names)) is not None:
            table = _read(file, ends.ends, ends.ignored)
            stem = place.rpartition("/")[2].partition(".")[0]
            kinds = table[ends.kind] if ends.kind else pa.repeat(stem, table.num_rows)
            table = _renamed(table, dict(zip(ends.ends, ("src", "dst"), strict=True)) | ends.names, ends.kind, place)
            edges.append(_EdgeFile(table.append_column("kind", kinds.cast(pa.string())), ends.groups, place))
        else:
            tell(f"{place}: left out, its header has no :ID and no :START_ID")
    if not edges:
        raise TableError(
            "has no file with :START_ID and :END_ID in its header", where=path, fix="Name the folder of the export."
        )
    tables = _tables(path, nodes, edges)
    held = tables if isinstance(tables, TypedGraphTables) else None
    tell(
        f"{path}: headers of Neo4j; types {listed(list(held.nodes)) if held else 'one'}; "
        f"relations {listed(list(held.edges)) if held else 'one'}"
    )
    return tables


def _files(path: str, said: TextChoices) -> list[tuple[CsvFile, str]]:
    """Return the opened files, each with its header."""
    names = [name for name in list_names(path) if name.lower().endswith(_SUFFIXES)] if is_folder(path) else [""]
    headers = {stem: name for name in names for end in _HEADER if (stem := _stem(name)).endswith(end)}
    found = []
    for name in names:
        if name in headers.values():
            continue
        place = join(path, name) if name else path
        apart = next((held for stem, held in headers.items() if _stem(name).startswith(_without_end(stem))), None)
        opened = open_text(place, said if apart is None else replace(said, header=False))
        if apart is not None:
            names_apart = open_text(join(path, apart), said).names
            if len(names_apart) != len(opened.names):
                raise TableError(
                    f"has {len(opened.names)} columns, {apart} has {len(names_apart)}", where=place, fix="Check both."
                )
            opened = replace(opened, names=names_apart)
        found.append((opened, place))
    return found


def _stem(name: str) -> str:
    return name.removesuffix(".gz").rpartition(".")[0]


def _without_end(stem: str) -> str:
    return next((stem.removesuffix(end) for end in _HEADER if stem.endswith(end)), stem)


def _read(file: CsvFile, ids: Sequence[str], ignored: Sequence[str]) -> pa.Table:
    """Return a file's rows: ids as text, properties with the types that the header gives or that all values share."""
    said = neo4j_types(file.names)
    is_text = [name for name, kind in said.items() if kind in ("string", "char") or kind.endswith(_LIST_END)]
    chunks = settled(list(csv_chunks(file)), ids=ids, text_ids=True)
    chunks = [replace(chunk, types={**chunk.types, **dict.fromkeys(is_text, TextType("text"))}) for chunk in chunks]
    table = read_typed(chunks, columns=[name for name in file.names if name not in ignored])
    for number, name in enumerate(table.column_names):
        if said.get(name, "").endswith(_LIST_END):
            lists = pc.split_pattern(combine(table[name]), ";")
            kind = _LISTS.get(said[name].removesuffix(_LIST_END))
            table = table.set_column(number, name, lists if kind is None else lists.cast(pa.list_(kind)))
    return table


def _first_labels(table: pa.Table, label: str | None, group: str) -> pa.Array:
    """Return the type of each node: its first label, else the group of its id."""
    other = group or _NO_TYPE
    if label is None:
        return pa.repeat(other, table.num_rows)
    first = pc.list_element(pc.split_pattern(combine(table[label]).cast(pa.string()), ";"), 0)
    return pc.fill_null(first, other).cast(pa.string())


def _renamed(table: pa.Table, names: dict[str, str], left_out: str | None, place: str) -> pa.Table:
    """Return a table with other names, without the column that became its types."""
    table = table.drop_columns([left_out]) if left_out else table
    found = [names.get(name, name) for name in table.column_names]
    refuse_repeated([*found, "kind"], place)
    return table.rename_columns(found)


def _tables(path: str, nodes: Sequence[_NodeFile], edges: Sequence[_EdgeFile]) -> GraphTables | TypedGraphTables:
    groups = {file.group for file in nodes} | {group for file in edges for group in file.groups}
    if "" in groups and len(groups) > 1:  # ids without a group belong to the only one
        named = sorted(groups - {""})
        if len(named) > 1:
            raise TableError(
                f"some ids have no group and others are of {listed(named)}",
                where=path,
                fix="Write the group into every :ID, :START_ID and :END_ID.",
            )
        groups = {named[0]}
        edges = [replace(file, groups=(named[0], named[0])) for file in edges]
        nodes = [replace(file, group=named[0]) for file in nodes]
    by_group = {group: _nodes_of(group, nodes, edges) for group in sorted(groups)}
    kinds = relation_names(pa.chunked_array([table["kind"].combine_chunks() for table in by_group.values()]), path)
    parts: dict[str, list[pa.Table]] = {}
    for file in edges:
        for name, part in _relations_of(file, by_group, kinds).items():
            parts.setdefault(name, []).append(part)
    held: dict[str, list[pa.Table]] = {}
    for table in by_group.values():
        for name, part in split_by(table, "kind", {name: value for value, name in kinds.items()}).items():
            if part.num_rows:
                held.setdefault(name, []).append(_without_nothing(part))
    joined = {name: pa.concat_tables(each, promote_options="permissive") for name, each in held.items()}
    relations = {name: pa.concat_tables(each, promote_options="permissive") for name, each in parts.items()}
    if len(joined) == len(relations) == 1:
        return GraphTables(next(iter(joined.values())), next(iter(relations.values())))
    return TypedGraphTables(joined, relations)


def _nodes_of(group: str, nodes: Sequence[_NodeFile], edges: Sequence[_EdgeFile]) -> pa.Table:
    """Return a group's nodes; without a file of them, the ends of its relationships."""
    tables = [file.table for file in nodes if file.group == group]
    if tables:
        table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    else:
        ends = [
            combine(file.table[end])
            for file in edges
            for end, each in zip(("src", "dst"), file.groups, strict=True)
            if each == group
        ]
        ids = pc.unique(pa.chunked_array(ends))
        ids = ids.take(pc.sort_indices(ids))
        table = pa.table({"id": ids, "kind": pa.repeat(group or _NO_TYPE, len(ids))})
    kind = TextType("integer id" if facts_of(table["id"]).exact else "text id")
    return table.set_column(table.column_names.index("id"), "id", convert(table["id"], kind))


def _relations_of(file: _EdgeFile, by_group: dict[str, pa.Table], kinds: dict[str, str]) -> dict[str, pa.Table]:
    """Return a file's relationships by relation, with ids as their nodes have them."""
    table, named = file.table, relation_names(file.table["kind"], file.place)
    ends = []
    for end, group in zip(("src", "dst"), file.groups, strict=True):
        nodes = by_group[group]
        as_text = nodes["id"].cast(pa.large_string())
        row = pc.index_in(combine(table[end]).cast(pa.large_string()), as_text.combine_chunks())
        if row.null_count:
            first = pc.index(pc.is_null(row), value=True).as_py()
            raise TableError(
                f"row {first}: {table[end][first].as_py()!r} is not the id of a node",
                where=file.place,
                fix="Export the nodes too, or take the row out.",
            )
        table = table.set_column(table.column_names.index(end), end, nodes["id"].take(row))
        ends.append(_changed(nodes["kind"].take(row), kinds))
    relation = _changed(table["kind"], named)
    name = pc.binary_join_element_wise(combine(ends[0]), combine(relation), combine(ends[1]), "__")
    table = table.drop_columns(["kind"]).append_column("kind", name)
    table = table.select(["src", "dst", *(each for each in table.column_names if each not in ("src", "dst"))])
    return split_by(table, "kind", {each: each for each in pc.unique(combine(name)).to_pylist()})


def _changed(column: pa.ChunkedArray, names: dict[str, str]) -> pa.Array:
    """Return a column's values by their new names."""
    values = combine(column).dictionary_encode()
    return pa.array([names[value] for value in values.dictionary.to_pylist()], pa.string()).take(values.indices)


def _without_nothing(table: pa.Table) -> pa.Table:
    """Return a type's nodes without the columns that only other types of their group have."""
    kept = [name for name in table.column_names if table[name].null_count < table.num_rows or name == "id"]
    return table.select(kept)
