"""The schema of each of the user's tables, read before any row.

Raises TableError with the file and column where a table breaks its contract. `label_schema.py` reads the label column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from gnnflow.config.graph_section import GraphConfig
from gnnflow.graph.errors import TableError
from gnnflow.graph.labels import LABEL_KINDS, LabelKind
from gnnflow.graph.made_features import DEGREE_FEATURES, ID_FEATURES
from gnnflow.graph.schema import qualified
from gnnflow.ingest.fields import (
    ColumnPart,
    field_of,
    id_type_of,
    is_unknown,
    shared_name_fix,
    sparse_stem,
    sparse_width,
    split_is_text,
    weight_is_number,
)
from gnnflow.ingest.kinds import KindsAsked, parts_of
from gnnflow.ingest.label_schema import are_names, class_names_of, label_of
from gnnflow.ingest.text import filter_columns
from gnnflow.ingest.times import time_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gnnflow.graph.facts import IdType
    from gnnflow.graph.schema import Relation
    from gnnflow.ingest.classes import FoundClasses
    from gnnflow.ingest.targets import DrawnSplit, EdgeTargets
    from gnnflow.ingest.text import SourceTable
    from gnnflow.storage.user_tables import Chunk

LABEL_OF_EDGES = "graph.label, where task.kind is edge"


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """Labels and splits of a table of nodes or edges; the defaults where its rows are no targets.

    class_names: from the config, the labels or the table's metadata, by class number, perhaps fewer or more than
    classes. labels_are_names: the label column holds these names. drawn: the shares of a split that is made, where no
    column says the splits.
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
    is_target: the type's rows in the store have columns of labels and splits, perhaps without any value. feature_width:
    of the table's features. degrees: each row of the store has its degrees after them. embeddings: the rows of a table
    of embeddings by id, in place of features; 0 without.
    """

    id_type: IdType = "int64"
    features: tuple[ColumnPart, ...] = ()
    sparse: str | None = None
    sparse_has_value: bool = False
    feature_width: int = 0
    is_target: bool = True
    degrees: bool = False
    embeddings: int = 0

    @property
    def stored_width(self) -> int:
        """Width of the features in the store."""
        return self.embeddings or self.feature_width + (len(DEGREE_FEATURES) if self.degrees else 0)

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """The columns that are read, with those that ingest makes."""
        if self.embeddings:
            return ID_FEATURES
        return (*self.columns_read, *DEGREE_FEATURES) if self.degrees else self.columns_read

    @property
    def is_sparse(self) -> bool:
        """True where the features in the store are sparse."""
        return self.sparse is not None or self.embeddings > 0

    @property
    def has_features(self) -> bool:
        """True where the type's table has features."""
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
    id_type: IdType | None = None,
) -> NodeSchema:
    """Return the schema of a type's node table. Reads schemas, and first rows where only these show a width.

    targets: set where edges are targets, so no node label is read. drawn: the split of labelled nodes that is made.
    classes: of the label column, where they were counted. id_type: of ids that are not looked at.
    """
    _refuse_empty(table)
    found, chunks = table.schema(), table.chunks
    config = config.of_type(config.schema.types[node_type])
    features = features_there(found, config, node_type)
    sparse = sparse_stem(found, table, features, config)
    of_ids = shared_name_fix("graph.id", config.id_column, config.schema, config.schema.types[node_type])
    id_type = id_type or id_type_of(found, chunks[0], config.id_column, "graph.id", fix=of_ids)
    kind_name = config.schema.types[node_type]
    role, fix = role_of("graph.features", config.features, kind_name), features_fix(config, kind_name)
    asked = KindsAsked.of(config, kind_name, "nodes", encodes=config.normalize != "row")
    dense = () if sparse else parts_of(found, chunks, features, role, asked=asked, fix=fix)
    is_target = node_type in config.target_types
    is_labelled = is_target and targets is None and config.label is not None
    kind, width = label_of(found, chunks, config, classes) if is_labelled else ("none", 0)
    has_labels = is_labelled and LABEL_KINDS[kind].has_labels
    if has_labels:
        _refuse_without_classes(drawn, kind, table, config)
    drawn = _split_of(drawn, table) if has_labels else None
    return NodeSchema(
        id_type=id_type,
        features=dense,
        sparse=sparse,
        sparse_has_value=sparse is not None and f"{sparse}_value" in found.names,
        feature_width=sparse_width(table, sparse, config) if sparse else sum(part.width for part in dense),
        label_kind=kind,
        label_width=width,
        has_split=drawn is not None
        or (LABEL_KINDS[kind].has_labels and split_is_text(found, chunks[0], config.split_column)),
        class_names=class_names_of(chunks, config, classes) if LABEL_KINDS[kind].has_classes else (),
        labels_are_names=LABEL_KINDS[kind].is_class and are_names(found, config, classes),
        is_target=is_target,
        drawn=drawn,
        degrees=_adds_degrees(config, kind_name, sparse),
        embeddings=_embeddings_of(config, kind_name, (sparse,) if sparse else features, table),
    )


