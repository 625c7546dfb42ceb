"""Turns a chunk of a user's table into the store's columns: ids, features, labels, splits, weights and times.

Everything here sees one chunk of one table and knows nothing of partitions.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.columns import encode, find_unknown, floats_of
from gnnflow.graph.encodings import NumericalState
from gnnflow.graph.hashing import combine as combine_keys
from gnnflow.graph.hashing import seed_word
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest.checks import (
    Fault,
    id_faults,
    input_positions,
    number_faults,
    separate,
    sparse_faults,
    split_faults,
    weight_faults,
)
from gnnflow.ingest.labels import is_labelled, label_column, label_faults, rounding
from gnnflow.ingest.numbers import count_rounded
from gnnflow.ingest.times import time_faults, times_of
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.sampling.pairs import random_splits, ranked_splits
from gnnflow.storage.columns import combine, from_matrix, from_ragged, id_keys, take_rows, to_numpy, to_ragged
from gnnflow.storage.user_tables import iter_chunk, read_chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.graph.arrays import Array, FloatArray, IntArray, KeyArray
    from gnnflow.graph.facts import IdType
    from gnnflow.graph.scales import ColumnScale
    from gnnflow.ingest.checks import Separated
    from gnnflow.ingest.fields import ColumnPart
    from gnnflow.ingest.job import IngestJob
    from gnnflow.ingest.numbers import FloatType
    from gnnflow.ingest.schema import EdgeSchema, NodeSchema, TableSchema
    from gnnflow.ingest.tables import EdgeTable, NodeTable
    from gnnflow.ingest.targets import DrawnSplit
    from gnnflow.mapreduce.exchange import Emit

FIRST_TIME = 1 << 63
"""The key of time 0 among times: keys are not negative and ascend with the times."""


def node_column_names(schema: NodeSchema, config: GraphConfig) -> list[str]:
    """Return the columns of the node table that are read."""
    names = [config.id_column, *(part.name for part in schema.features)]
    if schema.sparse:
        names += [f"{schema.sparse}_index"] + ([f"{schema.sparse}_value"] if schema.sparse_has_value else [])
    if schema.has_labels:
        names.append(config.label_column)
    names += [config.split_column] if schema.reads_split else []
    return list(dict.fromkeys([*names, *(() if schema.drawn is None else schema.drawn.columns)]))


def edge_column_names(schema: EdgeSchema, config: GraphConfig) -> list[str]:
    """Return the columns of the edge table that are read."""
    names = [config.src_column, config.dst_column] + ([config.weight_column] if schema.has_weight else [])
    asked = {
        config.label_column: schema.has_labels,
        config.split_column: schema.has_split,
        config.time_column: schema.has_time,
    }
    names += [name for name, is_read in asked.items() if is_read]
    return list(dict.fromkeys([*names, *(part.name for part in schema.attributes)]))


def node_number_types(schema: NodeSchema, config: GraphConfig) -> dict[str, FloatType]:
    """Return the number columns of the node table, each with the type that it is rounded to first."""
    types = _number_types(schema.features, config.normalize)
    if schema.sparse and schema.sparse_has_value:
        types[f"{schema.sparse}_value"] = number_type(config.normalize)
    return types


def edge_number_types(schema: EdgeSchema, config: GraphConfig) -> dict[str, FloatType]:
    """Return the number columns of the edge table, each with the type that it is rounded to first."""
    types = _number_types(schema.attributes, config.edge_normalize)
    return types | ({config.weight_column: np.float32} if schema.has_weight else {})


def _number_types(parts: Sequence[ColumnPart], scaling: str) -> dict[str, FloatType]:
    """Return the type that each column of numbers is rounded to first."""
    types: dict[str, FloatType] = {}
    for part in parts:
        if part.state is None:
            types[part.name] = number_type(scaling)
        elif isinstance(part.state, NumericalState):
            types[part.name] = number_type(scaling if part.state.scale == "none" else part.state.scale)
    return types


def node_faults(
    table: pa.Table, schema: NodeSchema, config: GraphConfig, *, scale: ColumnScale | None = None
) -> list[Fault]:
    """Return every fault of a chunk of nodes. scale: the given scale of its features, if there is one."""
    faults, scaling = id_faults(table, config.id_column), config.normalize
    if schema.sparse:
        width, has_value = schema.feature_width, schema.sparse_has_value
        faults += sparse_faults(table, schema.sparse, width, has_value=has_value, scaling=scaling)
    else:
        faults += number_faults(table, schema.features, "feature", scaling=scaling, scale=scale)
    wrong = label_faults(table, schema, config) if schema.has_labels else []
    if schema.reads_split:
        wrong += split_faults(table, config.split_column, _labelled(table, schema, config) | _are_in(wrong, table))
    return faults + wrong + split_time_faults(table, schema, config)


def split_time_faults(table: pa.Table, schema: NodeSchema, config: GraphConfig) -> list[Fault]:
    """Return the faults of the times that splits follow from; a node without a label needs none."""
    if schema.drawn is None or not schema.drawn.column:
        return []
    labelled = np.flatnonzero(_labelled(table, schema, config))
    found = time_faults(table, schema.drawn.column, time=schema.drawn.unit, of="labelled node")
    return [replace(fault, rows=np.intersect1d(fault.rows, labelled)) for fault in found]


def edge_faults(
    table: pa.Table, schema: EdgeSchema, config: GraphConfig, *, scale: ColumnScale | None = None
) -> list[Fault]:
    """Return every fault of a chunk of edges that can be seen without the nodes. scale: as for `node_faults`."""
    faults = id_faults(table, config.src_column) + id_faults(table, config.dst_column)
    if schema.has_weight:
        faults += weight_faults(table, config.weight_column)
    wrong = label_faults(table, schema, config) if schema.has_labels else []
    faults += wrong
    if schema.has_split:
        is_target = is_labelled(table, schema, config) if schema.has_labels else np.ones(table.num_rows, bool)
        faults += split_faults(table, config.split_column, is_target | _are_in(wrong, table))
    if schema.has_time:
        faults += time_faults(table, config.time_column, time=schema.time)
    scaling = config.edge_normalize
    return faults + number_faults(table, schema.attributes, "edge attribute", scaling=scaling, scale=scale)


def number_type(scaling: str) -> FloatType:
    """Return the type that numbers are read as: scaling computes in float64 and rounds its result."""
    return np.float32 if scaling == "none" else np.float64


def node_columns(table: pa.Table, schema: NodeSchema, config: GraphConfig) -> dict[str, pa.Array]:
    """Return the store's columns of faultless node rows: id; for targets labelled, label, split; features."""
    columns = {"id": ids_of(table, schema, config)}
    if schema.is_target:
        labelled = _labelled(table, schema, config)
        columns["labelled"] = pa.array(labelled)
        if schema.has_labels:
            columns["label"] = label_column(table, schema, config)
        if schema.drawn is None:
            split = _split_codes(table, config.split_column if schema.has_split else None)
        else:
            split = _drawn_codes(table, columns, labelled, schema.drawn)
        columns["split"] = pa.array(split)
    if not schema.has_features:
        return columns
    if not schema.sparse:
        x = dense_matrix(table, schema.features, number_type(config.normalize))
        if config.normalize == "row":
            # each row's sum of magnitudes [rows, 1]; a row of zeros stays zero
            total = np.abs(x).sum(1, keepdims=True)
            x = np.asarray(x / np.where(total > 0, total, 1), np.float32)
        columns["x"] = from_matrix(x)
        return columns
    offsets, index = to_ragged(table.column(f"{schema.sparse}_index"))
    columns["x_index"] = from_ragged(offsets, index.astype(np.int32))
    value = _sparse_values(table, schema, config, offsets)
    if value is not None:
        columns["x_value"] = from_ragged(offsets, value)
    return columns


