"""What the user's tables hold, read from their schemas before any row is: one schema per table.

Raises TableError with the file and column where a table breaks its contract.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.errors import TableError
from gnnflow.graph.labels import LABEL_KINDS, LabelKind
from gnnflow.ingest.fields import (
    ColumnPart,
    agreed_schema,
    check_list_of,
    check_time,
    field_of,
    files_of,
    holds_lists,
    holds_numbers,
    id_type_of,
    list_width,
    part_of,
    split_is_text,
    text_at,
    weight_is_number,
)
from gnnflow.storage.user_tables import read_chunk, schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.graph.facts import IdType
    from gnnflow.graph.schema import Relation
    from gnnflow.ingest.targets import EdgeTargets
    from gnnflow.ingest.text import SourceTable
    from gnnflow.storage.user_tables import Chunk

_FEATURE_DIM = b"feature_dim"
_CLASS_NAMES = b"label_classes"
_WIDTH = re.compile(rb"[0-9]{1,10}")
_MAX_WIDTH = 2**31 - 1
_MAX_FOUND_WIDTH = 1 << 24  # wider only where someone says so: a model has a row of weights per feature


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """What a table of nodes or of edges says of targets; nothing where its rows are none.

    class_names are those the table's metadata states, by class number; there may be fewer or more than classes.
    """

    label_kind: LabelKind = "none"
    label_width: int = 0
    has_split: bool = False
    class_names: tuple[str, ...] = ()

    @property
    def has_labels(self) -> bool:
        """Whether the table has a label column that is read."""
        return LABEL_KINDS[self.label_kind].has_labels


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


@dataclass(frozen=True, kw_only=True)
class EdgeSchema(TableSchema):
    """How to read a relation's edge table.

    src_type, dst_type: of the ids of its ends. targets: where edges are, of this table or another one; is_target: of
    this. has_time: edges have times; those of another table than the targets' have them where it has the column.
    """

    src_type: IdType = "int64"
    dst_type: IdType = "int64"
    has_weight: bool = False
    attributes: tuple[ColumnPart, ...] = ()
    targets: EdgeTargets | None = None
    is_target: bool = False
    has_time: bool = False

    @property
    def attribute_width(self) -> int:
        """Width of the edge attributes; 0 where there are none."""
        return sum(part.width for part in self.attributes)


def read_node_schema(
    table: SourceTable, config: GraphConfig, *, node_type: int = 0, targets: EdgeTargets | None = None
) -> NodeSchema:
    """Return how to read a type's node table. Reads schemas, and first rows where a width is only in the rows.

    targets: where edges are, so that no label of a node is read.
    """
    _refuse_empty(table)
    found, chunks = agreed_schema(table), table.chunks
    features = _features_there(found, config, node_type)
    sparse = _sparse_stem(found, table, features, config)
    id_type = id_type_of(found, chunks[0], config.id, "graph.id")
    role = _role("graph.features", config.features, config.schema.types[node_type])
    dense = () if sparse else tuple(part_of(found, chunks, name, role) for name in features)
    is_target = node_type in config.target_types
    kind, width = _label(found, chunks, config) if is_target and targets is None else ("none", 0)
    return NodeSchema(
        id_type=id_type,
        features=dense,
        sparse=sparse,
        sparse_has_value=sparse is not None and f"{sparse}_value" in found.names,
        feature_width=_sparse_width(table, sparse, config) if sparse else sum(part.width for part in dense),
        label_kind=kind,
        label_width=width,
        has_split=is_target and targets is None and split_is_text(found, chunks[0], config.split),
        class_names=_class_names(chunks) if LABEL_KINDS[kind].has_classes else (),
        is_target=is_target,
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
    _refuse_empty(table)
    found, chunks = agreed_schema(table), table.chunks
    for role, column in (("graph.src", config.src), ("graph.dst", config.dst)):
        held = id_type_of(found, chunks[0], column, role)
        ids = f"{config.id!r} of {node_table(config, table.ids[column])}"
        _check_same_type(held, nodes[table.ids[column]].id_type, chunks[0], column, ids)
    relation = list(config.edge_tables)[number]
    asked = config.edge_features_of(relation)
    if config.schema.is_typed and not isinstance(config.edge_features, Mapping):
        asked = tuple(name for name in asked if name in found.names)
    role = _role("graph.edge_features", config.edge_features, str(relation))
    own = targets if targets is not None and targets.table == number else None
    kind, width = _label_of_edges(found, chunks, config, own)
    return EdgeSchema(
        src_type=nodes[table.ids[config.src]].id_type,
        dst_type=nodes[table.ids[config.dst]].id_type,
        has_weight=weight_is_number(found, chunks[0], config.weight),
        attributes=tuple(part_of(found, chunks, name, role) for name in asked),
        targets=targets,
        label_kind=kind,
        label_width=width,
        is_target=own is not None,
        has_split=own is not None and own.by_column,
        has_time=targets is not None and targets.have_times and _has_time(found, chunks, config, relation),
        class_names=_class_names(chunks) if LABEL_KINDS[kind].has_classes else (),
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
        field_of(found, edges[0], config.split, "graph.split, where task.split.kind is column")
        split_is_text(found, edges[0], config.split)
    if not targets.have_labels:
        return "link", 0
    field_of(found, edges[0], config.label, "graph.label, where task.kind is edge")
    return _label(found, edges, config)


def _has_time(found: pa.Schema, edges: Sequence[Chunk], config: GraphConfig, relation: Relation) -> bool:
    """Return whether a relation's table has times.

    Raises TableError where it has none and joins the types that targets join: its edges may be those of the targets
    once more, turned round perhaps, and without times a target would be scored from itself.
    """
    target = config.target_edges
    if relation != target and config.timestamp not in found.names:
        if {relation.source, relation.target} != {target.source, target.target}:
            return False
        raise TableError(
            f"has no column {config.timestamp!r} (graph.timestamp), and may list edges of {target} once more",
            where=edges[0].uri,
            fix="Write the column. An edge that was always there has the earliest time.",
        )
    check_time(field_of(found, edges[0], config.timestamp, "graph.timestamp"), edges[0])
    return True


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


def _sparse_stem(schema: pa.Schema, table: SourceTable, features: Sequence[str], config: GraphConfig) -> str | None:
    stems = [name for name in features if name not in schema.names and f"{name}_index" in schema.names]
    if stems and len(features) > 1:
        raise TableError(
            f"graph.features mixes the sparse column {stems[0]!r} with others",
            where=table.uri,
            fix="Use one sparse feature, or dense columns only.",
        )
    if stems and config.normalize == "standard":
        raise TableError(
            "normalize: standard would make sparse features dense",
            where=table.uri,
            fix="Use normalize: row or none for x_index/x_value.",
        )
    if not stems:
        return None
    check_list_of(schema, table.chunks[0], f"{stems[0]}_index", pa.types.is_integer, "integers")
    if f"{stems[0]}_value" in schema.names:
        check_list_of(schema, table.chunks[0], f"{stems[0]}_value", holds_numbers, "numbers")
    return stems[0]


def _sparse_width(table: SourceTable, stem: str, config: GraphConfig) -> int:
    if config.feature_dim is not None:
        return config.feature_dim
    stated = {width for chunk in files_of(table.chunks) if (width := _stated_width(chunk)) is not None}
    if len(stated) > 1:
        raise TableError(
            f"files state different widths: {', '.join(map(str, sorted(stated)))}",
            where=f"{table.uri}, metadata feature_dim",
            fix="Write one, or set graph.feature_dim.",
        )
    if stated:
        return stated.pop()
    width = 1
    for chunk in table.chunks:
        largest = pc.max(pc.list_flatten(read_chunk(chunk, [f"{stem}_index"]).column(0))).as_py()
        if largest is not None and largest >= _MAX_FOUND_WIDTH:
            raise TableError(
                f"column {stem + '_index'!r}: the largest index is {largest:,}",
                where=chunk.place,
                fix="Number features from 0 without gaps, or set graph.feature_dim (up to 2147483647).",
            )
        width = max(width, 1 + (largest or 0))
    return width


def _stated_width(chunk: Chunk) -> int | None:
    stated = (schema_of(chunk).metadata or {}).get(_FEATURE_DIM)
    if stated is None:
        return None
    if not _WIDTH.fullmatch(stated) or not 0 < int(stated) <= _MAX_WIDTH:
        raise TableError(
            f"is {_shown(stated)}, not a width from 1 to {_MAX_WIDTH}",
            where=f"{chunk.uri}, metadata feature_dim",
            fix="Write the number of feature columns, or set graph.feature_dim.",
        )
    return int(stated)


def _shown(stated: bytes) -> str:
    return repr(stated[:60].decode(errors="replace"))


def _label(schema: pa.Schema, nodes: Sequence[Chunk], config: GraphConfig) -> tuple[LabelKind, int]:
    if config.label not in schema.names:
        if "label" in config.model_fields_set:
            field_of(schema, nodes[0], config.label, "graph.label")
        return "none", 0
    found = schema.field(config.label).type
    if pa.types.is_floating(found) and config.num_classes is not None:
        return "single", 1
    for kind, is_of_kind in _LABEL_TYPES.items():
        if is_of_kind(found):
            return kind, list_width(found, nodes, config.label) if LABEL_KINDS[kind].is_list else 1
    raise TableError(
        f"column {config.label!r} is {found}, not a label{text_at(schema.field(config.label))}",
        where=nodes[0].uri,
        fix="Write classes as integers from 0, targets as floats, or several labels as lists of 0/1.",
    )


# How the label column of each kind is recognised by its type.
_LABEL_TYPES: dict[LabelKind, Callable[[pa.DataType], bool]] = {
    "single": lambda found: bool(pa.types.is_integer(found) or pa.types.is_boolean(found)),
    "regression": lambda found: bool(pa.types.is_floating(found)),
    "multi": lambda found: holds_lists(found) and holds_numbers(found.value_type),
}


def _class_names(nodes: Sequence[Chunk]) -> tuple[str, ...]:
    """Return the names of the classes that the node table's metadata states; all files that state any must agree."""
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
            f"is {_shown(stated)}, not a JSON list of names",
            where=f"{chunk.uri}, metadata label_classes",
            fix="Write one name per class, in the order of their numbers, or leave the metadata out.",
        )
    return tuple(names)
