"""A graph's tables as a sample of their rows shows them, and everything in them that would stop ingest.

The readers and rules are ingest's. `preview_tables.py` samples each table and reads its schema; `preview_rows.py` looks
at the rows, `preview_targets.py` counts those that are targets.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.graph.errors import GnnflowError
from gnnflow.ingest.classes import find_classes
from gnnflow.ingest.edge_rounds import are_edges
from gnnflow.ingest.encodings import fit_columns, is_sampled, sections_of
from gnnflow.ingest.preview_tables import (
    Errors,
    SampledTable,
    is_of_blank_column,
    sample_tables,
    with_edge_schema,
    with_node_schema,
)
from gnnflow.ingest.schema import EdgeSchema, NodeSchema, implied_node_schema
from gnnflow.ingest.splits import find_splits
from gnnflow.ingest.tables import (
    SourceTables,
    Tables,
    assembled,
    check_column_sections,
    refuse_other_times,
    settled_tables,
    unknown_columns,
    unknown_patterns,
)
from gnnflow.ingest.text import edge_source, node_source
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from gnnflow.config import GraphConfig
    from gnnflow.graph.arrays import IntArray
    from gnnflow.graph.encodings import States
    from gnnflow.ingest.targets import DrawnSplit, EdgeTargets


@dataclass(frozen=True)
class Preview:
    """The sampled tables, nodes first, and the errors of all tables.

    tables: those that can be read. read: as ingest knows them, without rows of tables and columns that cannot be read;
    None where later rows may show the type of a column. is_complete: False where ingest would stop.
    """

    tables: tuple[SampledTable, ...]
    errors: tuple[GnnflowError, ...]
    read: Tables | None = None
    is_complete: bool = True

    @property
    def labelled(self) -> SampledTable | None:
        """The sample of the table whose rows are targets; None where its labels, splits or times cannot be read."""
        if self.read is None:
            return None
        targets = self.read.targets
        held = self.read.nodes if targets is None else self.read.edges
        place = next(number for number, table in enumerate(held) if table is self.read.labelled)
        of = (each for each in self.tables if each.is_nodes == (targets is None) and each.number == place)
        found = next(of, None)
        return None if found is None or found.schema is None or not found.has_targets else found

    def edges_among(self, part: pa.Table, table: SampledTable) -> IntArray | None:
        """Return the rows of a chunk that are nodes or edges; None where it is not known which are."""
        if table.is_plain:
            return np.arange(part.num_rows)
        if self.read is None or table.schema is None:
            return None
        source = self.read.edges[table.number]
        if not {source.config.src_column, source.config.dst_column} <= {*part.column_names}:
            return None
        return np.arange(part.num_rows) if source.chosen is None else np.flatnonzero(are_edges(part, source=source))

    def count_rows(self, table: SampledTable) -> int:
        """Return the number of rows of a sample that are nodes, or edges of the table's relation."""
        chosen = (self.edges_among(part, table) for part in table.parts)
        return sum(len(rows) for rows in chosen if rows is not None)


def preview_schemas(
    config: GraphConfig, *, targets: EdgeTargets | None, drawn: DrawnSplit | None, states: States
) -> Preview:
    """Return the tables that a config names, sampled, with the errors of their files, columns and types.

    states: of the columns that a published model knows.
    """
    errors, given = Errors(), config.model_copy(update={"partitions": config.partitions or 1})
    config = sections_of(states, config)
    tables = sample_tables(config, errors, targets=targets, drawn=drawn)
    read, is_open = _with_schemas(tables, config, errors, targets=targets, drawn=drawn)
    agreed = None if is_open else _agreed(read, config, errors, targets=targets, drawn=drawn)
    found = None if agreed is None else errors.attempt(lambda: _fitted(agreed, given, states))
    is_complete = found is not None and not errors.found
    if found is None and not is_open:
        of_labels = Errors()
        partly = _partly(read, config, of_labels, targets=targets)
        for error in of_labels.found.values():
            errors.add(error)
        if of_labels.found:
            labelled = (True, config.target_type) if targets is None else (False, targets.table)
            read = [
                replace(each, has_targets=each.has_targets and (each.is_nodes, each.number) != labelled)
                for each in read
            ]
        found = Errors().attempt(lambda: _fitted(partly, given, states, is_complete=False)) or partly
    if found is not None:
        nodes, edges = [each.schema for each in found.nodes], [each.schema for each in found.edges]
        known: list[NodeSchema | EdgeSchema | None] = [
            nodes[each.number] if each.is_nodes else edges[each.number] for each in read
        ]
        read = [
            replace(table, schema=None if table.schema is None else schema)
            for table, schema in zip(read, known, strict=True)
        ]
    return Preview(tuple(read), tuple(errors.found.values()), found, is_complete)


def _with_schemas(
    tables: Sequence[SampledTable],
    config: GraphConfig,
    errors: Errors,
    *,
    targets: EdgeTargets | None,
    drawn: DrawnSplit | None,
) -> tuple[list[SampledTable], bool]:
    """Return the tables with their schemas, and whether later rows may show the type of a column."""
    nodes: dict[int, NodeSchema] = {}
    read: list[SampledTable] = []
    is_open = False
    for table in tables:
        own = Errors()
        if not table.is_nodes:
            table = with_edge_schema(table, config, nodes, own, targets=targets)  # noqa: PLW2901
        elif table.source.uri:
            table = with_node_schema(table, config, own, targets=targets, drawn=drawn)  # noqa: PLW2901
        else:
            implied = own.attempt(partial(_implied_schema, tables, config, node_type=table.number))
            table = replace(table, schema=implied)  # noqa: PLW2901
        schema = table.schema
        if isinstance(schema, NodeSchema) and not table.unread:
            nodes[table.number] = schema
        blank = [error for error in own.found.values() if is_of_blank_column(error, table)]
        is_open = is_open or bool(blank)
        broken = [] if schema is None else [e for name, e in table.broken.items() if name in table.source.columns]
        for error in (*own.found.values(), *broken):
            if error not in blank:
                errors.add(error)
        read.append(table)
    return read, is_open


