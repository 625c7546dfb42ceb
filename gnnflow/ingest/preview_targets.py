"""The classes and splits of a sample's targets, as ingest counts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.errors import GnnflowError, TableError
from gnnflow.graph.splits import SPLITS
from gnnflow.graph.train_labels import CountedLabels
from gnnflow.ingest.checks import input_positions, separate
from gnnflow.ingest.labels import is_labelled, label_counts
from gnnflow.ingest.links import splits_of
from gnnflow.ingest.preview_tables import Errors, own_section
from gnnflow.ingest.run import refuse_empty_edge_splits, refuse_empty_splits, refuse_large_classes
from gnnflow.ingest.schema import EdgeSchema, NodeSchema
from gnnflow.ingest.source import (
    edge_column_names,
    edge_columns,
    edge_faults,
    node_column_names,
    node_columns,
    node_faults,
    take_kept,
)
from gnnflow.storage.columns import combine, take_rows, to_numpy
from gnnflow.storage.user_tables import holds_text, plain

if TYPE_CHECKING:
    from gnnflow.config import GraphConfig
    from gnnflow.ingest.preview import Preview
    from gnnflow.ingest.preview_tables import SampledTable
    from gnnflow.ingest.tables import Tables

_MOST_CLASSES = 50
_COUNTS = ("class_counts", "train_class_counts")


@dataclass(frozen=True)
class Counted:
    """The labelled rows of a sample: by class, the most frequent first, and by split."""

    labelled: int = 0
    classes: Mapping[str, int] = field(default_factory=dict)
    splits: Mapping[str, int] = field(default_factory=dict)


def count_targets(preview: Preview, config: GraphConfig) -> Counted:
    """Return the labels and splits of the sample of the table whose rows are targets."""
    read, table = preview.read, preview.labelled
    if read is None or table is None:
        return Counted()
    schema = read.labelled.schema
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


def _without_views(table: pa.Table) -> pa.Table:
    """Return a table without views of text, which Arrow can only cast."""
    kinds = [pa.large_string() if holds_text(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    """Return the number of rows of each value, the most frequent first."""
    counted = pc.value_counts(combine(column).cast(plain(column.type)).drop_null()).to_pylist()
    ordered = sorted(counted, key=lambda each: (-each["counts"], str(each["values"])))
    return {str(each["values"]): each["counts"] for each in ordered[:_MOST_CLASSES]}


def count_labels(preview: Preview) -> CountedLabels | None:
    """Return the targets as ingest counts them; None where the sample does not show them all, or none is in a split."""
    read, table = preview.read, preview.labelled
    if read is None or table is None or not table.sample.is_whole:
        return None
    schema, targets = read.labelled.schema, read.targets
    if not (schema.has_labels and schema.has_split if targets is None else targets.are_split):
        return None
    if targets is not None and targets.by_hash and not _agree_on_ids(table, preview):
        return None
    columns = _target_columns(preview, read, table.filled)
    if columns is None:
        return None
    split = to_numpy(columns["split"]) if targets is None else splits_of(columns, read)
    counted = np.bincount(split + 1, minlength=1 + len(SPLITS)).tolist()
    splits = dict(zip(("none", *SPLITS), counted, strict=True))
    if not schema.has_labels:
        return CountedLabels(schema.label_kind, splits)
    labels = pa.table({"label": columns["label"], "split": split}).filter(columns["labelled"])
    found = label_counts(labels, schema.label_kind)
    counts = {name: tuple(held) for name, held in found.items() if name in _COUNTS}
    largest = found.get("label_max", -1)
    return CountedLabels(
        schema.label_kind, splits, schema.class_names, **counts, largest=largest, labelled=labels.num_rows
    )


def _agree_on_ids(table: SampledTable, preview: Preview) -> bool:
    """Return whether both ends of an edge table can be read, as ids of the type that their nodes have."""
    of_nodes = {
        each.number: each.schema.id_type
        for each in preview.tables
        if isinstance(each.schema, NodeSchema) and not each.unread
    }
    assert isinstance(table.schema, EdgeSchema), "the table of edges that are targets"
    held = zip(table.source.ids.values(), (table.schema.src_type, table.schema.dst_type), strict=True)
    return not table.unread and all(of_nodes.get(number, id_type) == id_type for number, id_type in held)


def _target_columns(preview: Preview, read: Tables, table: SampledTable) -> pa.Table | None:
    """Return ids, labels, splits and times of the faultless targets as ingest stores them; None if a part lacks one."""
    labelled, parts = read.labelled, []
    own, schema = labelled.config, labelled.schema
    bare: NodeSchema | EdgeSchema
    if isinstance(schema, NodeSchema):
        bare = replace(schema, features=(), sparse=None)
    else:
        bare = replace(schema, attributes=(), has_weight=False)
    names = node_column_names(bare, own) if isinstance(bare, NodeSchema) else edge_column_names(bare, own)
    for number, part in enumerate(table.parts):
        kept = np.arange(part.num_rows) if table.is_nodes else preview.edges_among(part, table)
        if kept is None or not {*names} <= {*part.column_names}:
            return None
        rows = take_kept(part.select(list(dict.fromkeys(names))), kept)
        faults = node_faults(rows, bare, own) if isinstance(bare, NodeSchema) else edge_faults(rows, bare, own)
        place = input_positions(number, kept)
        rows = take_kept(
            rows, separate(rows, faults, chunks=table.source.chunks, place=place, policy="quarantine").kept
        )
        parts.append(
            pa.table(node_columns(rows, bare, own) if isinstance(bare, NodeSchema) else edge_columns(rows, bare, own))
        )
    return pa.concat_tables(parts) if parts else None


def split_errors(preview: Preview, config: GraphConfig) -> list[GnnflowError]:
    """Return the error of a split without a row, whatever labels the rows have or get.

    The sample has to be the whole table. A split that is none of the three may be meant as any.
    """
    read, table = preview.read, preview.labelled
    if read is None or table is None or not table.sample.is_whole or not read.labelled.schema.reads_split:
        return []
    split = own_section(config, table).split_column
    if any(split not in part.column_names for part in table.parts):
        return []
    found = _counts(_without_views(table.rows([split]))[split])
    if {*found} - {*SPLITS}:
        return []
    rows = sum(part.num_rows for part in table.parts)
    counts = {"none": rows - sum(found.values())} | {name: found.get(name, 0) for name in SPLITS}
    errors = Errors()
    errors.attempt(lambda: _refuse_splits(read, counts))
    return list(errors.found.values())


def _refuse_splits(read: Tables, counts: Mapping[str, int]) -> None:
    """Raise TableError where no target is in train or valid."""
    labelled = read.labelled
    if read.targets is None:
        refuse_empty_splits(counts, labelled.config.split_column, labelled.schema.drawn, where=labelled.uri)
    elif getattr(read.targets.task.split, "valid", None) != 0:  # 0 is a mistake of the config, told there
        refuse_empty_edge_splits(counts, read.targets, where=labelled.uri)


def target_errors(preview: Preview, config: GraphConfig) -> list[GnnflowError]:
    """Return the error of splits without targets, or of too large classes, where the sample is the whole table."""
    counted, read = count_labels(preview), preview.read
    if counted is None or read is None:
        return []
    try:
        _refuse_splits(read, counted.splits)
        refuse_large_classes(read.labelled, config, largest=counted.largest, labelled=counted.labelled)
    except TableError as error:
        return [error]
    return []
