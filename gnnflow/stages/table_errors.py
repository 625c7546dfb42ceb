"""The errors that a sample of the tables shows, with the lines to write where names of columns show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from gnnflow.config.messages import nearest
from gnnflow.datasets.edge_headers import find_ends, split_words
from gnnflow.graph.errors import TableError
from gnnflow.ingest.classes import label_text, plain_values
from gnnflow.ingest.preview import preview_schemas
from gnnflow.ingest.preview_rows import row_errors
from gnnflow.ingest.targets import DrawnSplit, EdgeTargets
from gnnflow.stages.resolve import FEWEST_PARTITIONS
from gnnflow.storage.columns import combine
from gnnflow.storage.filesystem import absolute

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gnnflow.config import Config, GraphConfig
    from gnnflow.graph.encodings import States
    from gnnflow.graph.errors import GnnflowError
    from gnnflow.ingest.preview import Preview, SampledTable
    from gnnflow.ingest.tables import Tables

_ID = frozenset(("id", "uid", "key"))


def preview_of(config: Config, *, states: States) -> Preview:
    """Return a sample of the tables of a resolved run's config. states: of columns that a published model knows."""
    targets = EdgeTargets.of(config.task, config.graph, seed=config.seed)
    drawn = DrawnSplit.of(config.task, seed=config.seed)
    return preview_schemas(config.graph, targets=targets, drawn=drawn, states=states)


def errors_of_tables(preview: Preview, config: Config) -> list[GnnflowError]:
    """Return the errors of the tables' files, columns and sampled rows."""
    found = [with_hint(error, preview, config.graph) for error in (*preview.errors, *row_errors(preview, config.graph))]
    if (swapped := _swapped(preview, config.graph)) is not None:
        places = {chunk.uri for table in preview.tables for chunk in table.source.chunks}
        found = [swapped, *(error for error in found if error.where not in places)]
    found += [error for table in preview.tables if not table.is_nodes for error in _misspelt(table, config.graph)]
    nodes = [table for table in preview.tables if table.is_nodes]
    has_all = len(nodes) == len(config.graph.node_tables) and all(table.sample.is_whole for table in nodes)
    if preview.read is not None and has_all:
        try:
            check_partitions(preview.read, config.graph)
        except TableError as error:
            found.append(error)
    return found


def _misspelt(table: SampledTable, graph: GraphConfig) -> Iterator[TableError]:
    """Yield an error for each value of a relation's `where` that only differs in letters from one in a row."""
    relation = list(graph.edge_tables)[table.number]
    own = graph.edge_table_of(relation)
    if own is None or not table.sample.is_whole:
        return
    for name, wanted in (own.where or {}).items():
        if name not in table.names:  # which the schema's error says
            continue
        texts = pc.unique(label_text(plain_values(combine(table.rows([name])[name])))).drop_null().to_pylist()
        by_letters = {text.strip().lower(): text for text in texts}
        for value in wanted:
            near = by_letters.get(value.strip().lower())
            if near is not None and value not in texts:
                yield TableError(
                    f"no row has {value!r} in column {name!r}, and some have {near!r}",
                    where=f"graph.edges.{relation}.where",
                    fix=f"Values are compared letter by letter. Write {near!r}.",
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


def are_swapped(preview: Preview, graph: GraphConfig) -> bool:
    """Return whether a graph without types has the two tables in each other's place."""
    return _swapped(preview, graph) is not None


def _swapped(preview: Preview, graph: GraphConfig) -> TableError | None:
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
        fix=f"The tables are swapped. Set graph.nodes: {edges.source.uri} and graph.edges: {nodes.source.uri}.",
    )


def with_hint(error: GnnflowError, preview: Preview, graph: GraphConfig) -> GnnflowError:
    """Return an error about a missing table or column with the line to write, where names show one."""
    for relation in graph.edge_tables:
        own = graph.edge_table_of(relation)
        if own is not None and error.where == absolute(own.table) and "/" not in own.table:
            types = f"{nearest(own.table, [*graph.nodes])} Node types are {', '.join(graph.nodes)}."
            problem = f"{own.table!r} is {error.problem}, and no node type"
            return type(error)(problem, where=f"graph.edges.{relation}.table", fix=f"{types.strip()} {error.fix}")
    for table in preview.tables:
        if any(error.where == chunk.uri for chunk in table.source.chunks):
            line = _line(error.problem, table.parts[0].column_names)
            if line:
                return type(error)(error.problem, where=error.where, fix=f"{error.fix} By its name: `{line}`.")
    return error


def _line(problem: str, names: Sequence[str]) -> str:
    """Return the line of the config; "" where names do not show it."""
    pair = find_ends(names)
    if pair is not None:
        for end, name in zip(("src", "dst"), pair, strict=True):
            if f"(graph.{end})" in problem:
                return f"graph: {{{end}: {name}}}"
    ids = [name for name in names if {*split_words(name)[-1:]} & _ID]
    if "(graph.id)" in problem and len(ids) == 1:
        return f"graph: {{id: {ids[0]}}}"
    return ""
