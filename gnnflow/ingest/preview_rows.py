"""The faults of a sample's rows, as ingest finds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.config.environment import config_line
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.errors import GnnflowError, GuardError, TableError
from gnnflow.graph.facts import RowCounts, share_text
from gnnflow.ingest.checks import Fault, input_positions, near_id, separate, split_faults
from gnnflow.ingest.edge_rounds import end_fault
from gnnflow.ingest.label_schema import no_labels
from gnnflow.ingest.labels import is_labelled
from gnnflow.ingest.node_rounds import repeated_id_fault
from gnnflow.ingest.preview_tables import own_section
from gnnflow.ingest.preview_targets import split_errors, target_errors
from gnnflow.ingest.schema import EdgeSchema, NodeSchema, node_table
from gnnflow.ingest.source import edge_column_names, edge_faults, node_column_names, node_faults, take_kept
from gnnflow.storage.columns import combine, to_numpy

if TYPE_CHECKING:
    from gnnflow.config import GraphConfig
    from gnnflow.graph.arrays import IntArray
    from gnnflow.graph.facts import IdType
    from gnnflow.ingest.preview import Preview
    from gnnflow.ingest.preview_tables import SampledTable

Schema = TypeVar("Schema", NodeSchema, EdgeSchema)
_STEPS = 1000  # precision of the share that a fix suggests
_MOST_SHOWN = 3  # ids that are compared with the nodes'


class _Found(dict[tuple[str, str], GnnflowError]):
    """The first error of each column and reason, and the places of all bad rows. A wrong column's reason is ""."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[IntArray] = []


def row_errors(preview: Preview, config: GraphConfig) -> list[GnnflowError]:
    """Return an error for each fault of a sample's rows; one for a table with too many where they are set aside."""
    found: dict[str, list[_Found]] = {table.name: [] for table in preview.tables}
    ids: dict[int, pa.Array] = {}  # all ids of a type, by its number
    tables = [table.filled for table in preview.tables]
    for table in tables:
        own = own_section(config, table)
        if isinstance(table.schema, NodeSchema):
            errors = _node_errors(table, _plain(table.schema, preview), own)
            found[table.name].append(errors)
            known = None if table.unread else _ids(table, own.id_column, table.schema.id_type)
            if table.sample.is_whole and known is not None:
                ids[table.number] = known
        elif isinstance(table.schema, EdgeSchema):
            found[table.name].append(_edge_errors(table, _plain(table.schema, preview), own, preview))
    for table in tables:
        if isinstance(table.schema, EdgeSchema):
            found[table.name].append(_end_errors(table, table.schema, ids, config, preview))
    told: list[GnnflowError] = []
    for table in preview.tables:
        if config.on_bad_rows == "fail":
            told += [error for errors in found[table.name] for error in errors.values()]
        else:
            told += [errors[key] for errors in found[table.name] for key in errors if not key[1]]
            told += _too_many(table, found[table.name], preview, config)
    labelled = preview.labelled
    are_bad = labelled is not None and _are_bad(found[labelled.name], own_section(config, labelled))
    return [*told, *(split_errors if are_bad else target_errors)(preview, config)]


def _are_bad(found: Sequence[_Found], own: GraphConfig) -> bool:
    """Return whether rows have wrong labels or splits, so that targets cannot be counted."""
    return any(column in (own.label, own.split, own.timestamp) for errors in found for column, _ in errors)


