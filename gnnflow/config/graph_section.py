"""The `graph` section: where the tables are, which columns mean what, and how the graph store is laid out."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from gnnflow.config.base import Column, Integer, Number, Section, Uri, problem
from gnnflow.config.published import PublishedName
from gnnflow.graph.schema import NAME, UNTYPED, GraphSchema, Relation

_TypedTables = Annotated[dict[str, Uri], Field(min_length=1)]
_TypedColumns = Annotated[dict[str, tuple[Column, ...]], Field(min_length=1)]
# Of keys that came later: what was made without them keeps its bytes.
_LATER_DEFAULTS = (
    ("target", None),
    ("classes", None),
    ("edge_normalize", "none"),
    ("scaled_as", None),
    ("max_bad_rows", 0.01),
)
_NAMING = "Use letters, digits, '.', '-' and single '_', starting with a letter or digit."


class GraphConfig(Section):
    """Input tables and the layout of the graph store."""

    nodes: Uri | _TypedTables = Field(
        description="Node table: path or URL of Parquet, CSV or Arrow IPC; for typed graphs {type: path}."
    )
    edges: Uri | _TypedTables = Field(
        description="Edge table: a path or URL; for typed graphs a map {source__relation__target: path}."
    )
    id: Column = Field("id", description="Node table column that identifies a node (int64 or string).")
    src: Column = Field("src", description="Edge table column with the id of the node an edge starts at.")
    dst: Column = Field("dst", description="Edge table column with the id of the node an edge points to.")
    label: Column | None = Field(
        "label",
        description="Node table column with the label: int, float, or a list for multi-label. Where task.kind is edge, "
        "of the edge table. null: none is read, for a graph that is scored alone.",
    )
    split: Column = Field(
        "split",
        description="Node table column that says train, valid, test or null; of the edge table where task.split says "
        "column.",
    )
    timestamp: Column = Field(
        "timestamp",
        description="Edge table column with an edge's time: integers, dates, timestamps, or text of ISO dates and "
        "times; read where task.split asks for it.",
    )
    weight: Column = Field("weight", description="Edge table column with edge weights; used where the column exists.")
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
        "for all, a type whose table has none of these columns has none.",
    )
    edge_features: tuple[Column, ...] | _TypedColumns = Field(
        (),
        description="Edge table columns that become edge attributes: a list, of which each relation of a typed graph "
        "reads those its table has, or {source__relation__target: columns}.",
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
    classes: tuple[Column, ...] | None = Field(
        None,
        min_length=2,
        description="Names of the classes, in the order of their numbers: what a label column of text holds, and what "
        "the report and predictions call them. null: labels are numbers.",
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
    scaled_as: PublishedName | None = Field(
        None,
        description="A published model (NAME, NAME/VERSION): standard then scales columns as they were scaled for it, "
        "not by these tables' own means and variances.",
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
        "stays one. In a typed graph those of a__likes__b, loops too, become a relation b__rev_likes__a of their own.",
    )

    @property
    def schema(self) -> GraphSchema:  # type: ignore[override]  # pydantic's own `schema` is deprecated and gone in 3
        """The graph's types and relations, the reverse ones included."""
        return GraphSchema.of(self.node_tables, [*self.edge_tables, *self.reverses.values()])

    @property
    def node_tables(self) -> dict[str, str]:
        """The node table of each type, in the order of the types' names."""
        if isinstance(self.nodes, str):
            return {UNTYPED.types[0]: self.nodes}
        return dict(sorted(self.nodes.items()))

    @property
    def edge_tables(self) -> dict[Relation, str]:
        """The edge table of each relation that has one, in the order of the relations' names."""
        if isinstance(self.edges, str):
            return {UNTYPED.relations[0]: self.edges}
        parsed = ((Relation.parse(name), uri) for name, uri in sorted(self.edges.items()))
        return {relation: uri for relation, uri in parsed if relation is not None}

    @property
    def reverses(self) -> dict[Relation, Relation]:
        """The relation that the reverse edges of a table are of; without types they are of the table's own."""
        if not self.reverse_edges or (len(self.node_tables) == 1 and len(self.edge_tables) == 1):
            return {}
        return {relation: relation.reversed for relation in self.edge_tables}

    @property
    def target_type(self) -> int:
        """The number of the type that is labelled and scored; of a relation, the type that it leads to."""
        return self.target_types[-1]

    @property
    def target_types(self) -> tuple[int, ...]:
        """The numbers of the types that targets are of: one, or those that the target's relation joins."""
        if self.target is None:
            return (0,)
        relation, types = self.target_relation, self.schema.types
        names = (self.target,) if relation is None else (relation.source, relation.target)
        return tuple(dict.fromkeys(types.index(name) for name in names))

    @property
    def target_relation(self) -> Relation | None:
        """The relation that `target` names; None where it names a type, or nothing."""
        return next((relation for relation in self.edge_tables if str(relation) == self.target), None)

    @property
    def target_edges(self) -> Relation:
        """The relation whose edges are labelled and scored, where edges are."""
        return self.target_relation or next(iter(self.edge_tables))

    def features_of(self, node_type: str) -> tuple[str, ...]:
        """Return the feature columns asked of a type's table."""
        return self.features.get(node_type, ()) if isinstance(self.features, Mapping) else self.features

    def edge_features_of(self, relation: Relation) -> tuple[str, ...]:
        """Return the attribute columns asked of a relation's table."""
        held = self.edge_features
        return held.get(str(relation), ()) if isinstance(held, Mapping) else held

    @model_serializer(mode="wrap")
    def _without_later_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        return {key: value for key, value in values.items() if (key, value) not in _LATER_DEFAULTS}

    @property
    def label_column(self) -> str:
        """The column that labels are read from; empty, which is no column's name, where none are."""
        return self.label or ""

    @property
    def classes_given(self) -> int | None:
        """How many classes there are, where the config says it."""
        return self.num_classes if self.classes is None else len(self.classes)

    @model_validator(mode="after")
    def _classes_have_names_of_their_own(self) -> Self:
        names = self.classes or ()
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise problem(f"{twice!r} is there twice", key="classes", fix="Give each class a name of its own.")
        if names and self.num_classes not in {None, len(names)}:
            raise problem(
                f"{self.num_classes}, and graph.classes names {len(names)}", key="num_classes", fix="Leave it out."
            )
        return self

    @model_validator(mode="after")
    def _columns_mean_one_thing(self) -> Self:
        for kind, taken, features in (
            ("features", {"id": self.id}, self.features),  # labels and splits are of a task: `checks.tasks`
            ("edge_features", {"src": self.src, "dst": self.dst}, self.edge_features),
        ):
            for key, listed in ({kind: features} if isinstance(features, tuple) else _below(kind, features)).items():
                _check_columns(key, listed, taken)
        for roles in (("id", "label", "split"), ("src", "dst", "weight")):
            for key, other in combinations(reversed(roles), 2):
                column = getattr(self, key)
                if column == getattr(self, other):
                    raise problem(
                        f"{column!r} is the column of graph.{other} too",
                        key=key,
                        fix="Name another column: each is read for one thing.",
                    )
        return self

    @model_validator(mode="after")
    def _typed_tables_belong_together(self) -> Self:
        if isinstance(self.nodes, str) and isinstance(self.edges, str):
            return self
        if isinstance(self.nodes, str) or isinstance(self.edges, str):
            raise problem(
                "nodes and edges disagree: one is a path, the other a map of types",
                fix="Give both as paths, or both as maps {type: path} and {source__relation__target: path}.",
            )
        for name in self.nodes:
            if not NAME.fullmatch(name):
                raise problem(f"{name!r} cannot be part of a file name", key="nodes", fix=f"Rename the type. {_NAMING}")
        for name in self.edges:
            relation = Relation.parse(name)
            if relation is None or not {relation.source, relation.target} <= set(self.nodes):
                raise problem(
                    f"{name!r} does not join two of the node types {', '.join(self.nodes)}",
                    key="edges",
                    fix="Write edge types as source__relation__target.",
                )
            if not NAME.fullmatch(relation.name):
                raise problem(
                    f"{name!r} cannot be part of a file name", key="edges", fix=f"Rename the relation. {_NAMING}"
                )
            if self.reverses and str(relation.reversed) in self.edges:
                raise problem(
                    f"{relation.reversed} has a table, and is what the reverse edges of {name} would be called",
                    key="reverse_edges",
                    fix="Leave reverse_edges out, or rename the relation.",
                )
        return self

    @model_validator(mode="after")
    def _types_are_those_of_the_tables(self) -> Self:
        types = [] if isinstance(self.nodes, str) else sorted(self.nodes)
        relations = [] if isinstance(self.edges, str) else sorted(self.edges)
        if len(types) > 1 and self.target is None:
            raise problem(
                f"required but missing, where graph.nodes has the types {', '.join(types)}",
                key="target",
                fix="Name the type whose nodes are labelled and scored, or the relation whose edges are.",
            )
        named: dict[str, tuple[str, str, list[str]]] = {}
        if self.target is not None and self.target not in relations:
            names_edges = Relation.parse(self.target) is not None
            named["target"] = (self.target, "edges", relations) if names_edges else (self.target, "nodes", types)
        for key, columns, of, known in (
            ("features", self.features, "nodes", types),
            ("edge_features", self.edge_features, "edges", relations),
        ):
            named |= {f"{key}.{name}": (name, of, known) for name in columns} if isinstance(columns, dict) else {}
        for key, (name, of, known) in named.items():
            if name not in known:
                found = f"graph.{of} has {', '.join(known)}" if known else f"graph.{of} is one table, without types"
                raise problem(f"{name!r} is not known: {found}", key=key, fix="Name one of these, or leave it out.")
        if types and not self.schema.is_typed and not self.features_of(types[0]):
            raise problem(
                f"{types[0]!r} has no features, and is the only type",
                key="features",
                fix="Name the columns of its table that are its features.",
            )
        return self


def _below(kind: str, columns: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {f"{kind}.{name}": listed for name, listed in columns.items()}


def _check_columns(key: str, columns: tuple[str, ...], taken: Mapping[str, str]) -> None:
    """Raise where columns of features are named twice, or have another meaning."""
    for role, column in taken.items():
        if column in columns:
            raise problem(
                f"{column!r} is the column of graph.{role}",
                key=key,
                fix="Take it out of the list: it is not an input of a model.",
            )
    if len(set(columns)) != len(columns):
        raise problem(f"{list(columns)} names a column twice", key=key, fix="Name each column once.")
