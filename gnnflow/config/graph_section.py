"""The `graph` section: the tables, the meaning of their columns, and the layout of the graph store."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from gnnflow.config.base import Column, Integer, Number, PublishedName, Section, Uri, problem, together
from gnnflow.config.column_names import ColumnNames, input_problems, one_name, own_name
from gnnflow.config.columns_section import ColumnSection, ColumnSections, expanded, is_pattern
from gnnflow.config.edge_tables import ColumnValue, EdgeTableConfig, EdgeTables
from gnnflow.config.formats_section import CsvFormat, format_problems
from gnnflow.config.messages import closest, nearest
from gnnflow.config.typed_tables import typed_table_problems
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
)
# The keys that name columns of node tables, and of edge tables.
_OF_NODES = ("id", "label", "split")
_OF_EDGES = ("src", "dst", "label", "split", "timestamp", "weight")
_ALL = ("*",)
_LABEL = "label"


class GraphConfig(Section):
    """Input tables and the layout of the graph store."""

    nodes: Uri | _TypedTables = Field(
        description="Node table: path or URL of Parquet, CSV or Arrow IPC; for typed graphs {type: path}, where a type "
        "with null is the ids in its edge tables."
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

    def features_of(self, node_type: str) -> tuple[str, ...]:
        """Return the feature columns asked of a type's table."""
        return self.features.get(node_type, ()) if isinstance(self.features, Mapping) else self.features

    def edge_features_of(self, relation: Relation) -> tuple[str, ...]:
        """Return the attribute columns asked of a relation's table."""
        held = self.edge_features
        if isinstance(held, Mapping):
            return held.get(str(relation), ())
        return () if self.is_node_table(relation) else held  # those columns are the node's

    def feature_names(self, node_type: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return the feature columns asked of a type's table, with the columns that patterns match in `names`."""
        taken = self.taken_columns(node_type)
        return expanded(self.features_of(node_type), names, taken=taken, exclude=self.exclude)

    def taken_columns(self, table: str | Relation) -> set[str]:
        """Return the columns of a type's or a relation's table that have another role than a model's inputs."""
        if isinstance(table, str):
            of_type = self.of_type(table)
            roles = {of_type.id_column, of_type.label_column or _LABEL, of_type.split_column}
            return roles | {*self._foreign_keys(table)}
        own = self.of_relation(table)
        roles = {own.src_column, own.dst_column, own.weight_column, own.time_column}
        return roles | {own.label_column or _LABEL, own.split_column}

    def _foreign_keys(self, node_type: str) -> Iterator[str]:
        """Yield the columns of a type's table that are the ends of some relation."""
        for relation in self.edge_tables:
            table = self.edge_table_of(relation)
            if table is not None and self._location(table) == self.node_tables[node_type]:
                yield from (name for name in (table.src, table.dst) if name is not None)

    def edge_feature_names(self, relation: Relation, names: Sequence[str]) -> tuple[str, ...]:
        """Return the attribute columns asked of a relation's table, as `feature_names`."""
        taken = self.taken_columns(relation)
        return expanded(self.edge_features_of(relation), names, taken=taken, exclude=self.exclude)

    def column_owner(self, name: str | Relation, untyped: str) -> str:
        """Return what stands before a column's name in `columns`: its type or relation, or `untyped` without types."""
        return self.schema.name_of(name) or untyped

    def column_section(self, owner: str, column: str) -> ColumnSection | None:
        """Return the section of a column, None where there is none.

        owner: its type or relation, `nodes` or `edges` without types.
        """
        return self.columns.get(self.column_key(owner, column))

    def column_key(self, owner: str, column: str) -> str:
        """Return the key of a column in `columns`: with its owner where it is there, else its name alone."""
        own = f"{owner}.{column}"
        return own if own in self.columns else column

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

    def of_type(self, node_type: str) -> Self:
        """Return the section as a type's table is read by it, with one name for each of its columns."""
        return self._own(node_type, _OF_NODES)

    def of_relation(self, relation: Relation) -> Self:
        """Return the section as a relation's table is read by it, with one name for each of its columns."""
        own, table = self._own(str(relation), _OF_EDGES), self.edge_table_of(relation)
        if table is None:
            return own
        update = {key: name for key, name in (("src", table.src), ("dst", table.dst)) if name is not None}
        if self.is_node_table(relation) and isinstance(self.weight, str):
            update["weight"] = ""  # that column is the node's
        return own.model_copy(update=update)

    def of_targets(self, *, edges: bool) -> Self:
        """Return the section of the table whose rows are labelled, nodes or edges."""
        return self.of_relation(self.target_edges) if edges else self.of_type(self.schema.types[self.target_type])

    def _own(self, table: str, keys: Sequence[str]) -> Self:
        maps = {key: getattr(self, key) for key in keys if isinstance(getattr(self, key), Mapping)}
        own = {key: own_name(names, table, default=key) for key, names in maps.items()}
        return self.model_copy(update=own) if own else self

    @property
    def id_column(self) -> str:
        """The column of ids, in a section of one table, as are the following ones."""
        return one_name(self.id)

    @property
    def src_column(self) -> str:
        """The column of sources."""
        return one_name(self.src)

    @property
    def dst_column(self) -> str:
        """The column of destinations."""
        return one_name(self.dst)

    @property
    def label_column(self) -> str:
        """The column of labels; empty, which is no column's name, where no labels are read."""
        return one_name(self.label)

    @property
    def split_column(self) -> str:
        """The column of splits."""
        return one_name(self.split)

    @property
    def time_column(self) -> str:
        """The column of times."""
        return one_name(self.timestamp)

    @property
    def weight_column(self) -> str:
        """The column of weights."""
        return one_name(self.weight)

    @property
    def classes_given(self) -> int | None:
        """The number of classes, where the config says it."""
        return len(self.classes) if isinstance(self.classes, tuple) else self.num_classes

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        # the other checks read types and relations
        found = [*typed_table_problems(self.nodes, self.edges, has_reverses=bool(self.reverses))]
        if not found:
            found = [*self._class_problems(), *self._role_problems(), *self._section_problems()]
            found += [*format_problems(self.formats, self._places), *self._name_problems()]
        if found:
            raise together(found)
        return self

    def _class_problems(self) -> Iterator[PydanticCustomError]:
        names = self.classes if isinstance(self.classes, tuple) else ()
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            yield problem(f"{twice!r} is there twice", key="classes", fix="Give each class another name.")
        if names and self.num_classes not in {None, len(names)}:
            yield problem(
                f"{self.num_classes}, and graph.classes names {len(names)}", key="num_classes", fix="Leave it out."
            )

    def _role_problems(self) -> Iterator[PydanticCustomError]:
        nodes = {name: self.of_type(name) for name in self.node_tables}
        edges = {str(name): self.of_relation(name) for name in self.edge_tables}
        for kind, roles, features, tables in (
            ("features", ("id",), self.features, nodes),  # `checks.tasks` looks at labels and splits
            ("edge_features", ("src", "dst"), self.edge_features, edges),
        ):
            listed = {"": features} if isinstance(features, tuple) else features
            for name, columns in listed.items():
                if name and name not in tables:
                    continue
                of = [tables[name]] if name in tables else tables.values()
                taken = {role: [getattr(each, role) for each in of] for role in roles}
                yield from input_problems(f"{kind}.{name}".rstrip("."), columns, taken)
        for read, tables in ((_OF_NODES, nodes), (("src", "dst", "weight"), edges)):
            for (name, own), (key, other) in product(tables.items(), combinations(reversed(read), 2)):
                column = getattr(own, key)
                if column == getattr(own, other):
                    yield problem(
                        f"{column!r} is the column of graph.{other} too",
                        key=key if getattr(self, key) == column else f"{key}.{name}",
                        fix="Name another column: each is read for one thing.",
                    )

    def _section_problems(self) -> Iterator[PydanticCustomError]:
        listed = {"nodes": self.features} if isinstance(self.features, tuple) else dict(self.features)
        listed |= {"edges": self.edge_features} if isinstance(self.edge_features, tuple) else dict(self.edge_features)
        named = {column for columns in listed.values() for column in columns}
        typed = [] if isinstance(self.nodes, str) else [*self.nodes]
        typed += [] if isinstance(self.edges, str) else [*self.edges]
        named |= {f"{owner}.{column}" for owner, columns in listed.items() for column in columns}
        named |= {f"{owner}.{column}" for owner in typed for column in named} if typed else set()
        patterns = [*filter(is_pattern, named)]
        left_out = [*self.exclude, *(f"*.{each}" for each in self.exclude)]
        for name in self.columns:
            if name not in named and not expanded(patterns, [name], taken=(), exclude=left_out):
                fix = "Name the column in one of these lists, or take it out of graph.columns."
                yield problem(
                    f"{name!r} is not among the columns of graph.features or graph.edge_features",
                    key=f"columns.{name}",
                    fix=f"{_nearest_input(name, listed, named)} {fix}".strip(),
                )

    def _name_problems(self) -> Iterator[PydanticCustomError]:
        types = [] if isinstance(self.nodes, str) else sorted(self.nodes)
        relations = [] if isinstance(self.edges, str) else sorted(self.edges)
        if len(types) > 1 and self.target is None:
            yield problem(
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
        for key in (*_OF_NODES, *_OF_EDGES):
            is_either, of = key in _OF_NODES and key in _OF_EDGES, "nodes" if key in _OF_NODES else "edges"
            known = [*types, *relations] if is_either else types if of == "nodes" else relations
            columns = getattr(self, key)
            named |= {f"{key}.{name}": (name, of, known) for name in columns} if isinstance(columns, dict) else {}
        for key, (name, of, known) in named.items():
            if name not in known:
                found = f"graph.{of} has {', '.join(known)}" if known else f"graph.{of} is one table, without types"
                fix, near = "Name one of these, or leave it out." if known else "Leave it out.", closest(name, known)
                is_free = key == "target" or near not in getattr(self, key.partition(".")[0])
                meant = {"value" if key == "target" else "name": near} if near and is_free else None
                fix = f"{nearest(name, known)} {fix}".strip()
                yield problem(f"{name!r} is not known: {found}", key=key, fix=fix, meant=meant)
        bare = set() if isinstance(self.nodes, str) else {name for name, uri in self.nodes.items() if uri is None}
        for name, columns in self.features.items() if isinstance(self.features, dict) else ():
            if name in bare and columns and name != self.target:  # the target needs a table anyway
                yield problem(
                    f"{name!r} is a node type without a table, and so without columns",
                    key=f"features.{name}",
                    fix=f"Give the type one in graph.nodes.{name}, or leave its features out.",
                )
        if types and not self.schema.is_typed and not self.features_of(types[0]):
            yield problem(
                f"{types[0]!r} has no features, and is the only type",
                key="features",
                fix="Name the columns of its table that are its features.",
            )


def _nearest_input(name: str, listed: Mapping[str, Sequence[str]], named: Collection[str]) -> str:
    """Return the hint for a misspelt column. listed: the inputs of each owner; named: all, as the config may say them.

    OWNER.COLUMN is compared with the columns of this owner, as the owner is alike in all of them.
    """
    owner, _, column = name.rpartition(".")
    if owner not in listed:
        return nearest(name, sorted(named))
    near = closest(column, listed[owner])
    return f"Did you mean '{owner}.{near}'?" if near else ""


def node_tables_by_name(graph: GraphConfig) -> dict[str, str]:
    """Return the location of each type's node table: `nodes`, or `nodes/<type>` where there are several.

    It is empty for a type without a table.
    """
    return {f"nodes/{name}" if graph.schema.is_typed else "nodes": uri for name, uri in graph.node_tables.items()}


def edge_tables_by_name(graph: GraphConfig) -> dict[str, str]:
    """Return the location of each edge table: `edges`, or `edges/<relation>` where there are several."""
    return {f"edges/{name}" if graph.schema.is_typed else "edges": uri for name, uri in graph.edge_tables.items()}


def tables_by_name(graph: GraphConfig) -> dict[str, str]:
    """Return the location of each table by its name."""
    found = node_tables_by_name(graph) | edge_tables_by_name(graph)
    return {name: uri for name, uri in found.items() if uri}


def table_key(name: str) -> str:
    """Return the config key of a table's location."""
    return f"graph.{name.replace('/', '.')}"