def _embeddings_of(config: GraphConfig, node_type: str, features: Sequence[str], table: SourceTable) -> int:
    """Return the rows of a type's table of embeddings, 0 without. Raises TableError where it has features too."""
    rows = config.id_embeddings.get(node_type, 0)
    if rows and features:
        raise TableError(
            f"has the feature column {features[0]!r}, and graph.id_embeddings.{node_type} is for types without any",
            where=table.uri,
            fix=f"Leave out graph.id_embeddings.{node_type}, or give graph.features as {{TYPE: columns}} without it.",
        )
    return rows


def _adds_degrees(config: GraphConfig, node_type: str, sparse: str | None) -> bool:
    """Return whether a type's nodes get their degrees as features. Raises TableError where these are sparse."""
    if not config.has_degree_features(node_type):
        return False
    if sparse is not None:
        fix = "Leave it out: degrees are columns of dense features."
        if config.schema.is_typed:
            fix = "Give {TYPE: true} for types with dense features, or with none: degrees are dense columns."
        raise TableError(
            f"the column {sparse!r} of {node_table(config, config.schema.types.index(node_type))} is sparse",
            where="graph.degree_features",
            fix=fix,
        )
    return True


def features_fix(config: GraphConfig, node_type: str) -> str:
    """Return the fix for a feature that a type's table has not; empty for the usual one."""
    if is_shared(config.features, config):
        return f"Write the column, or give graph.features as {{type: columns}} with those that {node_type} has."
    is_default = config.features == GraphConfig.model_fields["features"].default
    return "Set graph.features: all, or name the columns that are features." if is_default else ""


def _refuse_without_classes(drawn: DrawnSplit | None, kind: LabelKind, table: SourceTable, config: GraphConfig) -> None:
    """Raise TableError for a split by class of labels that are no classes."""
    if drawn is not None and drawn.kind == "stratified" and not LABEL_KINDS[kind].is_class:
        raise TableError(
            f"column {config.label_column!r} holds {'numbers to predict' if kind == 'regression' else 'lists'}, and a "
            "stratified split is by class",
            where=table.uri,
            fix="Set task.split to {kind: random}.",
        )


def _split_of(drawn: DrawnSplit | None, table: SourceTable) -> DrawnSplit | None:
    """Return a split with the meaning of its times. Raises TableError where the table cannot have it."""
    if drawn is None or not drawn.column:
        return drawn
    field = field_of(table.schema(), table.chunks[0], drawn.column, "task.split.column")
    return drawn if is_unknown(field, table.chunks) else replace(drawn, unit=time_of(field, table.chunks))


def implied_node_schema(edges: Sequence[SourceTable], config: GraphConfig, *, node_type: int) -> NodeSchema:
    """Return the schema of a type without a table: the ids of its nodes are in these edge tables."""
    table, column = next((table, name) for table in edges for name, of in table.ids.items() if of == node_type)
    id_type = end_type(table, table.schema(), column, "graph.src or graph.dst")
    return NodeSchema(
        id_type=id_type,
        is_target=node_type in config.target_types,
        degrees=config.has_degree_features(config.schema.types[node_type]),
        embeddings=config.id_embeddings.get(config.schema.types[node_type], 0),
    )


def end_type(table: SourceTable, found: pa.Schema, column: str, role: str, *, fix: str = "") -> IdType:
    """Return the type of the ids in a column of an edge table.

    Integers with nulls, as a foreign key has them, are floats where pandas wrote them.
    """
    if column in table.foreign and column in found.names and pa.types.is_floating(found.field(column).type):
        return "int64"
    return id_type_of(found, table.chunks[0], column, role, fix=fix)


def read_edge_schema(
    table: SourceTable,
    config: GraphConfig,
    *,
    nodes: Sequence[NodeSchema],
    number: int = 0,
    targets: EdgeTargets | None = None,
    classes: FoundClasses | None = None,
    reads_ends: bool = True,
) -> EdgeSchema:
    """Return the schema of an edge table. nodes: the schemas of the node tables, in the order of the types.

    classes: of the label column of targets, where they were counted. reads_ends: look at the columns of ids too.
    """
    own = targets if targets is not None and targets.table == number else None
    if own is not None or not config.schema.is_typed:  # one of several relations may have no edges today
        _refuse_empty(table)
    found, chunks = table.schema(), table.chunks
    relation = list(config.edge_tables)[number]
    config = config.of_relation(relation)
    for end in ends_of(config, relation) if reads_ends else ():
        held = end_type(table, found, end.column, end.key, fix=end.fix)
        check_end_type(held, nodes[table.ids[end.column]], table, end.column, config)
    for name in filter_columns(config, relation):
        key = f"graph.edges.{relation}.where"
        field_of(found, chunks[0], name, key, fix=f"Name one of them in {key}.")
    asked = config.edge_feature_names(relation, found.names)
    if is_shared(config.edge_features, config):
        asked = tuple(name for name in asked if name in found.names)
    role = role_of("graph.edge_features", config.edge_features, str(relation))
    check_split_of_edges(found, chunks, config, own)
    kind, width = label_of_edges(found, chunks, config, own, classes)
    if own is not None:
        _refuse_without_classes(own.drawn, kind, table, config)
    return EdgeSchema(
        src_type=nodes[table.ids[config.src_column]].id_type,
        dst_type=nodes[table.ids[config.dst_column]].id_type,
        has_weight=weight_is_number(found, chunks, config.weight_column),
        attributes=parts_of(found, chunks, asked, role, asked=KindsAsked.of(config, relation, "edges")),
        targets=targets,
        label_kind=kind,
        label_width=width,
        is_target=own is not None,
        has_split=own is not None and own.by_column,
        time=time_of_edges(found, chunks, config, relation) if targets is not None and targets.have_times else "",
        class_names=class_names_of(chunks, config, classes) if LABEL_KINDS[kind].has_classes else (),
        labels_are_names=LABEL_KINDS[kind].is_class and are_names(found, config, classes),
    )


