"""The faults of a sample's rows, as ingest finds them, and the classes and splits that are in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.errors import GnnflowError, TableError
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest.checks import Fault, input_positions, near_id, separate
from gnnflow.ingest.edge_rounds import are_edges, end_fault
from gnnflow.ingest.labels import is_labelled
from gnnflow.ingest.node_rounds import repeated_id_fault
from gnnflow.ingest.preview import own_section
from gnnflow.ingest.run import refuse_empty_splits
from gnnflow.ingest.schema import EdgeSchema, NodeSchema, node_table
from gnnflow.ingest.source import edge_column_names, edge_faults, node_column_names, node_faults, take_kept
from gnnflow.storage.columns import combine, take_rows, to_numpy
from gnnflow.storage.user_tables import holds_text, plain

if TYPE_CHECKING:
    from gnnflow.config import GraphConfig
    from gnnflow.graph.arrays import IntArray
    from gnnflow.graph.facts import IdType
    from gnnflow.ingest.preview import Preview, SampledTable
    from gnnflow.ingest.tables import Tables

Schema = TypeVar("Schema", NodeSchema, EdgeSchema)
# the first error of each column and reason
_Found = dict[tuple[str, str], GnnflowError]

_MOST_CLASSES = 50
_MOST_SHOWN = 3  # ids that are compared with the nodes'


@dataclass(frozen=True)
class Counted:
    """The labelled rows of a sample: by class, the most frequent first, and by split."""

    labelled: int = 0
    classes: Mapping[str, int] = field(default_factory=dict)
    splits: Mapping[str, int] = field(default_factory=dict)


def count_targets(preview: Preview, config: GraphConfig) -> Counted:
    """Return the labels and splits of the sample of the table whose rows are targets."""
    read = preview.read
    if read is None:
        return Counted()
    schema, table = read.labelled.schema, _labelled(preview, read)
    own = own_section(config, table)
    names = [own.label_column] if schema.has_labels else []
    names += [own.split_column] if schema.reads_split else []
    if not names or any({*names} - {*part.column_names} for part in table.parts):
        return Counted()
    try:
        rows = _without_views(table.rows(names))
        if schema.has_labels:
            rows = take_rows(rows, np.flatnonzero(is_labelled(rows, schema, own)))
    except (pa.ArrowException, GnnflowError):  # values that no row may have, which `row_errors` tells
        return Counted()
    found = _counts(rows[own.split_column]) if schema.reads_split else {}
    splits = {name: found.get(name, 0) for name in SPLITS} if schema.reads_split else {}
    if not schema.has_labels:
        return Counted(splits=splits)
    classes = _counts(rows[own.label_column]) if schema.label_kind == "single" else {}
    return Counted(rows.num_rows, classes, splits)


def _labelled(preview: Preview, read: Tables) -> SampledTable:
    """Return the sample of the table whose rows are targets."""
    is_nodes = read.targets is None
    tables = [each for each in preview.tables if each.is_nodes == is_nodes]
    return tables[(read.nodes if is_nodes else read.edges).index(read.labelled)]


def _without_views(table: pa.Table) -> pa.Table:
    """Return a table without views of text, which Arrow can only cast."""
    kinds = [pa.large_string() if holds_text(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    """Return the number of rows of each value, the most frequent first."""
    counted = pc.value_counts(combine(column).cast(plain(column.type)).drop_null()).to_pylist()
    ordered = sorted(counted, key=lambda each: (-each["counts"], str(each["values"])))
    return {str(each["values"]): each["counts"] for each in ordered[:_MOST_CLASSES]}


def row_errors(preview: Preview, config: GraphConfig) -> list[GnnflowError]:
    """Return an error for each fault of a sample's rows, which stop ingest where `graph.on_bad_rows` is fail."""
    found: list[GnnflowError] = []
    whole: dict[int, SampledTable] = {}  # node tables with all their ids, by the number of their type
    if config.on_bad_rows == "fail":
        for table in preview.tables:
            own = own_section(config, table)
            if isinstance(table.schema, NodeSchema):
                errors = _node_errors(table, _plain(table.schema, preview), own)
                found += errors.values()
                if table.sample.is_whole and all(column != own.id_column for column, _ in errors):
                    whole[table.number] = table
            elif isinstance(table.schema, EdgeSchema):
                found += _edge_errors(table, _plain(table.schema, preview), own, preview).values()
        for table in preview.tables:
            if isinstance(table.schema, EdgeSchema):
                found += _end_errors(table, table.schema, whole, config, preview).values()
    if not found:
        found += _split_errors(preview, config)
    return found


def _plain(schema: Schema, preview: Preview) -> Schema:
    """Return the schema without columns whose values are counted first, where errors of tables prevented it."""
    if preview.read is not None:
        return schema
    names: dict[str, Any] = {"label_kind": "none", "has_split": False} if schema.labels_are_names else {}
    parts = tuple(part for part in schema.parts if part.section is None or part.state is not None)
    return replace(schema.with_parts(parts), **names)


def _edges_among(part: pa.Table, table: SampledTable, preview: Preview) -> IntArray | None:
    """Return the rows of a chunk that are edges; None where it is not known which are."""
    if preview.read is not None:
        source = preview.read.edges[table.number]
        if source.chosen is None:
            return np.arange(part.num_rows)
        return np.flatnonzero(are_edges(part, source=source))
    return np.arange(part.num_rows) if table.is_plain else None


