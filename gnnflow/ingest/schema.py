"""What the user's tables hold, read from their schemas before any row is: one schema per table.

Raises TableError with the file and column where a table breaks its contract. Of labels a table says their kind, by the
column's type, and the names of classes, in its metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from gnnflow.graph.errors import TableError
from gnnflow.graph.labels import LABEL_KINDS, LabelKind
from gnnflow.ingest.fields import (
    ColumnPart,
    field_of,
    id_type_of,
    is_unknown,
    list_width,
    one_for_all,
    part_of,
    shown,
    split_is_text,
    text_at,
    weight_is_number,
)
from gnnflow.ingest.sparse_schema import sparse_stem, sparse_width
from gnnflow.ingest.times import time_of
from gnnflow.storage.agreed_schema import files_of, holds_lists, holds_numbers, holds_text
from gnnflow.storage.user_tables import schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.graph.facts import IdType
    from gnnflow.graph.schema import Relation
    from gnnflow.ingest.targets import DrawnSplit, EdgeTargets
    from gnnflow.ingest.text import SourceTable
    from gnnflow.storage.user_tables import Chunk

_CLASS_NAMES = b"label_classes"


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """What a table of nodes or of edges says of targets; nothing where its rows are none.

    class_names are those of the config or of the table's metadata, by class number, where there may be fewer or more
    than classes. drawn: how splits are found, where no column says them.
    """

    label_kind: LabelKind = "none"
    label_width: int = 0
    has_split: bool = False
    class_names: tuple[str, ...] = ()
    drawn: DrawnSplit | None = None

    @property
    def has_labels(self) -> bool:
        """Whether the table has a label column that is read."""
        return LABEL_KINDS[self.label_kind].has_labels

    @property
    def reads_split(self) -> bool:
        """Whether a column says which split a target is in."""
        return self.has_split and self.drawn is None


@dataclass(frozen=True, kw_only=True)
class NodeSchema(TableSchema):
    """How to read a type's node table.

    Dense features are the concatenation of `features`; sparse ones are the columns `<sparse>_index`/`<sparse>_value`.
    is_target: the type's rows of the store have labels and splits, if only to say that there are none.
    """

    id_type: IdType = "int64"
    features: tuple[ColumnPart, ...] = ()
    sparse: str | None = None
    sparse_has_value: bool = False
    feature_width: int = 0
    is_target: bool = True

    @property
    def has_features(self) -> bool:
        """Whether the type's nodes have features."""
        return self.sparse is not None or bool(self.features)

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The columns of features as the config names them."""
        return (self.sparse,) if self.sparse else tuple(part.name for part in self.features)


@dataclass(frozen=True, kw_only=True)
class EdgeSchema(TableSchema):
    """How to read a relation's edge table.

    src_type, dst_type: of the ids of its ends. targets: where edges are, of this table or another one; is_target: of
    this. time: what edges' times are, "" without; those of another table than the targets' have them where it has the
    column.
    """

    src_type: IdType = "int64"
    dst_type: IdType = "int64"
    has_weight: bool = False
    attributes: tuple[ColumnPart, ...] = ()
    targets: EdgeTargets | None = None
    is_target: bool = False
    time: str = ""

    @property
    def has_time(self) -> bool:
        """Whether edges have times."""
        return bool(self.time)

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The columns of attributes."""
        return tuple(part.name for part in self.attributes)

    @property
    def attribute_width(self) -> int:
        """Width of the edge attributes; 0 where there are none."""
        return sum(part.width for part in self.attributes)


def read_node_schema(
    table: SourceTable,
    config: GraphConfig,
    *,
    node_type: int = 0,
    targets: EdgeTargets | None = None,
    drawn: DrawnSplit | None = None,
) -> NodeSchema:
    """Return how to read a type's node table. Reads schemas, and first rows where a width is only in the rows.

    targets: where edges are, so that no label of a node is read. drawn: how labelled nodes are split without a column.
    """
    _refuse_empty(table)
    found, chunks = table.schema(), table.chunks
    features = _features_there(found, config, node_type)
    sparse = sparse_stem(found, table, features, config)
    of_ids = one_for_all("graph.id", config.id, len(config.node_tables))
    id_type = id_type_of(found, chunks[0], config.id, "graph.id", fix=of_ids)
    kind_name = config.schema.types[node_type]
    role, fix = _role("graph.features", config.features, kind_name), ""
    if config.schema.is_typed and not isinstance(config.features, Mapping):
        fix = f"Write the column, or give graph.features as {{type: columns}} with those that {kind_name} has."
    dense = () if sparse else tuple(part_of(found, chunks, name, role, fix=fix) for name in features)
    is_target = node_type in config.target_types
    is_labelled = is_target and targets is None and config.label is not None
    kind, width = _label_of(found, chunks, config) if is_labelled else ("none", 0)
    drawn = drawn if is_labelled and LABEL_KINDS[kind].has_labels else None
    return NodeSchema(
        id_type=id_type,
        features=dense,
        sparse=sparse,
        sparse_has_value=sparse is not None and f"{sparse}_value" in found.names,
        feature_width=sparse_width(table, sparse, config) if sparse else sum(part.width for part in dense),
        label_kind=kind,
        label_width=width,
        has_split=drawn is not None or (is_labelled and split_is_text(found, chunks[0], config.split)),
        class_names=_class_names_of(chunks, config) if LABEL_KINDS[kind].has_classes else (),
        is_target=is_target,
        drawn=drawn,
    )


