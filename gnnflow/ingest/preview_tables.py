"""Samples of a graph's tables, each with its schema as ingest reads it.

Errors of files and columns are collected. An error of a table hides its other errors, so after one each column is read
alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from gnnflow.config.graph_section import edge_tables_by_name, node_tables_by_name
from gnnflow.graph.errors import GnnflowError
from gnnflow.ingest.fields import field_of, split_is_text, weight_is_number
from gnnflow.ingest.kinds import KindsAsked, part_of
from gnnflow.ingest.schema import (
    EdgeSchema,
    NodeSchema,
    check_end_type,
    check_split_of_edges,
    end_type,
    ends_of,
    features_fix,
    features_there,
    is_shared,
    label_of_edges,
    read_edge_schema,
    read_node_schema,
    role_of,
    time_of_edges,
)
from gnnflow.ingest.text import edge_source, filter_columns, node_source, with_agreed_types
from gnnflow.storage.filesystem import absolute
from gnnflow.storage.samples import NO_SAMPLE, Sample, chunks_beyond, sample_table
from gnnflow.storage.user_tables import holds_numbers, holds_text, read_chunk, read_typed, schema_of, survey_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.graph.facts import IdType
    from gnnflow.ingest.targets import DrawnSplit, EdgeTargets
    from gnnflow.ingest.text import SourceTable

Result = TypeVar("Result")


@dataclass(frozen=True)
class SampledTable:
    """A sample of one table, with the types of its text.

    name: as in facts, such as `nodes/user`. number: among the node tables, or the edge tables. is_plain: all of its
    rows are nodes or edges. parts: the rows of each chunk, without columns whose names are there twice, and without
    broken ones, which do not decode. schema: as ingest reads it, without columns that it cannot read; None where it is
    not known which rows it takes. unread: the columns of ids that cannot be read. has_targets: labels, splits and times
    can be.
    """

    name: str
    number: int
    is_nodes: bool
    is_plain: bool
    sample: Sample
    source: SourceTable
    parts: tuple[pa.Table, ...] = ()
    broken: Mapping[str, GnnflowError] = field(default_factory=dict)
    schema: NodeSchema | EdgeSchema | None = None
    unread: frozenset[str] = frozenset()
    has_targets: bool = True

    @property
    def names(self) -> list[str]:
        """The columns of the table."""
        return list(self.parts[0].column_names) if self.parts else []

    @property
    def about_rows(self) -> int:
        """The number of rows of the table, an estimate where it has many files or is text."""
        return self.sample.about_rows(sum(part.num_rows for part in self.parts))

    @property
    def filled(self) -> SampledTable:
        """The table with row numbers in the place of ids that cannot be read, so that its rows are."""
        parts = []
        for number, part in enumerate(self.parts):
            for column in self.unread if self.schema is not None else ():
                kept = part.drop_columns([column]) if column in part.column_names else part
                ids = pa.array([f"{column}:{number}:{row}" for row in range(part.num_rows)])
                part = kept.append_column(column, ids)  # noqa: PLW2901
            parts.append(part)
        return replace(self, parts=tuple(parts))

    def rows(self, columns: Sequence[str]) -> pa.Table:
        """Return columns of all rows of the sample, with one type for each."""
        return read_typed(self.source.chunks, columns=columns)


def own_section(config: GraphConfig, table: SampledTable) -> GraphConfig:
    """Return the section as one table is read by it."""
    if table.is_nodes:
        return config.of_type(config.schema.types[table.number])
    return config.of_relation(list(config.edge_tables)[table.number])


class Errors:
    """Collects errors, each once."""

    def __init__(self) -> None:
        self.found: dict[str, GnnflowError] = {}

    def add(self, error: GnnflowError) -> None:
        """Keep an error; two of one problem and place are one, whatever their fixes."""
        self.found.setdefault(f"{error.where}: {error.problem}", error)

    def attempt(self, work: Callable[[], Result]) -> Result | None:
        """Return the result of some work; keep its error and return None where it raises one."""
        try:
            return work()
        except GnnflowError as error:
            self.add(error)
            return None


def sample_tables(
    config: GraphConfig, errors: Errors, *, targets: EdgeTargets | None, drawn: DrawnSplit | None
) -> list[SampledTable]:
    """Return the tables that can be read, with their first rows and the types of their text."""
    return _settled(_sampled(config, errors, targets=targets, drawn=drawn), errors)


def _sampled(
    config: GraphConfig, errors: Errors, *, targets: EdgeTargets | None, drawn: DrawnSplit | None
) -> list[SampledTable]:
    """Return the first rows of each table that is there."""
    found: list[SampledTable] = []
    names = [*node_tables_by_name(config), *edge_tables_by_name(config)]
    for number, uri in enumerate(config.node_tables.values()):
        sample = errors.attempt(partial(_sample_of, uri, config))
        if sample is not None:
            of_split = () if drawn is None else drawn.columns
            source = node_source(sample.chunks, config, node_type=number, also=of_split)
            found.append(
                SampledTable(names[number], number, is_nodes=True, is_plain=True, sample=sample, source=source)
            )
    for number, uri in enumerate(config.edge_tables.values()):
        sample = errors.attempt(partial(_sample_of, uri, config))
        if sample is not None:
            also = () if targets is None else targets.columns(config, table=number)
            source = edge_source(sample.chunks, config, number=number, also=also)
            name = names[len(config.node_tables) + number]
            is_plain = config.edge_table_of(list(config.edge_tables)[number]) is None
            found.append(SampledTable(name, number, is_nodes=False, is_plain=is_plain, sample=sample, source=source))
    return found


def _sample_of(uri: str, config: GraphConfig) -> Sample:
    """Return the first rows of a table; none for a type without a table, which has the ids of its edges."""
    return sample_table(absolute(uri), form=config.format_at(uri)) if uri else NO_SAMPLE


def _settled(tables: Sequence[SampledTable], errors: Errors) -> list[SampledTable]:
    """Return the tables that can be read, with their rows and the types of their text."""
    surveys = [errors.attempt(partial(survey_all, table.source.chunks)) for table in tables]
    held = [(table, found) for table, found in zip(tables, surveys, strict=True) if found is not None]
    typed = with_agreed_types([table.source for table, _ in held], [found for _, found in held])
    settled = []
    for (table, _), source in zip(held, typed, strict=True):
        found = errors.attempt(partial(_rows, source))
        if found is not None:
            settled.append(replace(table, source=source, parts=found[0], broken=found[1]))
            errors.attempt(partial(_check_beyond, source, table.sample))
    return settled


def _check_beyond(source: SourceTable, sample: Sample) -> None:
    """Raise TableError where a file that the sample does not reach has other columns, or other types."""
    if others := chunks_beyond(sample):
        typed = [replace(each, types=source.chunks[0].types) for each in others]
        replace(source, chunks=(*source.chunks, *typed)).schema()


def _rows(source: SourceTable) -> tuple[tuple[pa.Table, ...], dict[str, GnnflowError]]:
    """Return the rows of each chunk, and the errors of columns that do not decode, which no part has."""
    names: dict[str, list[str]] = {}
    for chunk in source.chunks:
        if chunk.uri not in names:
            held = schema_of(chunk).names
            names[chunk.uri] = [name for name in held if held.count(name) == 1]
    try:
        return tuple(read_chunk(chunk, names[chunk.uri]) for chunk in source.chunks), {}
    except GnnflowError:
        errors = {name: error for name in names[source.chunks[0].uri] if (error := _error_of(source, name)) is not None}
        if not errors:
            raise
    kept = {uri: [name for name in held if name not in errors] for uri, held in names.items()}
    return tuple(read_chunk(chunk, kept[chunk.uri]) for chunk in source.chunks), errors


def _error_of(source: SourceTable, name: str) -> GnnflowError | None:
    """Return the error of a column that does not decode."""
    try:
        for chunk in source.chunks:
            read_chunk(chunk, [name])
    except GnnflowError as error:
        return error
    except KeyError:  # another file lacks the column, which the schema says
        return None
    return None


def with_node_schema(
    table: SampledTable,
    config: GraphConfig,
    errors: Errors,
    *,
    targets: EdgeTargets | None,
    drawn: DrawnSplit | None,
) -> SampledTable:
    """Return a node table with its schema, without the columns that cannot be read; keep the errors of all columns."""
    ids: IdType | None = None

    def read(graph: GraphConfig, kept: Errors = errors, split: DrawnSplit | None = drawn) -> NodeSchema | None:
        return kept.attempt(
            lambda: read_node_schema(
                table.source, graph, node_type=table.number, targets=targets, drawn=split, id_type=ids
            )
        )

    if (schema := read(config)) is not None:
        return replace(table, schema=schema)
    kind, none = config.schema.types[table.number], _without_features(table, config)
    bare = config.model_copy(update={**none, "label": None})
    if read(bare) is None:
        ids = "string"
        if read(bare, Errors()) is None:
            _check_columns_alone(table, config, errors)
            return replace(table, unread=frozenset(table.source.ids))
    good: list[str] = []
    for name in config.feature_names(kind, table.names):
        names = (*good[:1], name) if is_shared(config.features, config) else (name,)
        alone: dict[str, Any] = {"features": names if is_shared(config.features, config) else {kind: (name,)}}
        if not config.schema.is_typed:
            alone = {"features": (name,)}
        alone["normalize"] = config.normalize
        if (found := read(bare.model_copy(update=alone))) is not None and found.has_features:
            good.append(name)
    # labels can be read where splits cannot
    able = ((config, drawn), (config.model_copy(update={"split": ""}), None))
    of_labels, of_split = next(
        (each for each in able if read(each[0].model_copy(update=none), split=each[1]) is not None), (bare, None)
    )
    if table.number in config.target_types and targets is None and config.label is not None:
        split = own_section(config, table).split_column
        errors.attempt(lambda: split_is_text(table.source.schema(), table.source.chunks[0], split))
    kept = {"features": {kind: tuple(good)} if config.schema.is_typed else tuple(good)} if good else none
    schema = read(of_labels.model_copy(update=kept), Errors(), of_split)
    if schema is not None and not good:
        schema = schema.with_parts(())
    unread = frozenset() if ids is None else frozenset(table.source.ids)
    return replace(table, schema=schema, unread=unread, has_targets=of_labels is config)


def _without_features(table: SampledTable, config: GraphConfig) -> dict[str, Any]:
    """Return keys of a section without features; where a graph has no types, of one column, since it needs some."""
    if config.schema.is_typed or not table.parts:
        return {"features": {}}
    columns = zip(table.parts[0].column_names, table.parts[0].schema.types, strict=True)
    able = [name for name, kind in columns if holds_numbers(kind) or holds_text(kind)]
    return {"features": tuple(able[:1]), "normalize": "none"}


def _check_columns_alone(table: SampledTable, config: GraphConfig, errors: Errors) -> None:
    """Keep the errors of the features of a table without readable ids."""
    found = errors.attempt(table.source.schema)
    if found is None:
        return
    kind = config.schema.types[table.number]
    names = errors.attempt(partial(features_there, found, config, table.number)) or ()
    if any(f"{name}_index" in found.names for name in names):
        return
    asked, fix = KindsAsked.of(config, kind, "nodes"), features_fix(config, kind)
    for name in names:
        role = role_of("graph.features", config.features, kind)
        errors.attempt(partial(part_of, found, table.source.chunks, name, role, asked=asked, fix=fix))


def with_edge_schema(
    table: SampledTable,
    config: GraphConfig,
    nodes: Mapping[int, NodeSchema],
    errors: Errors,
    *,
    targets: EdgeTargets | None,
) -> SampledTable:
    """Return an edge table with its schema, without the columns that cannot be read; keep the errors of all columns."""
    own = own_section(config, table)
    has_nodes = {*table.source.ids.values()} <= {*nodes}
    listed = [nodes.get(number, NodeSchema()) for number in range(len(config.node_tables))]

    def read(graph: GraphConfig, kept: Errors, of: EdgeTargets | None, *, reads_ends: bool) -> EdgeSchema | None:
        return kept.attempt(
            lambda: read_edge_schema(
                table.source, graph, nodes=listed, number=table.number, targets=of, reads_ends=reads_ends
            )
        )

    if has_nodes and (schema := read(config, errors, targets, reads_ends=True)) is not None:
        return replace(table, schema=schema)
    found, chunks = errors.attempt(table.source.schema), table.source.chunks
    if found is None:
        return replace(table, unread=frozenset(table.source.ids))
    relation = list(config.edge_tables)[table.number]
    types = _end_types(table, found, own, nodes, errors)
    kept = _without_bad_columns(table, found, config, errors)
    if targets is not None:
        of = targets if targets.table == table.number else None
        errors.attempt(partial(check_split_of_edges, found, chunks, own, of))
        errors.attempt(partial(label_of_edges, found, chunks, own, of, None))
        if targets.have_times:
            errors.attempt(partial(time_of_edges, found, chunks, own, relation))
    unread = frozenset(table.source.ids.keys() - types)
    if not {*filter_columns(config, relation)} <= {*found.names}:
        return replace(table, unread=unread)
    schema = read(kept, errors, targets, reads_ends=False)
    has_targets = schema is not None
    if schema is None and (bare := read(kept, Errors(), None, reads_ends=False)) is not None:
        schema = replace(bare, targets=targets, is_target=targets is not None and targets.table == table.number)
    if schema is not None:
        src, dst = (types.get(name, "string") for name in (own.src_column, own.dst_column))
        schema = replace(schema, src_type=src, dst_type=dst)
    return replace(table, schema=schema, unread=unread, has_targets=has_targets)


def _end_types(
    table: SampledTable, found: pa.Schema, own: GraphConfig, nodes: Mapping[int, NodeSchema], errors: Errors
) -> dict[str, IdType]:
    """Return the types of the ends that can be read, by column; keep the errors of each end."""
    types: dict[str, IdType] = {}
    for end in ends_of(own, list(own.edge_tables)[table.number]):
        held = errors.attempt(partial(end_type, table.source, found, end.column, end.key, fix=end.fix))
        if held is None:
            continue
        types[end.column] = held
        of = nodes.get(table.source.ids[end.column])
        if of is not None:
            errors.attempt(partial(check_end_type, held, of, table.source, end.column, own))
    return types


def _without_bad_columns(table: SampledTable, found: pa.Schema, config: GraphConfig, errors: Errors) -> GraphConfig:
    """Return the section without the weights and attributes of a table that cannot be read; keep all errors."""
    own, chunks = own_section(config, table), table.source.chunks
    relation = list(config.edge_tables)[table.number]
    for name in filter_columns(config, relation):
        key = f"graph.edges.{relation}.where"
        errors.attempt(partial(field_of, found, chunks[0], name, key, fix=f"Name one of them in {key}."))
    has_weight = errors.attempt(lambda: weight_is_number(found, chunks, own.weight_column)) is not None
    asked, good = KindsAsked.of(config, relation, "edges"), []
    for name in config.edge_feature_names(relation, found.names):
        if name in found.names or not is_shared(config.edge_features, config):
            role = role_of("graph.edge_features", config.edge_features, str(relation))
            if errors.attempt(partial(part_of, found, chunks, name, role, asked=asked)) is not None:
                good.append(name)
    update: dict[str, Any] = {"edge_features": {str(relation): tuple(good)} if config.schema.is_typed else tuple(good)}
    return config.model_copy(update=update if has_weight else update | {"weight": ""})


def is_of_blank_column(error: GnnflowError, table: SampledTable) -> bool:
    """Return whether an error is about a column that only later rows may fill, in a table that goes on."""
    if table.sample.is_whole or not table.parts:
        return False
    names = {*table.parts[0].column_names}.intersection(*(part.column_names for part in table.parts))
    blank = (name for name in names if all(part[name].null_count == part.num_rows for part in table.parts))
    return any(f"column {name!r} is" in error.problem for name in blank)