def _implied_schema(tables: Sequence[SampledTable], config: GraphConfig, *, node_type: int) -> NodeSchema | None:
    """Return the schema of a type without a table; None where an edge table, or its column of ids, cannot be read."""
    edges = [each.source for each in tables if not each.is_nodes]
    if len(edges) < len(config.edge_tables):
        return None
    if any(name not in each.schema().names for each in edges for name, of in each.ids.items() if of == node_type):
        return None
    return implied_node_schema(edges, config, node_type=node_type)


def _fitted(tables: Tables, config: GraphConfig, states: States, *, is_complete: bool = True) -> Tables:
    """Return the tables with their splits, and columns encoded as the sample or a published model shows them."""
    if is_complete:
        check_column_sections(tables, config)
    with _rounds() as runner:
        return find_splits(fit_columns(tables, config, runner, given=states), config, runner)


@contextmanager
def _rounds() -> Iterator[RoundRunner]:
    """Yield a runner of rounds in this process, whose files are removed afterwards."""
    with TemporaryDirectory() as work:
        yield RoundRunner(work, Synchronous())


def _agreed(
    tables: Sequence[SampledTable],
    config: GraphConfig,
    errors: Errors,
    *,
    targets: EdgeTargets | None,
    drawn: DrawnSplit | None,
) -> Tables | None:
    """Return the tables as ingest knows them; keep the errors that it finds by comparing them."""
    nodes = [each for each in tables if each.is_nodes]
    edges = [each for each in tables if not each.is_nodes]
    schemas = [each.schema for each in nodes if isinstance(each.schema, NodeSchema)]
    edge_schemas = [each.schema for each in edges if isinstance(each.schema, EdgeSchema)]
    has_nodes, has_edges = len(nodes) == len(config.node_tables), len(edges) == len(config.edge_tables)
    knows_nodes, knows_edges = has_nodes and len(schemas) == len(nodes), has_edges and len(edge_schemas) == len(edges)
    told = [*errors.found]
    if knows_nodes and knows_edges and not told:
        sources = SourceTables([each.source for each in nodes], [each.source for each in edges])
        with _rounds() as runner:
            read = errors.attempt(partial(settled_tables, sources, config, runner, targets=targets, drawn=drawn))
        if read is not None:
            return read
    held = [[[*each.names, *each.broken] for each in of] for of in (nodes, edges)]
    for error in unknown_columns(config, held[0] if has_nodes else None, held[1] if has_edges else None):
        if not any(error.where in text for text in told):
            errors.add(error)
    every = [[name for names in of for name in names] for of in held]
    for error in unknown_patterns(config, every[0] if has_nodes else None, every[1] if has_edges else None):
        errors.add(error)
    if knows_edges and targets is not None and all(each.has_targets for each in edges):
        known = [each.source for each in edges]
        errors.attempt(lambda: refuse_other_times(known, edge_schemas, target=targets.table))
    return None


def _able_to_fit(table: SampledTable) -> NodeSchema | EdgeSchema | None:
    """Return the schema without columns that are encoded by rows whose ids, which are not there, choose or order."""
    schema = table.schema
    if schema is None or {*table.source.ids} <= {*table.names}:
        return schema
    is_chosen = bool(table.source.foreign)
    return schema.with_parts(tuple(part for part in schema.parts if not (is_chosen or is_sampled(part))))


def _partly(
    tables: Sequence[SampledTable], config: GraphConfig, errors: Errors, *, targets: EdgeTargets | None
) -> Tables:
    """Return the tables as far as they can be read: one that cannot has no rows, and its columns are not known.

    errors: keeps the error of labels that are no classes.
    """
    of = {(each.is_nodes, each.number): each for each in tables if each.schema is not None}
    sources = SourceTables(
        [node_source((), config, node_type=number) for number in range(len(config.node_tables))],
        [edge_source((), config, number=number) for number in range(len(config.edge_tables))],
    )
    nodes = [NodeSchema(is_target=number in config.target_types) for number in range(len(sources.nodes))]
    target = None if targets is None else targets.table
    edges = [EdgeSchema(targets=targets, is_target=number == target) for number in range(len(sources.edges))]
    for (is_nodes, number), table in of.items():
        schema = _able_to_fit(table)
        if isinstance(schema, NodeSchema):
            nodes[number] = schema
        elif isinstance(schema, EdgeSchema):
            edges[number] = schema
        (sources.nodes if is_nodes else sources.edges)[number] = table.source
    labelled = of.get((True, config.target_type) if targets is None else (False, targets.table))
    classes = None
    if labelled is not None and labelled.schema is not None and labelled.schema.has_labels:
        own = config.of_targets(edges=targets is not None)
        with _rounds() as runner:
            classes = errors.attempt(partial(find_classes, labelled.source, own, runner))
        if classes is not None:
            update: dict[str, Any] = {"labels_are_names": bool(classes.names)}
            update |= {} if classes.are_numbers else {"class_names": classes.names}
        elif errors.found:
            update = {"label_kind": "none"}
        else:
            update = {"label_kind": "regression"} if config.classes == "whole" else {}
        if targets is None:
            nodes[labelled.number] = replace(nodes[labelled.number], **update)
        else:
            edges[labelled.number] = replace(edges[labelled.number], **update)
    return assembled(*sources, nodes, edges, config, classes=classes)