def read_edge_schema(
    table: SourceTable,
    config: GraphConfig,
    *,
    nodes: Sequence[NodeSchema],
    number: int = 0,
    targets: EdgeTargets | None = None,
) -> EdgeSchema:
    """Return how to read an edge table, as `read_node_schema` does. nodes: the schemas of the types, in their order."""
    own = targets if targets is not None and targets.table == number else None
    if own is not None or not config.schema.is_typed:  # of several relations one may have no edges today
        _refuse_empty(table)
    found, chunks = table.schema(), table.chunks
    for role, column in (("graph.src", config.src), ("graph.dst", config.dst)):
        of_ids = one_for_all(role, column, len(config.edge_tables))
        held = id_type_of(found, chunks[0], column, role, fix=of_ids)
        ids = f"{config.id!r} of {node_table(config, table.ids[column])}"
        _check_same_type(held, nodes[table.ids[column]].id_type, chunks[0], column, ids)
    relation = list(config.edge_tables)[number]
    asked = config.edge_features_of(relation)
    if config.schema.is_typed and not isinstance(config.edge_features, Mapping):
        asked = tuple(name for name in asked if name in found.names)
    role = _role("graph.edge_features", config.edge_features, str(relation))
    kind, width = _label_of_edges(found, chunks, config, own)
    return EdgeSchema(
        src_type=nodes[table.ids[config.src]].id_type,
        dst_type=nodes[table.ids[config.dst]].id_type,
        has_weight=weight_is_number(found, chunks, config.weight),
        attributes=tuple(part_of(found, chunks, name, role) for name in asked),
        targets=targets,
        label_kind=kind,
        label_width=width,
        is_target=own is not None,
        has_split=own is not None and own.by_column,
        time=_time(found, chunks, config, relation) if targets is not None and targets.have_times else "",
        class_names=_class_names_of(chunks, config) if LABEL_KINDS[kind].has_classes else (),
    )


def _role(key: str, columns: Sequence[str] | Mapping[str, Sequence[str]], name: str) -> str:
    """Return the key of the config that names a table's columns."""
    return f"{key}.{name}" if isinstance(columns, Mapping) else key


def _refuse_empty(table: SourceTable) -> None:
    if all(chunk.num_rows == 0 for chunk in table.chunks):
        raise TableError("the table has no rows", where=table.uri, fix=f"Check {table.key}.")


def _features_there(found: pa.Schema, config: GraphConfig, node_type: int) -> tuple[str, ...]:
    """Return the feature columns to read: those asked of the type; none where a list for all types is not of it."""
    asked = config.features_of(config.schema.types[node_type])
    if config.schema.is_typed and not isinstance(config.features, Mapping):
        is_there = any(name in found.names or f"{name}_index" in found.names for name in asked)
        return asked if is_there else ()
    return asked


def _label_of_edges(
    found: pa.Schema, edges: Sequence[Chunk], config: GraphConfig, targets: EdgeTargets | None
) -> tuple[LabelKind, int]:
    """Return the kind and width of the labels of edges; raise TableError for what the table does not say of targets."""
    if targets is None:
        return "none", 0
    if targets.by_column:
        fix = "Set graph.split to one of them, or task.split to {kind: random}."
        field_of(found, edges[0], config.split, "graph.split, where task.split.kind is column", fix=fix)
        split_is_text(found, edges[0], config.split)
    if not targets.are_all_edges:
        return "link", 0
    if not targets.have_labels:
        return "none", 0
    if config.label_column not in found.names:
        raise TableError(
            f"has no column {config.label_column!r} (graph.label, where task.kind is edge); it has "
            f"{', '.join(found.names)}",
            where=edges[0].uri,
            fix="Set graph.label to one of them, or to null where edges are scored alone.",
        )
    return _label_of(found, edges, config)