def edge_columns(table: pa.Table, schema: EdgeSchema, config: GraphConfig) -> dict[str, pa.Array]:
    """Return the store's columns of faultless edge rows: ends, weight, attributes; for targets split, label, time."""
    columns = {
        "src_id": _ids(table.column(config.src_column), schema.src_type),
        "dst_id": _ids(table.column(config.dst_column), schema.dst_type),
    }
    if schema.has_weight:
        columns["weight"] = pa.array(floats_of(combine(table.column(config.weight_column))).astype(np.float32))
    if schema.attributes:
        columns["attributes"] = from_matrix(dense_matrix(table, schema.attributes, number_type(config.edge_normalize)))
    if schema.has_split:
        columns["split"] = pa.array(_split_codes(table, config.split_column))
    if schema.has_labels:
        columns["labelled"] = pa.array(is_labelled(table, schema, config))
        columns["label"] = label_column(table, schema, config)
    if schema.has_time:
        # in the column's own unit, since times are only compared
        columns["time"] = pa.array(times_of(table.column(config.time_column), time=schema.time))
    return columns


def _labelled(table: pa.Table, schema: TableSchema, config: GraphConfig) -> Array:
    """Return which rows of a table have a label."""
    return is_labelled(table, schema, config) if schema.has_labels else np.zeros(table.num_rows, bool)


def _are_in(faults: Sequence[Fault], table: pa.Table) -> Array:
    """Return which rows of a table some fault has [rows]."""
    found = np.zeros(table.num_rows, bool)
    for fault in faults:
        found[fault.rows] = True
    return found