def _node_errors(table: SampledTable, schema: NodeSchema, config: GraphConfig) -> _Found:
    names = list(dict.fromkeys(node_column_names(schema, config)))
    found: _Found = {}
    for place, rows in _read(table, names):
        _keep(found, table, place, rows, node_faults(rows, schema, config))
    ids = _ids(table, config.id_column, schema.id_type)
    repeated = None if ids is None else _repeated(ids)
    if repeated is not None and len(repeated):
        places = [input_positions(number, np.arange(part.num_rows)) for number, part in enumerate(table.parts)]
        fault = repeated_id_fault(repeated, column=config.id_column)
        _keep(found, table, np.concatenate(places), pa.table({config.id_column: ids}), [fault])
    return found


def _ids(table: SampledTable, column: str, id_type: IdType) -> pa.Array | None:
    """Return a column of ids with one type; None where it holds others, which their own faults tell."""
    kind = pa.int64() if id_type == "int64" else pa.large_string()
    try:
        return pa.concat_arrays([combine(part[column]).cast(kind) for part in table.parts])
    except (pa.ArrowException, KeyError):
        return None


def _repeated(ids: pa.Array) -> IntArray:
    """Return the rows whose id an earlier row has [B]."""
    codes = to_numpy(ids.dictionary_encode().indices.cast(pa.int64()).fill_null(-1))
    _, first = np.unique(codes, return_index=True)
    is_first = np.zeros(len(codes), bool)
    is_first[first] = True
    return np.flatnonzero(~is_first & (codes >= 0))


def _edge_errors(table: SampledTable, schema: EdgeSchema, config: GraphConfig, preview: Preview) -> _Found:
    names = edge_column_names(schema, config)
    found: _Found = {}
    for number, part in enumerate(table.parts):
        kept = _edges_among(part, table, preview) if {*names} <= {*part.column_names} else None
        if kept is not None:
            rows = take_kept(part.select(names), kept)
            _keep(found, table, input_positions(number, kept), rows, edge_faults(rows, schema, config))
    return found


def _read(table: SampledTable, names: Sequence[str]) -> Iterator[tuple[IntArray, pa.Table]]:
    """Yield the places and the rows of each chunk that has these columns."""
    for number, part in enumerate(table.parts):
        if {*names} <= {*part.column_names}:
            yield input_positions(number, np.arange(part.num_rows)), part.select(names)


def _end_errors(
    table: SampledTable,
    schema: EdgeSchema,
    whole: Mapping[int, SampledTable],
    config: GraphConfig,
    preview: Preview,
) -> _Found:
    """Return the errors of edges whose ends are no nodes, for types whose nodes are all in the sample."""
    found: _Found = {}
    own = own_section(config, table)
    chosen = [_edges_among(part, table, preview) for part in table.parts]
    kept = [each for each in chosen if each is not None]
    if len(kept) < len(chosen):
        return found
    # places of the edges, and their rows among all rows of the sample [E]
    firsts = offsets_of(np.array([part.num_rows for part in table.parts], np.int64))
    place = np.concatenate([input_positions(number, rows) for number, rows in enumerate(kept)])
    rows = pa.array(np.concatenate([rows + first for rows, first in zip(kept, firsts, strict=False)]))
    for column, id_type in ((own.src_column, schema.src_type), (own.dst_column, schema.dst_type)):
        held = whole.get(table.source.ids[column])
        ids = None if held is None else _ids(held, own_section(config, held).id_column, id_type)
        ends = _ids(table, column, id_type)
        if held is None or ids is None or ends is None:
            continue
        ends = ends.take(rows)
        unknown = pc.and_(pc.is_valid(ends), pc.invert(pc.is_in(ends, value_set=ids)))
        missing = np.flatnonzero(to_numpy(unknown))
        if not len(missing):
            continue
        near = near_id(ends.take(pa.array(missing[:_MOST_SHOWN])), [ids]) if id_type == "string" else ""
        fault = end_fault(missing, side=column, of=node_table(config, held.number), id_type=id_type, near=near)
        _keep(found, table, place, pa.table({column: ends}), [fault])
    return found


def _keep(
    found: _Found,
    table: SampledTable,
    place: IntArray,
    rows: pa.Table,
    faults: Sequence[Fault],
) -> None:
    """Keep the first error of each column and reason. place: of the rows [R], as `input_positions` encodes it."""
    for fault in faults:
        if not len(fault.rows) or (fault.column, fault.reason) in found:
            continue
        try:
            separate(rows, [fault], chunks=table.source.chunks, place=place, policy="fail")
        except TableError as error:
            found[fault.column, fault.reason] = error


def _split_errors(preview: Preview, config: GraphConfig) -> list[GnnflowError]:
    """Return the error of splits without labelled rows, where the sample is the whole table."""
    read = preview.read
    if read is None or read.targets is not None:
        return []
    labelled, is_whole = read.labelled, _labelled(preview, read).sample.is_whole
    if not is_whole or not labelled.schema.has_labels or not labelled.schema.reads_split:
        return []
    counted = count_targets(preview, config)
    splits = {name: counted.splits.get(name, 0) for name in SPLITS}
    counts = {"none": counted.labelled - sum(splits.values()), **splits}
    try:
        refuse_empty_splits(labelled, counts, aside="")
    except TableError as error:
        return [error]
    return []
