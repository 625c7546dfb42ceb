"""The schema of each of the user's tables, read before any row.

Raises TableError with the file and column where a table breaks its contract. The label column's type says the kind of
labels, and the table's metadata may name classes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from gnnflow.graph.errors import TableError
from gnnflow.graph.labels import LABEL_KINDS, LabelKind
from gnnflow.graph.schema import qualified
from gnnflow.ingest.classes import holds_names
from gnnflow.ingest.fields import (
    ColumnPart,
    field_of,
    first_text,
    id_type_of,
    is_unknown,
    list_width,
    part_of,
    quoted,
    shared_name_fix,
    sparse_stem,
    sparse_width,
    split_is_text,
    weight_is_number,
)
from gnnflow.ingest.text import filter_columns
from gnnflow.ingest.times import time_of
from gnnflow.storage.user_tables import files_of, holds_lists, holds_numbers, holds_text, plain, schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.graph.facts import IdType
    from gnnflow.graph.schema import Relation
    from gnnflow.ingest.classes import FoundClasses
    from gnnflow.ingest.targets import DrawnSplit, EdgeTargets
    from gnnflow.ingest.text import SourceTable
    from gnnflow.storage.user_tables import Chunk

_CLASS_NAMES = b"label_classes"


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """Labels and splits of a table of nodes or edges; the defaults where its rows are no targets.

    class_names: from the config, the labels or the table's metadata, by class number, perhaps fewer or more than
    classes. labels_are_names: the label column holds these names. drawn: the shares of a random split, where no column
    says the splits.
    """

    label_kind: LabelKind = "none"
    label_width: int = 0
    has_split: bool = False
    class_names: tuple[str, ...] = ()
    labels_are_names: bool = False
    drawn: DrawnSplit | None = None

    @property
    def has_labels(self) -> bool:
        """True where a label column is read."""
        return LABEL_KINDS[self.label_kind].has_labels

    @property
    def reads_split(self) -> bool:
        """True where a column names the splits of targets."""
        return self.has_split and self.drawn is None


@dataclass(frozen=True, kw_only=True)
class NodeSchema(TableSchema):
    """A type's node table.

    Dense features are the concatenation of `features`; sparse ones are the columns `<sparse>_index`/`<sparse>_value`.
    is_target: the type's rows in the store have columns of labels and splits, perhaps without any value.
    """

    id_type: IdType = "int64"
    features: tuple[ColumnPart, ...] = ()
    sparse: str | None = None
    sparse_has_value: bool = False
    feature_width: int = 0
    is_target: bool = True

    @property
    def has_features(self) -> bool:
        """True where the type's nodes have features."""
        return self.sparse is not None or bool(self.features)

    @property
    def parts(self) -> tuple[ColumnPart, ...]:
        """The columns of dense features."""
        return self.features

    def with_parts(self, parts: tuple[ColumnPart, ...]) -> NodeSchema:
        """Return the schema with other columns of dense features."""
        return replace(self, features=parts, feature_width=sum(part.width for part in parts))

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The columns of features as the config names them."""
        return (self.sparse,) if self.sparse else tuple(part.name for part in self.features)


@dataclass(frozen=True, kw_only=True)
class EdgeSchema(TableSchema):
    """A relation's edge table.

    src_type, dst_type: the types of the ids of its ends. targets: set where edges of any table are targets; is_target:
    edges of this table are. time: the unit of edges' times, "" without; a table without targets has times where it has
    the column.
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
        """True where edges have times."""
        return bool(self.time)

    @property
    def parts(self) -> tuple[ColumnPart, ...]:
        """The columns of attributes."""
        return self.attributes

    def with_parts(self, parts: tuple[ColumnPart, ...]) -> EdgeSchema:
        """Return the schema with other columns of attributes."""
        return replace(self, attributes=parts)

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
    classes: FoundClasses | None = None,
) -> NodeSchema:
    """Return the schema of a type's node table. Reads schemas, and first rows where only these show a width.

    targets: set where edges are targets, so no node label is read. drawn: the random split of labelled nodes.
    classes: of the label column, where they were counted.
    """
    _refuse_empty(table)
    found, chunks = table.schema(), table.chunks
    config = config.of_type(config.schema.types[node_type])
    features = _features_there(found, config, node_type)
    sparse = sparse_stem(found, table, features, config)
    of_ids = shared_name_fix("graph.id", config.id_column, config.schema, config.schema.types[node_type])
    id_type = id_type_of(found, chunks[0], config.id_column, "graph.id", fix=of_ids)
    kind_name = config.schema.types[node_type]
    role, fix = _role("graph.features", config.features, kind_name), ""
    if is_shared(config.features, config):
        fix = f"Write the column, or give graph.features as {{type: columns}} with those that {kind_name} has."
    encodes = config.normalize != "row"
    owner = config.column_owner(kind_name, "nodes")
    dense = tuple(
        part_of(found, chunks, name, role, section=config.column_section(owner, name), encodes=encodes, fix=fix)
        for name in (() if sparse else features)
    )
    is_target = node_type in config.target_types
    is_labelled = is_target and targets is None and config.label is not None
    kind, width = _label_of(found, chunks, config, classes) if is_labelled else ("none", 0)
    drawn = drawn if is_labelled and LABEL_KINDS[kind].has_labels else None
    return NodeSchema(
        id_type=id_type,
        features=dense,
        sparse=sparse,
        sparse_has_value=sparse is not None and f"{sparse}_value" in found.names,
        feature_width=sparse_width(table, sparse, config) if sparse else sum(part.width for part in dense),
        label_kind=kind,
        label_width=width,
        has_split=drawn is not None or (is_labelled and split_is_text(found, chunks[0], config.split_column)),
        class_names=_class_names_of(chunks, config, classes) if LABEL_KINDS[kind].has_classes else (),
        labels_are_names=LABEL_KINDS[kind].is_class and _are_names(found, config, classes),
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
    classes: FoundClasses | None = None,
) -> EdgeSchema:
    """Return the schema of an edge table. nodes: the schemas of the node tables, in the order of the types.

    classes: of the label column of targets, where they were counted.
    """
    own = targets if targets is not None and targets.table == number else None
    if own is not None or not config.schema.is_typed:  # one of several relations may have no edges today
        _refuse_empty(table)
    found, chunks = table.schema(), table.chunks
    relation = list(config.edge_tables)[number]
    config = config.of_relation(relation)
    for role, column in (("graph.src", config.src_column), ("graph.dst", config.dst_column)):
        of_ids = shared_name_fix(role, column, config.schema, relation)
        # integers with nulls, as a foreign key has them, are floats where pandas wrote them
        is_float = column in found.names and pa.types.is_floating(found.field(column).type)
        is_key = is_float and config.edge_table_of(relation) is not None
        held = "int64" if is_key else id_type_of(found, chunks[0], column, role, fix=of_ids)
        id_column = config.of_type(config.schema.types[table.ids[column]]).id_column
        ids = f"{id_column!r} of {node_table(config, table.ids[column])}"
        _check_same_type(held, nodes[table.ids[column]].id_type, chunks[0], column, ids)
    for name in filter_columns(config, relation):
        key = f"graph.edges.{relation}.where"
        field_of(found, chunks[0], name, key, fix=f"Name one of them in {key}.")
    asked = config.edge_features_of(relation)
    if is_shared(config.edge_features, config):
        asked = tuple(name for name in asked if name in found.names)
    role = _role("graph.edge_features", config.edge_features, str(relation))
    owner = config.column_owner(relation, "edges")
    kind, width = _label_of_edges(found, chunks, config, own, classes)
    return EdgeSchema(
        src_type=nodes[table.ids[config.src_column]].id_type,
        dst_type=nodes[table.ids[config.dst_column]].id_type,
        has_weight=weight_is_number(found, chunks, config.weight_column),
        attributes=tuple(
            part_of(found, chunks, name, role, section=config.column_section(owner, name)) for name in asked
        ),
        targets=targets,
        label_kind=kind,
        label_width=width,
        is_target=own is not None,
        has_split=own is not None and own.by_column,
        time=_time(found, chunks, config, relation) if targets is not None and targets.have_times else "",
        class_names=_class_names_of(chunks, config, classes) if LABEL_KINDS[kind].has_classes else (),
        labels_are_names=LABEL_KINDS[kind].is_class and _are_names(found, config, classes),
    )