def dense_matrix(table: pa.Table, parts: Sequence[ColumnPart], dtype: FloatType) -> FloatArray:
    """Return the concatenation of list, scalar and encoded columns [rows, width]."""
    matrix = np.empty((table.num_rows, sum(part.width for part in parts)), dtype)
    start = 0
    for part in parts:
        column = combine(table.column(part.name))
        # the part's columns of the matrix [rows, part.width]
        if part.state is not None:
            matrix[:, start : start + part.width] = encode(column, part.state)
        else:
            values = pc.list_flatten(column) if part.is_list else column
            matrix[:, start : start + part.width] = floats_of(values).reshape(-1, part.width)
        start += part.width
    return matrix


def ids_of(table: pa.Table, schema: NodeSchema, config: GraphConfig) -> pa.Array:
    """Return the ids of a table of nodes as they are stored."""
    return _ids(table.column(config.id_column), schema.id_type)


def _ids(column: pa.ChunkedArray, id_type: IdType) -> pa.Array:
    return combine(column).cast(pa.int64() if id_type == "int64" else pa.large_string())


def _split_codes(table: pa.Table, column: str | None) -> Array:
    if column is None:
        return np.full(table.num_rows, -1, np.int8)
    # the position of each row's text in SPLITS [rows], -1 where it is null
    text = combine(table.column(column)).cast(pa.string())
    return to_numpy(pc.index_in(text, value_set=pa.array(SPLITS)).fill_null(-1).cast(pa.int8()))


def _drawn_codes(table: pa.Table, columns: Mapping[str, pa.Array], labelled: Array, drawn: DrawnSplit) -> Array:
    """Return the split code of each row [rows], -1 without a label. columns: the store's, with id and label."""
    if drawn.kind == "random":
        keys = id_keys(columns["id"])
        codes = random_splits(keys, of="node split", seed=drawn.seed, valid=drawn.valid, test=drawn.test)
        return np.where(labelled, codes, np.int8(-1))
    found, rows = np.full(table.num_rows, -1, np.int8), np.flatnonzero(labelled)
    of_rows = {name: columns[name].take(pa.array(rows)) for name in ("id", "label")}
    found[rows] = ranked_splits(*ranked_keys(table.take(pa.array(rows)), of_rows, drawn), drawn.groups)
    return found


def ranked_keys(table: pa.Table, columns: Mapping[str, pa.Array], drawn: DrawnSplit) -> tuple[IntArray, KeyArray]:
    """Return the group and the key of each labelled row [R].

    Keys are times, or hashes of ids; a row's split follows from the rank of its key in its group, and the largest are
    test. columns: the store's, with id and label.
    """
    if drawn.kind == "time":
        return time_keys(times_of(table.column(drawn.column), time=drawn.unit))
    hashed = combine_keys(id_keys(columns["id"]), seed_word("node split", drawn.seed))
    return np.asarray(to_numpy(columns["label"]), np.int64), ~hashed  # the smallest are test, as of a random split


def time_keys(times: IntArray) -> tuple[IntArray, KeyArray]:
    """Return the group, which all have, and the key of each time [R]."""
    return np.zeros(len(times), np.int64), times.view(np.uint64) + np.uint64(FIRST_TIME)


def _sparse_values(table: pa.Table, schema: NodeSchema, config: GraphConfig, offsets: Array) -> FloatArray | None:
    """Return the values of sparse rows, concatenated [V]; None where every value is 1. offsets: [rows + 1]."""
    lengths = np.diff(offsets)
    value: FloatArray | None = None
    if schema.sparse_has_value:
        held = pc.list_flatten(combine(table.column(f"{schema.sparse}_value")))
        value = floats_of(held).astype(number_type(config.normalize))
    if config.normalize != "row":
        return value
    ones = np.ones(offsets[-1]) if value is None else value
    # the row of each value [V], and each row's sum of magnitudes [rows]
    rows = np.repeat(np.arange(len(lengths)), lengths)
    total = np.bincount(rows, np.abs(ones), minlength=len(lengths))
    return np.asarray(ones / np.where(total > 0, total, 1)[rows], np.float32)


