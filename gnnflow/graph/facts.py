"""What a stage tells the stages after it, beside its files: frozen values that are JSON in its manifest.

Each stage that leaves an artifact has one class, here or, of training and scoring, in `run_facts`. Whoever needs a fact
asks the stage that knows it; no stage repeats another's. Nothing here grows with the graph but `GraphFacts.offsets`, a
number per partition and type, `GraphFacts.clusters`, a number per cluster and type, and `FlatFacts.shards`, one entry
per shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Literal

import numpy as np

from gnnflow.graph.book import ClusterBook, PartitionBook
from gnnflow.graph.edges import Fanout
from gnnflow.graph.labels import LabelKind, LabelUnit
from gnnflow.graph.row_counts import RowCounts
from gnnflow.graph.run_facts import LinkFacts
from gnnflow.graph.scales import ColumnScale
from gnnflow.graph.schema import UNTYPED, GraphSchema, Placement

IdType = Literal["int64", "string"]
Layout = Literal["shared", "inline"]
TargetKind = Literal["nodes", "edges"]


@dataclass(frozen=True)
class FeatureFacts:
    """How node features are stored: dense rows, or sparse ones with or without values; `width` columns either way."""

    kind: Literal["dense", "sparse"]
    width: int
    has_value: bool


@dataclass(frozen=True)
class ColumnCounts:
    """Rows of one feature column by code (see `gnnflow.ingest.statistics`).

    codes ascend; counts[i] are the rows in (codes[i - 1], codes[i]]. exact says that every code of the column is
    listed, so that a count is that of one code.
    """

    name: str
    codes: tuple[int, ...]
    counts: tuple[int, ...]
    exact: bool

    @property
    def rows(self) -> int:
        """How many rows were counted."""
        return sum(self.counts)


@dataclass(frozen=True)
class TypeFacts:
    """One node type of a graph with types: its name, its nodes, its features, None where it has none, and its ids."""

    name: str
    num_nodes: int
    features: FeatureFacts | None
    id_type: IdType = "int64"


@dataclass(frozen=True)
class RelationFacts:
    """One relation. name: as `Relation` writes it. attribute_width: of its own edges.

    leaves: how many nodes each of its edges comes from, 0 where that differs from edge to edge. has_time: its edges
    have times.
    """

    name: str
    num_edges: int
    attribute_width: int
    has_weight: bool
    degree_bins: tuple[int, ...]
    max_in_degree: int
    leaves: int = 1
    has_time: bool = False


@dataclass(frozen=True)
class GraphFacts:
    """What a graph store holds, whichever stage wrote it.

    offsets [P T + 1]: partition p owns the dense ids offsets[p T + t] .. offsets[p T + t + 1] - 1 of type t. types [T]
    and relations [R] in the schema's order; both are empty where there is one of each, and what there is to know of it
    are the graph's own facts. With types, features are those of type `target`, attribute_width is the widest,
    has_weight says that some relation has weights, and degrees are counted over all relations. splits: labelled nodes
    per split, and the other nodes as `none`. degree_bins[0] counts nodes without in-edges, degree_bins[b] those with
    2^(b-1) to 2^b - 1. columns: how each feature column is distributed; tables: rows of the node and of the edge table.
    targets: what labels and splits are of, so what labelled and splits count; where they are edges, copies_left_out
    counts those that join the ends of an edge of a later split, and with types target_relation names the relation whose
    edges they are; target is then the type that it leads to. has_time: edges of some relation have times. leaves: as in
    `RelationFacts`, of a graph without types. clusters: what `ClusterBook.starts` is made of, where nodes are ordered
    by cluster; empty: a partition is one cluster. placement: where edges are computed together; the store then has them
    a second time, in that order. label_unit: where labels are numbers to predict and some are in the train split.
    large_columns: those of large numbers that nothing scales, by the key of the config that would
    (`gnnflow.ingest.moments`). scales: what scales the columns of each table that has such. columns_read: of each
    table the columns that its features or attributes were read from, in their order. class_counts: the labelled targets
    of each class, where there are classes and not very many. train_class_counts: the train targets of each class, or
    with each label where a target has several.
    """

    num_nodes: int
    num_edges: int
    offsets: tuple[int, ...]
    id_type: IdType
    features: FeatureFacts
    attribute_width: int
    has_weight: bool
    label_kind: LabelKind
    num_classes: int
    class_names: tuple[str, ...]
    labelled: int
    splits: dict[str, int]
    degree_bins: tuple[int, ...]
    max_in_degree: int
    tables: dict[str, RowCounts]
    columns: tuple[ColumnCounts, ...] = ()
    copies_left_out: int = 0
    targets: TargetKind = "nodes"
    has_time: bool = False
    types: tuple[TypeFacts, ...] = ()
    relations: tuple[RelationFacts, ...] = ()
    target: str = ""
    leaves: int = 1
    clusters: tuple[int, ...] = ()
    placement: Placement = ""
    target_relation: str = ""
    label_unit: LabelUnit | None = None
    large_columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    scales: dict[str, ColumnScale] = field(default_factory=dict)
    columns_read: dict[str, tuple[str, ...]] = field(default_factory=dict)
    class_counts: tuple[int, ...] = ()
    train_class_counts: tuple[int, ...] = ()

    @cached_property
    def schema(self) -> GraphSchema:
        """The graph's types and relations."""
        if not self.types:
            return UNTYPED
        return GraphSchema.named((each.name for each in self.types), (each.name for each in self.relations))

    @cached_property
    def book(self) -> PartitionBook:
        """Which partition owns which dense ids."""
        return PartitionBook(np.asarray(self.offsets, np.int64), max(len(self.types), 1))

    @cached_property
    def cluster_book(self) -> ClusterBook:
        """Which cluster has which dense ids."""
        starts = np.asarray(self.clusters or self.offsets, np.int64)
        return ClusterBook(starts, self.book.num_partitions, self.book.num_types)

    @property
    def target_type(self) -> int:
        """The number of the type that is labelled and scored."""
        return self.schema.types.index(self.target) if self.types else 0

    @property
    def target_types(self) -> tuple[int, ...]:
        """The numbers of the types that targets are of, ascending: one, or those that the edges to predict join."""
        return tuple(sorted({*self.pair_types})) if self.target_relation else (self.target_type,)

    @property
    def id_type_of_targets(self) -> IdType:
        """The type of the ids of targets; text where these are of two types of which one has text."""
        held = {self.types[number].id_type for number in self.target_types} if self.target_relation else {self.id_type}
        return "int64" if held == {"int64"} else "string"

    @property
    def id_types_of_pairs(self) -> tuple[IdType, IdType]:
        """The types of the ids of the nodes that an edge to predict starts at and leads to."""
        if not self.target_relation:
            return self.id_type, self.id_type
        source, target = self.pair_types
        return self.types[source].id_type, self.types[target].id_type

    @property
    def pair_types(self) -> tuple[int, int]:
        """The numbers of the types that an edge to predict starts at and leads to."""
        number = self.pair_relation
        return self.schema.source_types[number], self.schema.target_types[number]

    @property
    def pair_relation(self) -> int:
        """The number of the relation whose edges are to be predicted."""
        names = [str(each) for each in self.schema.relations]
        return names.index(self.target_relation) if self.target_relation else 0

    @property
    def pair_attribute_width(self) -> int:
        """How many attributes an edge to predict has."""
        return self.relations[self.pair_relation].attribute_width if self.target_relation else self.attribute_width

    @property
    def features_of_types(self) -> tuple[FeatureFacts | None, ...]:
        """How the features of each type are stored, in the schema's order."""
        return tuple(each.features for each in self.types) if self.types else (self.features,)

    @property
    def leaves_of_relations(self) -> tuple[int, ...]:
        """How many leaves the edges of each relation have, in the schema's order."""
        return tuple(each.leaves for each in self.relations) if self.types else (self.leaves,)

    def with_relations(self, relations: Sequence[RelationFacts]) -> GraphFacts:
        """Return the facts of the graph that has the same nodes and these relations instead of its own.

        Degree bins of several relations are those of their rows, added up.
        """
        types = self.types or (TypeFacts(UNTYPED.types[0], self.num_nodes, self.features),)
        bins = zip_longest(*(each.degree_bins for each in relations), fillvalue=0)
        changed = replace(
            self,
            num_edges=sum(each.num_edges for each in relations),
            attribute_width=max(each.attribute_width for each in relations),
            has_weight=any(each.has_weight for each in relations),
            degree_bins=tuple(map(sum, bins)),
            max_in_degree=max(each.max_in_degree for each in relations),
            has_time=False,
        )
        if len(types) == len(relations) == 1:
            return replace(changed, types=(), relations=(), target="", leaves=relations[0].leaves)
        target = self.target or types[0].name
        return replace(changed, types=types, relations=tuple(relations), target=target)