def _time(found: pa.Schema, edges: Sequence[Chunk], config: GraphConfig, relation: Relation) -> str:
    """Return what the times of a relation's table are, "" where it has none.

    Raises TableError where it has none and joins the types that targets join: its edges may be those of the targets
    once more, turned round perhaps, and without times a target would be scored from itself.
    """
    target = config.target_edges
    if relation != target and config.timestamp not in found.names:
        if {relation.source, relation.target} != {target.source, target.target}:
            return ""
        raise TableError(
            f"has no column {config.timestamp!r} (graph.timestamp), and may list edges of {target} once more",
            where=edges[0].uri,
            fix="Write the column. An edge that was always there has the earliest time.",
        )
    of_times = one_for_all("graph.timestamp", config.timestamp, len(config.edge_tables))
    field = field_of(found, edges[0], config.timestamp, "graph.timestamp", fix=of_times)
    return "" if is_unknown(field, edges) else time_of(field, edges)


def node_table(config: GraphConfig, node_type: int) -> str:
    """Return what an error calls the node table of a type."""
    return f"the node table of {config.schema.types[node_type]}" if config.schema.is_typed else "the node table"


def _check_same_type(edges: IdType, nodes: IdType, chunk: Chunk, column: str, ids: str) -> None:
    if nodes != edges:
        raise TableError(
            f"column {column!r} holds {edges} ids, {ids} holds {nodes}",
            where=chunk.uri,
            fix="Write both tables with the same id type.",
        )


def _label_of(schema: pa.Schema, nodes: Sequence[Chunk], config: GraphConfig) -> tuple[LabelKind, int]:
    """Return the kind and the width of the label column; none and 0 where the table has none, or none is to be read."""
    if config.label_column not in schema.names:
        if config.label is not None and "label" in config.model_fields_set:
            field_of(schema, nodes[0], config.label_column, "graph.label")
        return "none", 0
    found = schema.field(config.label_column).type
    if pa.types.is_floating(found) and config.classes_given is not None:
        return "single", 1
    if holds_text(found) and config.classes is not None:
        return "single", 1
    for kind, is_of_kind in _LABEL_TYPES.items():
        if is_of_kind(found):
            width = list_width(found, nodes, config.label_column) if LABEL_KINDS[kind].is_list else 1
            _check_names(width, nodes[0], config, kind)
            return kind, width
    named = "List the names of classes in graph.classes. " if holds_text(found) else ""
    raise TableError(
        f"column {config.label_column!r} is {found}, not a label{text_at(schema.field(config.label_column))}",
        where=nodes[0].uri,
        fix=f"{named}Write classes as integers from 0, targets as floats, or several labels as lists of 0/1.",
    )


# How the label column of each kind is recognised by its type.
_LABEL_TYPES: dict[LabelKind, Callable[[pa.DataType], bool]] = {
    "single": lambda found: bool(pa.types.is_integer(found) or pa.types.is_boolean(found)),
    "regression": lambda found: bool(pa.types.is_floating(found)),
    "multi": lambda found: (
        holds_lists(found) and holds_numbers(found.value_type) and not pa.types.is_decimal(found.value_type)
    ),
}


def _check_names(width: int, chunk: Chunk, config: GraphConfig, kind: LabelKind) -> None:
    if LABEL_KINDS[kind].is_list and config.classes is not None and len(config.classes) != width:
        raise TableError(
            f"column {config.label_column!r} holds lists of {width}, and graph.classes names {len(config.classes)}",
            where=chunk.uri,
            fix="Name each place of the lists, in their order.",
        )


def _class_names_of(nodes: Sequence[Chunk], config: GraphConfig) -> tuple[str, ...]:
    """Return the names of the classes: the config's, or those that the table's metadata states, in all files alike."""
    if config.classes is not None:
        return config.classes
    names: tuple[str, ...] = ()
    for chunk in files_of(nodes):
        stated = (schema_of(chunk).metadata or {}).get(_CLASS_NAMES)
        if stated is None:
            continue
        found = _read_class_names(stated, chunk)
        if names and found != names:
            raise TableError(
                f"states other class names than the files before it: {', '.join(found[:5])} ...",
                where=f"{chunk.uri}, metadata label_classes",
                fix="Number classes the same way in all files of a table.",
            )
        names = found
    return names


def _read_class_names(stated: bytes, chunk: Chunk) -> tuple[str, ...]:
    try:
        names = json.loads(stated)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TableError(
            f"is {shown(stated)}, not a JSON list of names",
            where=f"{chunk.uri}, metadata label_classes",
            fix="Write one name per class, in the order of their numbers, or leave the metadata out.",
        )
    return tuple(names)
