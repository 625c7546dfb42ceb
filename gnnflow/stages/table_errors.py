"""The errors that a sample of the tables shows, with the lines to write where names or values show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from gnnflow.config.environment import config_line
from gnnflow.config.messages import nearest
from gnnflow.graph.errors import TableError, listed
from gnnflow.ingest.classes import label_text
from gnnflow.ingest.preview import preview_schemas
from gnnflow.ingest.preview_rows import row_errors
from gnnflow.ingest.targets import DrawnSplit, EdgeTargets
from gnnflow.stages.meant_tables import with_hint
from gnnflow.stages.resolve import FEWEST_PARTITIONS
from gnnflow.storage.columns import combine, plain_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.config import Config, GraphConfig
    from gnnflow.graph.encodings import States
    from gnnflow.graph.errors import GnnflowError
    from gnnflow.ingest.preview import Preview
    from gnnflow.ingest.preview_tables import SampledTable
    from gnnflow.ingest.tables import Tables

_SHOWN = 10


def preview_of(config: Config, *, states: States) -> Preview:
    """Return a sample of the tables of a resolved run's config. states: of columns that a published model knows."""
    targets = EdgeTargets.of(config.task, config.graph, seed=config.seed)
    drawn = DrawnSplit.of(config.task, seed=config.seed)
    return preview_schemas(config.graph, targets=targets, drawn=drawn, states=states)


def errors_of_tables(preview: Preview, config: Config) -> list[GnnflowError]:
    """Return the errors of the tables' files, columns and sampled rows."""
    found = [with_hint(error, preview, config.graph) for error in (*preview.errors, *row_errors(preview, config.graph))]
    for table in preview.tables:
        if not table.is_nodes and (misfit := [*_misspelt(table, config.graph)]):
            # which leave splits without edges
            empty = (e for e in found if e.where == table.source.uri and e.problem.startswith("no edge is in split"))
            left_out = [*empty]
            found = [*(error for error in found if error not in left_out), *misfit]
    nodes = [table for table in preview.tables if table.is_nodes]
    has_all = len(nodes) == len(config.graph.node_tables) and all(table.sample.is_whole for table in nodes)
    if preview.read is not None and has_all:
        try:
            check_partitions(preview.read, config.graph)
        except TableError as error:
            found.append(error)
    return found


def _misspelt(table: SampledTable, graph: GraphConfig) -> Iterator[TableError]:
    """Yield an error for values of a relation's `where` that no row has: for all of them, or each near one there is."""
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
        shown = listed([*map(config_line, texts)], at_most=_SHOWN)
        by_letters = {text.strip().lower(): text for text in texts}
        if not {*wanted} & {*texts} and not {each.strip().lower() for each in wanted} & {*by_letters}:
            yield TableError(
                f"no row has {' or '.join(map(repr, wanted))} in column {name!r}, so the relation has no edges",
                where=f"graph.edges.{relation}.where",
                fix=f"{nearest(wanted[0], texts)} It has {shown}.".strip(),
            )
            continue
        for value in (each for each in wanted if each not in texts):
            near = by_letters.get(value.strip().lower())
            if near is not None:
                found = f"no row has {value!r} in column {name!r}, and some have {near!r}"
                fix = f"Values are compared letter by letter. Write {config_line(near)}."
            elif meant := nearest(value, [text for text in texts if text not in wanted]):
                found = f"no row has {value!r} in column {name!r}"
                fix = f"{meant} It has {shown}. Or take the value out."
            else:  # some of the values may have no rows today
                continue
            yield TableError(found, where=f"graph.edges.{relation}.where", fix=fix)


def check_partitions(tables: Tables, graph: GraphConfig) -> None:
    """Raise TableError if there are more partitions than nodes: each costs a task and a file in every round."""
    rows = sum(chunk.num_rows or 0 for table in tables.nodes for chunk in table.chunks)
    if graph.partitions is not None and graph.partitions > max(rows, FEWEST_PARTITIONS):
        raise TableError(
            f"graph.partitions is {graph.partitions}, the node table has {rows} rows",
            where=", ".join(filter(None, graph.node_tables.values())),
            fix="Lower graph.partitions, or leave it out: it then follows from the size of the tables.",
        )
