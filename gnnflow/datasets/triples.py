"""Triples `head relation tail`, as knowledge graphs are published: a file, or a folder of train, valid and test."""

from __future__ import annotations

import pyarrow as pa

from gnnflow.datasets.edge_building import graph_of, relation_names
from gnnflow.datasets.edge_headers import find_ends, find_relation
from gnnflow.datasets.edge_roles import EdgeColumns, column_name
from gnnflow.datasets.options import Options, Tell
from gnnflow.datasets.tables import GraphTables, TypedGraphTables
from gnnflow.datasets.text_files import TextChoices, open_text
from gnnflow.graph.errors import TableError, listed
from gnnflow.graph.splits import SPLITS
from gnnflow.storage.filesystem import is_folder, join, list_names, require_file
from gnnflow.storage.text_types import TextType, convert, facts_of
from gnnflow.storage.user_tables import csv_chunks, read_typed, settled

_PARTS = 3
_ENDS = ("src", "dst")
_SUFFIXES = (".txt", ".tsv", ".csv", ".txt.gz", ".tsv.gz", ".csv.gz")
_ALSO = {"dev": "valid", "val": "valid"}


def load_triples(path: str, options: Options, tell: Tell) -> GraphTables | TypedGraphTables:
    """Return a table of nodes, and a table of edges for each relation; of a folder, with the column `split`.

    Lines hold head, relation and tail in this order, or columns so called in a header. Options: relation (the column,
    by name or position) and `encoding`. Raises TableError for lines of another number of parts.
    """
    chosen = options.column("relation", "") if options.has("relation") else None
    said = TextChoices(encoding=options.take("encoding", "") or None)
    options.finish()
    files = {"": path}
    if is_folder(path):
        found = {split: join(path, name) for name in list_names(path) if (split := _split_of(name))}
        files = {split: found[split] for split in SPLITS if split in found}
    if not files:
        raise TableError("holds no train, valid or test", where=path, fix=f"Name the file, or write {SPLITS[0]}.txt.")
    parts = []
    for split, file in files.items():
        table = _read(file, said, chosen)
        parts.append(table.append_column("split", pa.repeat(split, table.num_rows)) if split else table)
    edges = pa.concat_tables(parts).combine_chunks()
    columns = EdgeColumns("src", "dst", ("", ""), None, None, kind="type", kind_is_chosen=True)
    if not edges.num_rows:
        raise TableError("has no edges", where=path, fix="Check the file.")
    # the ends have one type, so their ids are integers only together
    kind = TextType("integer id" if all(facts_of(edges[end]).exact for end in _ENDS) else "text id")
    for number, end in enumerate(_ENDS):
        edges = edges.set_column(number, end, convert(edges[end], kind))
    tables = graph_of(edges, columns, {}, path)
    changed = [f"{value} as {name}" for value, name in relation_names(edges["type"], path).items() if value != name]
    relations = list(tables.edges) if isinstance(tables, TypedGraphTables) else ["one"]
    tell(
        f"{path}: {edges.num_rows} triples; relations {listed(relations)}"
        + (f"; named otherwise: {listed(changed)}" if changed else "")
        + (f"; splits from {listed(list(files.values()))}" if "" not in files else "")
    )
    return tables


def _split_of(name: str) -> str:
    """Return the split that a file of a folder holds; "" for another file."""
    stem = next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.lower().endswith(suffix)), "")
    stem = _ALSO.get(stem, stem)
    return stem if stem in SPLITS else ""


def _read(path: str, said: TextChoices, chosen: str | int | None) -> pa.Table:
    """Return the columns src, type and dst of a file, as text."""
    require_file(path)
    opened = open_text(path, said)
    names = opened.names
    ends = find_ends(names)
    if ends is None or not opened.has_header:
        opened = open_text(path, TextChoices(header=False, encoding=said.encoding))
        names = opened.names
        if len(names) != _PARTS:
            raise TableError(
                f"lines have {len(names)} parts, not head, relation and tail",
                where=path,
                fix="Give it as csv:PATH, with --ends and --option relation=COLUMN.",
            )
        kind = column_name(names, 1 if chosen is None else chosen, path)
        src, dst = (name for name in names if name != kind)
    else:
        src, dst = ends
        others = [name for name in names if name not in ends]
        kind = column_name(names, chosen, path) if chosen is not None else (find_relation(others) or "")
        kind = kind or (others[0] if len(others) == 1 else "")
        if not kind:
            raise TableError(
                f"the names of the columns do not show the relation: {listed(names)}",
                where=path,
                fix="Give --option relation=COLUMN.",
            )
    chunks = settled(list(csv_chunks(opened)), ids=(src, kind, dst), text_ids=True)
    table = read_typed(chunks, columns=[src, dst, kind])
    return table.select([src, dst, kind]).rename_columns([*_ENDS, "type"])
