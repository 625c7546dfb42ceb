"""The `graph` section: where the tables are, which columns mean what, and how the graph store is laid out."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gnnflow.config.base import Column, Integer, Section, Uri, problem
from gnnflow.graph.schema import Relation

_TypedTables = Annotated[dict[str, Uri], Field(min_length=1)]


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
    label: Column = Field(
        "label",
        description="Node table column with the label: int, float, or a list for multi-label. Where task.kind is edge, "
        "of the edge table.",
    )
    split: Column = Field(
        "split",
        description="Node table column that says train, valid, test or null; of the edge table where task.split says "
        "column.",
    )
    timestamp: Column = Field(
        "timestamp",
        description="Edge table column with an edge's time, integers or timestamps; read where task.split asks for it.",
    )
    weight: Column = Field("weight", description="Edge table column with edge weights; used where the column exists.")
    features: tuple[Column, ...] = Field(
        ("x",),
        min_length=1,
        description="Node feature columns: a fixed-size list, scalars, or x for sparse x_index/x_value.",
    )
    edge_features: tuple[Column, ...] = Field((), description="Edge table columns that become edge attributes.")
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
    normalize: Literal["none", "row", "standard"] = Field(
        "none",
        description="Scaling: row makes each row sum to one, standard each column mean 0 and variance 1.",
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
    reverse_edges: bool = Field(
        default=False,
        description="Also add every edge in the opposite direction, with the same weight and attributes.",
    )

    @model_validator(mode="after")
    def _columns_mean_one_thing(self) -> Self:
        for kind, taken, features in (
            ("features", {"id": self.id, "label": self.label, "split": self.split}, self.features),
            ("edge_features", {"src": self.src, "dst": self.dst}, self.edge_features),
        ):
            for role, column in taken.items():
                if column in features:
                    raise problem(
                        f"{column!r} is the column of graph.{role}",
                        key=kind,
                        fix="Take it out of the list: it is not an input of a model.",
                    )
            if len(set(features)) != len(features):
                raise problem(f"{list(features)} names a column twice", key=kind, fix="Name each column once.")
        if self.src == self.dst:
            raise problem(
                f"{self.dst!r} is the column of graph.src too",
                key="dst",
                fix="Name the column of each end of an edge.",
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
        for name in self.edges:
            relation = Relation.parse(name)
            if relation is None or not {relation.source, relation.target} <= set(self.nodes):
                raise problem(
                    f"{name!r} does not join two of the node types {', '.join(self.nodes)}",
                    key="edges",
                    fix="Write edge types as source__relation__target.",
                )
        return self