@dataclass(frozen=True)
class SelectFacts:
    """What was selected. kept: the most in-edges kept of a node in each relation; None: nothing was left out or copied.

    num_hubs: nodes whose in-degree is above hub_threshold, whose edges several reducers sampled. relations: where
    neighbours are other than direct ones, what takes the place of the graph's own relations, in the order of their
    names; bytes_ratio: what they take beside the bytes of the store.
    """

    kind: str
    sampling: str
    kept: Fanout | None
    num_edges: int
    num_hubs: int
    hub_threshold: int
    relations: tuple[RelationFacts, ...] = ()
    bytes_ratio: float = 0.0


@dataclass(frozen=True)
class ShardEntry:
    """A shard as GraphFlat's manifest lists it. num_pairs: of tasks whose targets are pairs, of its target nodes."""

    name: str
    split: str
    layout: Layout
    num_targets: int
    num_nodes: int
    num_edges: int
    num_bytes: int
    num_pairs: int = 0

    @property
    def num_samples(self) -> int:
        """How many of the task's targets it holds: its pairs, or where targets are nodes these."""
        return self.num_pairs or self.num_targets


@dataclass(frozen=True)
class BlowUp:
    """What GraphFlat read and wrote, in bytes; ratio is bytes_out / bytes_in."""

    bytes_in: int
    bytes_out: int
    ratio: float
    bytes_per_target: float


@dataclass(frozen=True)
class FlatFacts:
    """The shards of one GraphFlat, in order. fanouts: one per hop from the targets outward; None: every edge.

    link_facts: of links.
    """

    layout: Layout
    num_hops: int
    fanouts: tuple[Fanout, ...] | None
    num_targets: int
    blow_up: BlowUp
    shards: tuple[ShardEntry, ...]
    link_facts: LinkFacts | None = None