def is_shared(columns: Sequence[str] | Mapping[str, Sequence[str]], config: GraphConfig) -> bool:
    """Return whether one list of columns serves the tables of a typed graph, of which some may lack them."""
    return config.schema.is_typed and not isinstance(columns, Mapping)


def _role(key: str, columns: Sequence[str] | Mapping[str, Sequence[str]], name: str) -> str:
    """Return the key of the config that names a table's columns."""
    return f"{key}.{name}" if isinstance(columns, Mapping) else key


def _refuse_empty(table: SourceTable) -> None:
    if all(chunk.num_rows == 0 for chunk in table.chunks):
        raise TableError("the table has no rows", where=table.uri, fix=f"Check {table.key}.")


def _features_there(found: pa.Schema, config: GraphConfig, node_type: int) -> tuple[str, ...]:
    """Return a type's feature columns; none where a list that all types share names no column of its table."""
    asked = config.features_of(config.schema.types[node_type])
    is_there = any(name in found.names or f"{name}_index" in found.names for name in asked)
    return asked if is_there or not is_shared(config.features, config) else ()


def _label_of_edges(
    found: pa.Schema,
    edges: Sequence[Chunk],
    config: GraphConfig,
    targets: EdgeTargets | None,
    classes: FoundClasses | None,
) -> tuple[LabelKind, int]:
    """Return the kind and width of the labels of edges. Raises TableError where a column of targets is missing."""
    if targets is None:
        return "none", 0
    if targets.by_column:
        fix = "Set graph.split to one of them, or task.split to {kind: random}."
        field_of(found, edges[0], config.split_column, "graph.split, where task.split.kind is column", fix=fix)
        split_is_text(found, edges[0], config.split_column)
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
    return _label_of(found, edges, config, classes)


