"""The keys of the `graph` section, and the types, relations and tables that they name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from gnnflow.config.base import Column, Integer, Number, PublishedName, Section, Uri
from gnnflow.config.column_names import ColumnNames
from gnnflow.config.columns_section import ColumnSections
from gnnflow.config.edge_tables import ColumnValue, EdgeTableConfig, EdgeTables
from gnnflow.config.formats_section import CsvFormat
from gnnflow.graph.schema import UNTYPED, GraphSchema, Relation

_TypedTables = Annotated[dict[str, Uri | None], Field(min_length=1)]
_TypedColumns = Annotated[dict[str, tuple[Column, ...]], Field(min_length=1)]
# Keys that were added later: left at these defaults they do not change the bytes of earlier fingerprints.
_LATER_DEFAULTS: tuple[tuple[str, Any], ...] = (
    ("target", None),
    ("classes", None),
    ("unlabelled", None),
    ("edge_normalize", "none"),
    ("scaled_as", None),
    ("max_bad_rows", 0.01),
    ("columns", {}),
    ("exclude", ()),
    ("exclude", []),
    ("formats", {}),
    ("storage", "float32"),
    ("degree_features", False),
    ("id_embeddings", {}),
)
_ALL = ("*",)


class GraphKeys(Section):
    """The keys of a graph's tables and of the layout of its store. `GraphConfig` says what they mean for one table."""

    nodes: Uri | _TypedTables = Field(
        description="Node table: path or URL of Parquet, CSV or Arrow IPC; for typed graphs {type: path}, where a type "
        "with null is the ids in its edge tables. Relative paths in a file are relative to that file's folder."
    )
    edges: Uri | EdgeTables = Field(
        description="Edge table: a path or URL; for typed graphs a map {source__relation__target: path}. Instead of a "
        "path {table: path or node type, src: column, dst: column, where: {column: value}} reads a foreign key of a "
        "node table, or the rows of a shared table with a value; rows without one of the ends are no edges then."
    )
    id: ColumnNames = Field(
        "id",
        description="Node table column that identifies a node (int64 or string). This and the other names of columns "
        "are one name for all tables, or for typed graphs a map {type: column} or {source__relation__target: column}.",
    )
    src: ColumnNames = Field("src", description="Edge table column with the id of the node an edge starts at.")
    dst: ColumnNames = Field("dst", description="Edge table column with the id of the node an edge points to.")
    label: ColumnNames | None = Field(
        "label",
        description="Node table column with the label: int, float, or a list for multi-label. Where task.kind is edge, "
        "of the edge table. null: none is read, for a graph that is scored alone.",
    )
    split: ColumnNames = Field(
        "split",
        description="Node table column that says train, valid, test or null; of the edge table where task.split says "
        "column.",
    )
    timestamp: ColumnNames = Field(
        "timestamp",
        description="Edge table column with an edge's time: integers, dates, timestamps, or text of ISO dates and "
        "times; read where task.split asks for it.",
    )
    weight: Column | Annotated[dict[str, Column | None], Field(min_length=1)] | None = Field(
        "weight",
        description="Edge table column with edge weights; used where the column exists. null: none is read, and a "
        "column called weight may be an attribute; in a map for that relation.",
    )
    target: str | None = Field(
        None,
        min_length=1,
        description="The node type that is labelled and scored, or where task.kind is link or edge the relation "
        "(source__relation__target); required where there are several.",
    )
    features: Annotated[tuple[Column, ...], Field(min_length=1)] | _TypedColumns = Field(
        ("x",),
        description="Node feature columns: a fixed-size list, scalars, or x for sparse x_index/x_value. For typed "
        "graphs also {type: columns}, where a type that is left out or has an empty list has no features; of one list "
        "for all, a type whose table has none of these columns has none. A shell pattern (amt_*) stands for the "
        "columns it matches, and all for every column without another role.",
    )
    degree_features: bool | Annotated[dict[str, bool], Field(min_length=1)] = Field(
        default=False,
        description="Add two feature columns to each node, log1p of its in-degree and of its out-degree, which "
        "graph.normalize does not scale; in a typed graph degrees in all relations, and {type: true} adds them to some "
        "types. They count the edges that carry messages, so no held-out link.",
    )
    id_embeddings: dict[str, Annotated[Integer, Field(ge=2, le=2**31 - 1)]] = Field(
        {},
        description="Types without feature columns whose nodes get a learned vector by their ids, {type: rows}: each "
        "id reads the sum of two rows, which its hash chooses, of a table of this many rows. Twice the type's nodes "
        "tell almost all of them apart. Where there are types, of which one is enough.",
    )
    edge_features: tuple[Column, ...] | _TypedColumns = Field(
        (),
        description="Edge table columns that become edge attributes: a list, of which each relation of a typed graph "
        "reads those its table has, or {source__relation__target: columns}; with patterns as in features.",
    )
    columns: ColumnSections = Field(
        {},
        description="Kinds of columns where their types do not say them, and how each is encoded: {column: {kind: "
        "categorical}}. A name may have its type or relation before it (user.country), or nodes or edges.",
    )
    exclude: tuple[Column, ...] = Field(
        (), description="Shell patterns of columns that patterns of features and edge_features leave out."
    )
    formats: dict[str, CsvFormat] = Field(
        {},
        description="Forms of CSV tables that their first lines do not show: {nodes: {...}, edges: {...}}, for typed "
        "graphs by type and relation. What is left out is found in the file.",
    )
    feature_dim: Integer | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        description="Width of sparse features; null reads it from the table's schema or its largest index.",
    )
    num_classes: Integer | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Number of classes; null takes the largest label plus one. Labels written as floats are classes "
        "where it is given, otherwise numbers to predict.",
    )
    classes: Annotated[tuple[Column, ...], Field(min_length=2)] | Literal["distinct", "whole"] | None = Field(
        None,
        description="Names of the classes, in the order of their numbers: what a label column of text holds, and what "
        "the report and predictions call them. distinct: every label that the column holds is a class, up to 1,000, "
        "numbers too; in sorted order, of two the rarer one as class 1. whole: distinct for floats that are whole "
        "numbers, 20 different ones at most. null: distinct for text, whole for floats where train.metric is not "
        "of numbers; else integers are class numbers and floats numbers to predict.",
    )
    unlabelled: tuple[ColumnValue, ...] | None = Field(
        None, description="Values of the label column, text or numbers, that mean no label, as null does."
    )
    normalize: Literal["none", "row", "standard"] = Field(
        "none",
        description="Scaling of node features: row divides each row by the sum of its magnitudes, standard makes each "
        "column mean 0 and variance 1.",
    )
    edge_normalize: Literal["none", "standard"] = Field(
        "none",
        description="Scaling of edge attributes: standard makes each column of an edge table mean 0 and variance 1.",
    )
    storage: Literal["float32", "float16", "bfloat16", "int8", "int4"] = Field(
        "float32",
        description="How dense node features are stored and read from then on, by every stage: as float32; rounded to "
        "float16 or bfloat16, of half the bytes; or as one of 256 (int8) or 16 (int4) steps between a column's "
        "smallest and largest number, of a quarter or an eighth. The report says each column's error.",
    )
    scaled_as: PublishedName | None = Field(
        None,
        description="A published model (NAME, NAME/VERSION): columns are encoded, and scaled by standard, as they were "
        "for it, instead of by these tables' own values, means and variances.",
    )
    partitions: Integer | None = Field(
        None,
        ge=1,
        le=65536,
        description="Number of partitions of the graph store; null takes 4, or as many as keep a partition's part of "
        "the tables within a sixteenth of cluster.memory_limit.",
    )
    on_bad_rows: Literal["fail", "quarantine"] = Field(
        "fail",
        description="fail stops at the first bad row; quarantine writes bad rows to a table and counts them.",
    )
    max_bad_rows: Number = Field(
        0.01, ge=0, le=1, description="Largest share of a table's rows that may be quarantined; 1 allows all."
    )
    reverse_edges: bool = Field(
        default=False,
        description="Also add every edge in the opposite direction, with the same weight and attributes; a self-loop "
        "stays one. In a typed graph the reverse edges of a__likes__b, loops too, become a relation b__rev_likes__a.",
    )

    @property
    def schema(self) -> GraphSchema:  # type: ignore[override]  # pydantic's own `schema` is deprecated and gone in 3
        """The graph's types and relations, the reverse ones included."""
        return GraphSchema.of(self.node_tables, [*self.edge_tables, *self.reverses.values()])

    @property
    def node_tables(self) -> dict[str, str]:
        """The node table of each type, in the order of the types' names; empty for a type without one."""
        if isinstance(self.nodes, str):
            return {UNTYPED.types[0]: self.nodes}
        return {name: uri or "" for name, uri in sorted(self.nodes.items())}

    @property
    def edge_tables(self) -> dict[Relation, str]:
        """The edge table of each relation that has one, in the order of the relations' names."""
        if isinstance(self.edges, str):
            return {UNTYPED.relations[0]: self.edges}
        parsed = ((Relation.parse(name), table) for name, table in sorted(self.edges.items()))
        return {relation: self._location(table) for relation, table in parsed if relation is not None}

    def _location(self, table: str | EdgeTableConfig) -> str:
        if isinstance(table, str):
            return table
        return self.node_tables.get(table.table, table.table)

    def edge_table_of(self, relation: Relation) -> EdgeTableConfig | None:
        """Return how a relation reads its table; None where it reads it as all do."""
        table = None if isinstance(self.edges, str) else self.edges.get(str(relation))
        return table if isinstance(table, EdgeTableConfig) else None

    def format_at(self, location: str) -> CsvFormat | None:
        """Return the form that is said of the table at a location."""
        places = self._places
        return next((form for name, form in self.formats.items() if places.get(name) == location), None)

    @property
    def _places(self) -> dict[str, str]:
        """The location of each table, by the names in `formats`."""
        nodes = {"nodes": self.nodes} if isinstance(self.nodes, str) else self.node_tables
        if isinstance(self.edges, str):
            return {**nodes, "edges": self.edges}
        return {**nodes, **{str(relation): uri for relation, uri in self.edge_tables.items()}}

    def is_node_table(self, relation: Relation) -> bool:
        """Return whether the edges of a relation are a foreign key in a node table."""
        table = self.edge_table_of(relation)
        return table is not None and self._location(table) in self.node_tables.values()

    @property
    def reverses(self) -> dict[Relation, Relation]:
        """The relation of each table's reverse edges; empty without types, where they join the table's relation."""
        if not self.reverse_edges or (len(self.node_tables) == 1 and len(self.edge_tables) == 1):
            return {}
        return {relation: relation.reversed for relation in self.edge_tables}

    @property
    def target_type(self) -> int:
        """The number of the type that is labelled and scored; for a relation, its target type."""
        return self.target_types[-1]

    @property
    def target_types(self) -> tuple[int, ...]:
        """The numbers of the targets' types: one, or the two types that the target's relation joins."""
        if self.target is None:
            return (0,)
        relation, types = self.target_relation, self.schema.types
        names = (self.target,) if relation is None else (relation.source, relation.target)
        return tuple(dict.fromkeys(types.index(name) for name in names))

    @property
    def target_relation(self) -> Relation | None:
        """The relation that `target` names; None where it names a type, or is null."""
        return next((relation for relation in self.edge_tables if str(relation) == self.target), None)

    @property
    def target_edges(self) -> Relation:
        """The relation whose edges are labelled and scored, in tasks of edges."""
        return self.target_relation or next(iter(self.edge_tables))

    @property
    def classes_given(self) -> int | None:
        """The number of classes, where the config says it."""
        return len(self.classes) if isinstance(self.classes, tuple) else self.num_classes

    @field_validator("features", "edge_features", mode="before")
    @classmethod
    def _read_all(cls, value: Any) -> Any:
        """Read `all` as the pattern of every column, in a map too."""
        if isinstance(value, dict):
            return {name: _ALL if held == "all" else held for name, held in value.items()}
        return _ALL if value == "all" else value

    @model_serializer(mode="wrap")
    def _omit_later_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        return {key: value for key, value in values.items() if (key, value) not in _LATER_DEFAULTS}