def _too_many(
    table: SampledTable, found: Sequence[_Found], preview: Preview, config: GraphConfig
) -> list[GnnflowError]:
    """Return an error for a whole table of which more rows are bad than `graph.max_bad_rows` allows."""
    places = [place for errors in found for place in errors.places]
    rows = table.sample.is_whole and preview.count_rows(table)
    bad = len(np.unique(np.concatenate(places))) if places else 0
    if not rows or bad <= config.max_bad_rows * rows:
        return []
    (column, reason), _ = next(each for errors in found for each in errors.items())
    least = -(-bad * _STEPS // rows) / _STEPS
    return [
        GuardError(
            f"{RowCounts(rows, rows - bad, bad).text} would be set aside, and graph.max_bad_rows allows "
            f"{share_text(config.max_bad_rows)}; column {column!r}: {reason}",
            where=table.source.uri,
            fix=f"Mend the rows, or set graph.max_bad_rows: {least:g} to continue without them.",
        )
    ]


def _plain(schema: Schema, preview: Preview) -> Schema:
    """Return the schema without columns whose values are counted first, where errors of tables prevented it."""
    if preview.is_complete:
        return schema
    is_counted = schema.class_names or (preview.read is not None and preview.read.classes is not None)
    is_open = schema.labels_are_names and not is_counted
    names: dict[str, Any] = {"label_kind": "none", "has_split": False} if is_open else {}
    parts = tuple(part for part in schema.parts if part.section is None or part.state is not None)
    return replace(schema.with_parts(parts), **names)


def _node_errors(table: SampledTable, schema: NodeSchema, config: GraphConfig) -> _Found:
    names = list(dict.fromkeys(node_column_names(schema, config)))
    found = _Found()
    for place, rows in _read(table, names):
        _keep(found, table, place, rows, node_faults(rows, schema, config))
    if schema.has_labels and table.sample.is_whole and all(column != config.label_column for column, _ in found):
        held = [is_labelled(rows, schema, config).any() for _, rows in _read(table, names)]
        if held and not any(held):  # which no row's split need say
            found = _node_errors(table, replace(schema, label_kind="none", has_split=False), config)
            for place, rows in _read(table, [config.split_column]) if schema.reads_split else ():
                _keep(found, table, place, rows, split_faults(rows, config.split_column, np.ones(rows.num_rows, bool)))
            found[config.label_column, ""] = no_labels(config, table.source.uri)
            return found
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
    found = _Found()
    for number, part in enumerate(table.parts):
        kept = preview.edges_among(part, table) if {*names} <= {*part.column_names} else None
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
    known: Mapping[int, pa.Array],
    config: GraphConfig,
    preview: Preview,
) -> _Found:
    """Return the errors of edges whose ends are no nodes. known: the ids of types whose nodes are all in the sample."""
    found = _Found()
    own = own_section(config, table)
    chosen = [preview.edges_among(part, table) for part in table.parts]
    kept = [each for each in chosen if each is not None]
    if len(kept) < len(chosen):
        return found
    # places of the edges, and their rows among all rows of the sample [E]
    firsts = offsets_of(np.array([part.num_rows for part in table.parts], np.int64))
    place = np.concatenate([input_positions(number, rows) for number, rows in enumerate(kept)])
    rows = pa.array(np.concatenate([rows + first for rows, first in zip(kept, firsts, strict=False)]))
    ends: dict[str, Any] = {}
    ids: dict[str, Any] = {}
    for column, id_type in ((own.src_column, schema.src_type), (own.dst_column, schema.dst_type)):
        of = known.get(table.source.ids[column])
        values = None if column in table.unread else _ids(table, column, id_type)
        if of is None or values is None or of.type != values.type:
            continue
        ends[column], ids[column] = values.take(rows), of
    swapped = _swapped_fix(ends, ids, table, config) if schema.src_type == schema.dst_type else ""
    for column, values in ends.items():
        missing = np.flatnonzero(to_numpy(pc.and_(pc.is_valid(values), pc.invert(pc.is_in(values, ids[column])))))
        if not len(missing):
            continue
        id_type = schema.src_type if column == own.src_column else schema.dst_type
        shown = values.take(pa.array(missing[:_MOST_SHOWN]))
        near = near_id(shown, [ids[column]]) if id_type == "string" and not swapped else ""
        nodes = node_table(config, table.source.ids[column])
        fault = end_fault(missing, side=column, of=nodes, id_type=id_type, near=near)
        _keep(found, table, place, pa.table({column: values}), [replace(fault, fix=swapped or fault.fix)])
        if swapped:
            break
    return found


def _swapped_fix(ends: Mapping[str, Any], ids: Mapping[str, Any], table: SampledTable, config: GraphConfig) -> str:
    """Return the fix for a relation whose ends are each ids of the other's type; "" for other relations."""
    pair, types = [*ends], table.source.ids
    if len(pair) < len(types) or types[pair[0]] == types[pair[1]]:
        return ""
    for column, other in (pair, reversed(pair)):
        values = ends[column].drop_null()
        are_of_other = (
            pc.all(pc.is_in(values, ids[other])).as_py() and not pc.any(pc.is_in(values, ids[column])).as_py()
        )
        if not len(values) or not are_of_other:
            return ""
    relation = list(config.edge_tables)[table.number]
    if config.edge_table_of(relation) is not None:
        line = f"in graph.edges.{relation} src: {config_line(pair[1])}, dst: {config_line(pair[0])}"
    else:
        src, dst = (config_line({str(relation): name}) for name in reversed(pair))
        line = f"graph.src: {src} and graph.dst: {dst}"
    return f"These are ids of the other end's type, and the ends are swapped. Set {line}."


def _keep(
    found: _Found,
    table: SampledTable,
    place: IntArray,
    rows: pa.Table,
    faults: Sequence[Fault],
) -> None:
    """Keep the first error of each column and reason. place: of the rows [R], as `input_positions` encodes it."""
    for fault in _widest(faults):
        found.places.append(place[fault.rows])
        if (fault.column, fault.reason) in found:
            continue
        try:
            separate(rows, [fault], chunks=table.source.chunks, place=place, policy="fail")
        except TableError as error:
            found[fault.column, fault.reason] = error


def _widest(faults: Sequence[Fault]) -> list[Fault]:
    """Return the faults with rows; of one column, without those whose rows all have another fault there."""
    told: list[Fault] = []
    for fault in sorted(faults, key=lambda each: -len(each.rows)):
        others = [each.rows for each in told if each.column == fault.column]
        if len(fault.rows) and not any(np.isin(fault.rows, rows).all() for rows in others):
            told.append(fault)
    return [fault for fault in faults if any(fault is each for each in told)]
