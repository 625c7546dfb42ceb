"""The errors that a sample of the tables shows, with the lines to write where names of columns show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from gnnflow.config.column_names import own_name
from gnnflow.config.environment import config_line
from gnnflow.config.messages import nearest
from gnnflow.datasets.edge_headers import find_ends, split_words
from gnnflow.graph.errors import TableError, listed
from gnnflow.ingest.classes import label_text, plain_values
from gnnflow.ingest.preview import preview_schemas
from gnnflow.ingest.preview_rows import row_errors
from gnnflow.ingest.targets import DrawnSplit, EdgeTargets
from gnnflow.stages.resolve import FEWEST_PARTITIONS
from gnnflow.storage.columns import combine
from gnnflow.storage.filesystem import absolute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.config import Config, GraphConfig
    from gnnflow.graph.encodings import States
    from gnnflow.graph.errors import GnnflowError
    from gnnflow.ingest.preview import Preview
    from gnnflow.ingest.preview_tables import SampledTable
    from gnnflow.ingest.tables import Tables

_SHOWN = 10
_ID = frozenset(("id", "uid", "key"))


def preview_of(config: Config, *, states: States) -> Preview:
    """Return a sample of the tables of a resolved run's config. states: of columns that a published model knows."""
    targets = EdgeTargets.of(config.task, config.graph, seed=config.seed)
    drawn = DrawnSplit.of(config.task, seed=config.seed)
    return preview_schemas(config.graph, targets=targets, drawn=drawn, states=states)


def errors_of_tables(preview: Preview, config: Config) -> list[GnnflowError]:
    """Return the errors of the tables' files, columns and sampled rows."""
    found = [with_hint(error, preview, config.graph) for error in (*preview.errors, *row_errors(preview, config.graph))]
    if (swapped := swapped_tables(preview, config.graph)) is not None:
        places = {chunk.uri for table in preview.tables for chunk in table.source.chunks}
        found = [swapped, *(error for error in found if error.where not in places)]
    misfit = [error for table in preview.tables if not table.is_nodes for error in _misspelt(table, config.graph)]
    if misfit:  # which leaves splits without edges
        found = [error for error in found if not error.problem.startswith("no edge is in split")]
    found += misfit
    nodes = [table for table in preview.tables if table.is_nodes]
    has_all = len(nodes) == len(config.graph.node_tables) and all(table.sample.is_whole for table in nodes)
    if preview.read is not None and has_all:
        try:
            check_partitions(preview.read, config.graph)
        except TableError as error:
            found.append(error)
    return found


def _misspelt(table: SampledTable, graph: GraphConfig) -> Iterator[TableError]:
    """Yield an error for values of a relation's `where` that no row has: for all of them, or near one in a row."""
    relation = list(graph.edge_tables)[table.number]
    own = graph.edge_table_of(relation)
    if own is None or not table.sample.is_whole:
        return
    for name, wanted in (own.where or {}).items():
        if name not in table.names:  # which the schema's error says
            continue
        counted = pc.value_counts(label_text(plain_values(combine(table.rows([name])[name]))).drop_null())
        held = sorted(counted.to_pylist(), key=lambda each: (-each["counts"], each["values"]))
        texts = [each["values"] for each in held]
        by_letters = {text.strip().lower(): text for text in texts}
        if not {*wanted} & {*texts} and not {each.strip().lower() for each in wanted} & {*by_letters}:
            yield TableError(
                f"no row has {' or '.join(map(repr, wanted))} in column {name!r}, so the relation has no edges",
                where=f"graph.edges.{relation}.where",
                fix=f"{nearest(wanted[0], texts)} It has {listed([*map(config_line, texts)], at_most=_SHOWN)}.".strip(),
            )
            continue
        for value in wanted:
            near = by_letters.get(value.strip().lower())
            if near is not None and value not in texts:
                yield TableError(
                    f"no row has {value!r} in column {name!r}, and some have {near!r}",
                    where=f"graph.edges.{relation}.where",
                    fix=f"Values are compared letter by letter. Write {config_line(near)}.",
                )


def check_partitions(tables: Tables, graph: GraphConfig) -> None:
    """Raise TableError if there are more partitions than nodes: each costs a task and a file in every round."""
    rows = sum(chunk.num_rows or 0 for table in tables.nodes for chunk in table.chunks)
    if graph.partitions is not None and graph.partitions > max(rows, FEWEST_PARTITIONS):
        raise TableError(
            f"graph.partitions is {graph.partitions}, the node table has {rows} rows",
            where=", ".join(filter(None, graph.node_tables.values())),
            fix="Lower graph.partitions, or leave it out: it then follows from the size of the tables.",
        )


def swapped_tables(preview: Preview, graph: GraphConfig) -> TableError | None:
    """Return the error of a graph without types whose two tables are each other's; None for another graph."""
    if graph.schema.is_typed or len(preview.tables) < len(("nodes", "edges")):
        return None
    nodes, edges = preview.tables
    ends = {graph.src_column, graph.dst_column}
    if not (ends <= {*nodes.names} and graph.id_column in edges.names):
        return None
    if graph.id_column in nodes.names or ends & {*edges.names}:
        return None
    return TableError(
        f"has the columns of edges ({', '.join(sorted(ends))}), and graph.edges the column of ids {graph.id_column!r}",
        where="graph.nodes",
        fix=f"The tables are swapped. Set graph.nodes: {config_line(edges.source.uri)} and graph.edges: "
        f"{config_line(nodes.source.uri)}.",
    )


def with_hint(error: GnnflowError, preview: Preview, graph: GraphConfig) -> GnnflowError:
    """Return an error about a missing table or column with the line to write, where names show one."""
    for relation in graph.edge_tables:
        own = graph.edge_table_of(relation)
        if own is not None and error.where == absolute(own.table) and "/" not in own.table:
            types = f"{nearest(own.table, [*graph.nodes])} Node types are {', '.join(graph.nodes)}."
            if not error.problem.startswith("no such table"):  # a file with a mistake in its columns
                break
            problem = f"{own.table!r} is {error.problem}, and no node type"
            return type(error)(problem, where=f"graph.edges.{relation}.table", fix=f"{types.strip()} {error.fix}")
    for table in preview.tables:
        if any(error.where == chunk.uri for chunk in table.source.chunks):
            line = _line(error.problem, table, graph)
            if line:
                return type(error)(error.problem, where=error.where, fix=f"{error.fix} By its name: `{line}`.")
    return error


def _line(problem: str, table: SampledTable, graph: GraphConfig) -> str:
    """Return the line of the config; "" where names do not show it."""
    names = table.parts[0].column_names
    pair = find_ends(names)
    if pair is not None:
        for end, name in zip(("src", "dst"), pair, strict=True):
            if f"(graph.{end})" in problem:
                return f"graph: {config_line({end: _for_one(end, name, table, graph)})}"
    ids = [name for name in names if {*split_words(name)[-1:]} & _ID]
    if "(graph.id)" in problem and len(ids) == 1:
        return f"graph: {config_line({'id': _for_one('id', ids[0], table, graph)})}"
    return ""


def _for_one(key: str, name: str, table: SampledTable, graph: GraphConfig) -> str | dict[str, str]:
    """Return the value of a key that names one table's column, and leaves other tables as they are."""
    if not graph.schema.is_typed:
        return name
    tables = [*graph.node_tables] if table.is_nodes else [*map(str, graph.edge_tables)]
    asked = getattr(graph, key)
    held = {each: own_name(asked, each, default=key) or key for each in tables}
    held[tables[table.number]] = name
    return {each: column for each, column in held.items() if column != key}