def _time(found: pa.Schema, edges: Sequence[Chunk], config: GraphConfig, relation: Relation) -> str:
    """Return the unit of times in a relation's table, "" where it has none.

    Raises TableError where it has none and joins the types that targets join: it may list the targets' edges again,
    perhaps reversed, and without times a target would be scored from itself.
    """
    target = config.target_edges
    if relation != target and config.time_column not in found.names:
        if {relation.source, relation.target} != {target.source, target.target}:
            return ""
        raise TableError(
            f"has no column {config.time_column!r} (graph.timestamp), and may list edges of {target} again",
            where=edges[0].uri,
            fix="Write the column. Give an edge that was always there the earliest time.",
        )
    of_times = shared_name_fix("graph.timestamp", config.time_column, config.schema, relation)
    field = field_of(found, edges[0], config.time_column, "graph.timestamp", fix=of_times)
    return "" if is_unknown(field, edges) else time_of(field, edges)


def node_table(config: GraphConfig, node_type: int) -> str:
    """Return what an error calls the node table of a type."""
    return qualified("the node table", config.schema.name_of(config.schema.types[node_type]), " of ")


def _check_same_type(edges: IdType, nodes: IdType, chunk: Chunk, column: str, ids: str) -> None:
    if nodes != edges:
        raise TableError(
            f"column {column!r} holds {edges} ids, {ids} holds {nodes}",
            where=chunk.uri,
            fix="Write both tables with the same id type.",
        )


def _label_of(
    schema: pa.Schema, nodes: Sequence[Chunk], config: GraphConfig, classes: FoundClasses | None
) -> tuple[LabelKind, int]:
    """Return the kind and width of the label column; none and 0 where none is read."""
    if config.label_column not in schema.names:
        if config.label is not None and "label" in config.model_fields_set:
            field_of(schema, nodes[0], config.label_column, "graph.label")
        return "none", 0
    found = plain(schema.field(config.label_column).type)
    is_counted = classes is not None or holds_names(found, config)
    if is_counted or (pa.types.is_floating(found) and config.classes_given is not None):
        return "single", 1
    for kind, is_of_kind in _LABEL_TYPES.items():
        if is_of_kind(found):
            width = list_width(found, nodes, config.label_column) if LABEL_KINDS[kind].is_list else 1
            _check_names(width, nodes[0], config, kind)
            return kind, width
    raise TableError(
        f"column {config.label_column!r} is {found}, not a label{first_text(schema.field(config.label_column))}",
        where=nodes[0].uri,
        fix="Write classes as text or as integers from 0, targets as floats, or several labels as lists of 0/1.",
    )


# the column types of each kind of label
_LABEL_TYPES: dict[LabelKind, Callable[[pa.DataType], bool]] = {
    "single": lambda found: bool(pa.types.is_integer(found) or pa.types.is_boolean(found)),
    "regression": lambda found: bool(pa.types.is_floating(found)),
    "multi": lambda found: (
        holds_lists(found) and holds_numbers(found.value_type) and not pa.types.is_decimal(found.value_type)
    ),
}


def _check_names(width: int, chunk: Chunk, config: GraphConfig, kind: LabelKind) -> None:
    if not LABEL_KINDS[kind].is_list:
        return
    if config.classes == "distinct" or config.unlabelled is not None:
        key = "classes: distinct" if config.classes == "distinct" else "unlabelled"
        raise TableError(
            f"column {config.label_column!r} holds lists, and graph.{key} is of labels that are single values",
            where=chunk.uri,
            fix="Leave the key out. A null is no label.",
        )
    if config.classes is not None and len(config.classes) != width:
        raise TableError(
            f"column {config.label_column!r} holds lists of {width}, and graph.classes names {len(config.classes)}",
            where=chunk.uri,
            fix="Name each place of the lists, in their order.",
        )


def _are_names(found: pa.Schema, config: GraphConfig, classes: FoundClasses | None) -> bool:
    """Return whether the label column holds names of classes."""
    return bool(classes.names) if classes else holds_text(found.field(config.label_column).type)


def _class_names_of(nodes: Sequence[Chunk], config: GraphConfig, classes: FoundClasses | None) -> tuple[str, ...]:
    """Return the names of the classes: listed, found, or from the metadata, which is the same in all files."""
    if isinstance(config.classes, tuple):
        return config.classes
    if classes is not None and not classes.are_numbers:
        return classes.names
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
            f"is {quoted(stated)}, not a JSON list of names",
            where=f"{chunk.uri}, metadata label_classes",
            fix="Write one name per class, in the order of their numbers, or leave the metadata out.",
        )
    return tuple(names)