class EndColumn(NamedTuple):
    """The column of one end of a relation's edges, and the key of the config that names it.

    fix: for a missing column; empty for the usual one.
    """

    column: str
    key: str
    fix: str


def ends_of(config: GraphConfig, relation: Relation) -> tuple[EndColumn, EndColumn]:
    """Return the columns of sources and destinations. config: as the relation's table is read by it."""
    table = config.edge_table_of(relation)

    def end(name: str, column: str) -> EndColumn:
        if table is not None and getattr(table, name) is not None:
            return EndColumn(column, f"graph.edges.{relation}.{name}", "")
        key = f"graph.{name}"
        return EndColumn(column, key, shared_name_fix(key, column, config.schema, relation))

    return end("src", config.src_column), end("dst", config.dst_column)


def is_shared(columns: Sequence[str] | Mapping[str, Sequence[str]], config: GraphConfig) -> bool:
    """Return whether one list of columns serves the tables of a typed graph, of which some may lack them."""
    return config.schema.is_typed and not isinstance(columns, Mapping)


def role_of(key: str, columns: Sequence[str] | Mapping[str, Sequence[str]], name: str) -> str:
    """Return the key of the config that names a table's columns."""
    return f"{key}.{name}" if isinstance(columns, Mapping) else key


def _refuse_empty(table: SourceTable) -> None:
    if all(chunk.num_rows == 0 for chunk in table.chunks):
        raise TableError("the table has no rows", where=table.uri, fix=f"Check {table.key}.")


def features_there(found: pa.Schema, config: GraphConfig, node_type: int) -> tuple[str, ...]:
    """Return a type's feature columns; none where a list that all types share names no column of its table."""
    asked = config.feature_names(config.schema.types[node_type], found.names)
    if not asked and not config.schema.is_typed and config.features_of(config.schema.types[node_type]):
        patterns, held = ", ".join(config.features_of(config.schema.types[node_type])), ", ".join(found.names)
        less = f", less those of graph.exclude ({', '.join(config.exclude)})" if config.exclude else ""
        fix = f"Its columns are: {held}; name one that is not the id, the label or the split."
        raise TableError(f"no column matches {patterns}{less}", where="graph.features", fix=fix)
    return asked if are_there(asked, found.names) or not is_shared(config.features, config) else ()


def are_there(features: Sequence[str], names: Collection[str]) -> bool:
    """Return whether a table with columns of these names has any of the features, dense or sparse."""
    return any(name in names or f"{name}_index" in names for name in features)


def check_split_of_edges(
    found: pa.Schema, edges: Sequence[Chunk], config: GraphConfig, targets: EdgeTargets | None
) -> None:
    """Raise TableError where the column of splits of targets is missing, or no text."""
    if targets is not None and targets.by_column:
        fix = "Set graph.split to one of them, or task.split to {kind: random}."
        field_of(found, edges[0], config.split_column, "graph.split, where task.split.kind is column", fix=fix)
        split_is_text(found, edges[0], config.split_column)


def label_of_edges(
    found: pa.Schema,
    edges: Sequence[Chunk],
    config: GraphConfig,
    targets: EdgeTargets | None,
    classes: FoundClasses | None,
) -> tuple[LabelKind, int]:
    """Return the kind and width of the labels of edges. Raises TableError where a column of targets is missing."""
    if targets is None:
        return "none", 0
    if not targets.are_all_edges:
        return "link", 0
    if not targets.have_labels:
        return "none", 0
    fix = "Set graph.label to one of them, or to null where edges are scored alone."
    field_of(found, edges[0], config.label_column, LABEL_OF_EDGES, fix=fix)
    return label_of(found, edges, config, classes)


def time_of_edges(found: pa.Schema, edges: Sequence[Chunk], config: GraphConfig, relation: Relation) -> str:
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


def check_end_type(held: IdType, nodes: NodeSchema, table: SourceTable, column: str, config: GraphConfig) -> None:
    """Raise TableError where a column of ids in an edge table has another type than the ids of its nodes."""
    if nodes.id_type != held:
        ids = config.of_type(config.schema.types[table.ids[column]]).id_column
        raise TableError(
            f"column {column!r} holds {held} ids, {ids!r} of {node_table(config, table.ids[column])} holds "
            f"{nodes.id_type}",
            where=table.chunks[0].uri,
            fix="Write both tables with the same id type.",
        )