def read_rows(
    source: NodeTable | EdgeTable,
    number: int,
    job: IngestJob,
    *,
    names: Sequence[str],
    numbers: Mapping[str, FloatType],
    faults: Callable[[pa.Table], list[Fault]],
    send: Callable[[pa.Table, IntArray], Iterable[Emit]],
    chosen: Callable[[pa.Table], Array] | None = None,
) -> Generator[Emit, None, TaskOutput]:
    """Send the faultless rows of a table's chunk, run by run, and return the task's files and counts.

    send: gets rows and the place of each in the input [n], and returns what is sent of them. names: the columns to
    read. numbers: the number columns, with the type that each is rounded to first. chosen: returns which rows count;
    None for all.
    """
    chunk, bad, counts, first = source.chunks[number], [], [], 0
    for run in iter_chunk(chunk, names):
        own = _chosen_rows(run, number, first, chosen)
        check = partial(_separated, source=source, faults=faults)
        found, labelled = check(own.rows, own.place, policy="quarantine")
        if found.bad.num_rows and job.config.on_bad_rows == "fail":
            whole = _chosen_rows(read_chunk(chunk, names), number, 0, chosen)
            check(whole.rows, whole.place, policy="fail")
        rows = take_kept(own.rows, found.kept)
        yield from send(rows, own.place[found.kept])
        lost = {**rounding(rows, source.schema, source.config), **count_rounded(rows, numbers)}
        lost |= count_encoded(rows, source.schema.parts)
        counts.append({"rows_in": own.rows.num_rows, "labelled_in": labelled, **own.left_out, **found.counts, **lost})
        bad.append(found.bad)
        first += run.num_rows
    files = job.set_aside(f"{source.stem}-read-{number:05d}", pa.concat_tables(bad))
    return TaskOutput(files=files, counts=_merged(counts, names=[*numbers]))


def _separated(
    table: pa.Table,
    place: IntArray,
    *,
    source: NodeTable | EdgeTable,
    faults: Callable[[pa.Table], list[Fault]],
    policy: Literal["fail", "quarantine"],
) -> tuple[Separated, int]:
    """Return the rows to keep and the others, and the number of rows with a label."""
    found = faults(table)  # which say first where the column of labels cannot be read
    labelled = _labelled(table, source.schema, source.config)
    kept = separate(table, found, chunks=source.chunks, place=place, policy=policy, labelled=labelled)
    return kept, int(labelled.sum())


def separate_arrived(rows: pa.Table, fault: Fault, *, source: NodeTable | EdgeTable, job: IngestJob) -> Separated:
    """Return which rows that an earlier round sent are kept, and the others, by the config's policy."""
    return separate(
        rows,
        [fault],
        chunks=source.chunks,
        place=to_numpy(rows["place"]),
        policy=job.config.on_bad_rows,
        labelled=to_numpy(rows["labelled"]) if "labelled" in rows.column_names else None,
    )


class _Chosen(NamedTuple):
    """The chosen rows of a run.

    place [n]: of each row in the input. left_out: the count of the others.
    """

    rows: pa.Table
    place: IntArray
    left_out: dict[str, int]


def _chosen_rows(run: pa.Table, number: int, first: int, chosen: Callable[[pa.Table], Array] | None) -> _Chosen:
    """Return a run's rows that count. first: the number of the run's first row in the chunk."""
    place = input_positions(number, first + np.arange(run.num_rows))
    if chosen is None:
        return _Chosen(run, place, {})
    kept = np.flatnonzero(chosen(run))
    return _Chosen(take_kept(run, kept), place[kept], {"rows_left_out": run.num_rows - len(kept)})


def count_encoded(rows: pa.Table, parts: Sequence[ColumnPart]) -> dict[str, Any]:
    """Return a task's count of missing and unknown values, by encoded column."""
    found = {}
    for part in parts:
        if part.state is not None:
            held = find_unknown(combine(rows.column(part.name)), part.state)
            found[part.name] = [int(held.missing.sum()), int(held.unknown.sum())]
    return {"encoded": found} if found else {}


def take_kept(table: pa.Table, kept: IntArray | slice) -> pa.Table:
    """Return the kept rows; the table itself where all rows are kept, as by a slice."""
    return table if isinstance(kept, slice) or len(kept) == table.num_rows else take_rows(table.combine_chunks(), kept)


def _merged(counts: Sequence[Mapping[str, Any]], *, names: Sequence[str]) -> dict[str, Any]:
    """Return the counts of a chunk from the counts of its runs: sums, but of errors the largest. names: in order."""
    merged: dict[str, Any] = {"rounded": {}, "encoded": {}, "reasons": ()}
    for run in counts:
        for name in ("rows_in", "labelled_in", "rows_left_out", "rows_quarantined"):
            if name in run:
                merged[name] = merged.get(name, 0) + run[name]
        merged["reasons"] += run["reasons"]
        if "label_rounding" in run:
            merged["label_rounding"] = max(merged.get("label_rounding", 0.0), run["label_rounding"])
        for column, (bits, lost) in run.get("rounded", {}).items():
            merged["rounded"][column] = [bits, max(lost, merged["rounded"].get(column, (bits, 0.0))[1])]
        for column, found in run.get("encoded", {}).items():
            before = merged["encoded"].get(column, (0, 0))
            merged["encoded"][column] = [one + other for one, other in zip(before, found, strict=True)]
    merged["rounded"] = {name: merged["rounded"][name] for name in names if name in merged["rounded"]}
    return merged
