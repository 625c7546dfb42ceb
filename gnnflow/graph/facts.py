"""The facts that a stage passes to later stages: frozen values that are JSON in its manifest.

Each stage that leaves an artifact has one class, here or, for training and scoring, in `run_facts`. A fact is kept by
the stage that knows it; no stage repeats another's. Only three fields grow with the graph: `GraphFacts.offsets`, a
number per partition and type, `GraphFacts.clusters`, a number per cluster and type, and `FlatFacts.shards`, one entry
per shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Literal, NamedTuple

import numpy as np

from gnnflow.graph.book import ClusterBook, PartitionBook
from gnnflow.graph.encodings import EncodedColumn, States
from gnnflow.graph.labels import LabelKind, LabelUnit, names_of_classes
from gnnflow.graph.narrow import ColumnErrors, ColumnRanges, NarrowRows, Ranges, StorageKind, row_bytes
from gnnflow.graph.run_facts import LinkFacts
from gnnflow.graph.sampling import Fanout
from gnnflow.graph.scales import ColumnScale
from gnnflow.graph.schema import UNTYPED, GraphSchema, Placement

IdType = Literal["int64", "string"]
Layout = Literal["shared", "inline", "store"]
TargetKind = Literal["nodes", "edges"]


def share_text(share: float) -> str:
    """Return a share of rows as a percentage: 0.0123 is 1.23 %."""
    return f"{100 * share:.3g} %"


@dataclass(frozen=True)
class BadRows:
    """The rows of a table that were quarantined for one reason. column: its name. labelled: those with a label."""

    column: str
    reason: str
    rows: int
    labelled: int = 0


@dataclass(frozen=True)
class RowCounts:
    """Rows of one table: in = out + quarantined.

    reasons: the quarantined rows by reason, the most frequent first. labelled_in: rows with a label, of those in.
    """

    rows_in: int
    rows_out: int
    rows_quarantined: int
    reasons: tuple[BadRows, ...] = ()
    labelled_in: int = 0

    @property
    def quarantined_share(self) -> float:
        """Quarantined rows as a share of all rows of the table."""
        return self.share_of(self.rows_quarantined)

    def share_of(self, rows: int) -> float:
        """Return a number of rows as a share of all rows of the table."""
        return rows / max(self.rows_in, 1)

    @property
    def text(self) -> str:
        """The quarantined rows with their share, and those with a label where the table has labels."""
        text = f"{self.rows_quarantined:,} of {self.rows_in:,} rows ({share_text(self.quarantined_share)})"
        lost = sum(each.labelled for each in self.reasons)
        return f"{text}, {self.labelled_text(lost)} of those with a label," if self.labelled_in else text

    def labelled_text(self, rows: int) -> str:
        """Return a number of rows with a label and its share of all of them; "" for a table without labels."""
        return f"{rows:,} ({share_text(rows / self.labelled_in)})" if self.labelled_in else ""


@dataclass(frozen=True)
class FeatureFacts:
    """The form of node features: dense rows, or sparse ones with or without values; `width` columns either way.

    storage: of dense rows. ranges: of their columns, where storage has steps.
    """

    kind: Literal["dense", "sparse"]
    width: int
    has_value: bool
    storage: StorageKind = "float32"
    ranges: ColumnRanges | None = None

    @cached_property
    def narrow(self) -> NarrowRows | None:
        """The form of stored rows; None where they are float32, or sparse."""
        return None if self.storage == "float32" else NarrowRows.of(self.storage, self.width, self.ranges)

    @property
    def stored_as(self) -> type[np.float32 | np.uint8]:
        """The type of a dense row in memory: of its numbers, or of its bytes where it is narrow."""
        return np.float32 if self.narrow is None else np.uint8

    @property
    def row_bytes(self) -> int:
        """The bytes of a dense row."""
        return row_bytes(self.storage, self.width)


@dataclass(frozen=True)
class ColumnCounts:
    """Rows of one feature column by code (see `gnnflow.ingest.statistics`).

    codes ascend; counts[i] are the rows in (codes[i - 1], codes[i]]. exact: every code of the column is listed, so that
    each count belongs to one code.
    """

    name: str
    codes: tuple[int, ...]
    counts: tuple[int, ...]
    exact: bool

    @property
    def rows(self) -> int:
        """The number of counted rows."""
        return sum(self.counts)


@dataclass(frozen=True)
class TypeFacts:
    """One node type of a graph with types. features: None where it has none."""

    name: str
    num_nodes: int
    features: FeatureFacts | None
    id_type: IdType = "int64"


@dataclass(frozen=True)
class RelationFacts:
    """One relation. name: as `Relation` writes it.

    leaves: the number of nodes that each of its edges comes from, 0 where it differs between edges. has_time: its edges
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


class PairTypes(NamedTuple):
    """The numbers of the types of the source and the target of an edge to predict."""

    source: int
    target: int


@dataclass(frozen=True)
class GraphFacts:
    """The content of a graph store, whichever stage wrote it.

    offsets [P T + 1]: partition p owns the dense ids offsets[p T + t] .. offsets[p T + t + 1] - 1 of type t.
    types [T], relations [R]: in the schema's order; empty for one type and one relation, which the other fields
    describe. With types, features belong to the type `target`, attribute_width is the largest, has_weight says that
    some relation has weights, and degrees are counted over all relations.
    splits: labelled nodes per split, and the other nodes as `none`.
    degree_bins[0] counts nodes without in-edges, degree_bins[b] nodes with 2^(b-1) to 2^b - 1.
    columns: the distribution of each feature column; tables: rows of the node and of the edge table.
    targets: the kind of rows that have labels and splits, which labelled and splits count. For edges, copies_left_out
    counts the ones that join the ends of an edge of a later split, and with types target_relation names their relation;
    target is then its target type.
    has_time: edges of some relation have times. leaves: as in `RelationFacts`, for a graph without types.
    clusters: `ClusterBook.starts`, where nodes are ordered by cluster; empty: a partition is one cluster.
    placement: of edges that are computed together; the store then has them a second time, in that order.
    label_unit: set where labels are numbers to predict and some are in the train split.
    large_columns: unscaled columns of large numbers, by the key that would scale them (`gnnflow.ingest.moments`).
    scales: the scale of each table with scaled columns.
    columns_read: the columns of each table's features or attributes, in their order.
    class_counts: the labelled targets of each class, where there are not too many classes. train_class_counts: the
    train targets of each class, or with each label where a target has several. valid_class_counts: the valid targets of
    each class; empty in older stores.
    encodings: the fitted columns of each table, empty where it has none.
    split_times: the first time of valid and of test as text, where the split is by time.
    column_errors: of each table whose features are stored in fewer bytes than float32, by its name.
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
    encodings: dict[str, tuple[EncodedColumn, ...]] = field(default_factory=dict)
    split_times: dict[str, str] = field(default_factory=dict)
    column_errors: dict[str, ColumnErrors] = field(default_factory=dict)
    valid_class_counts: tuple[int, ...] = ()

    @property
    def ranges(self) -> Ranges:
        """The ranges of each node table's columns, where features are stored as steps of these."""
        kinds = self.features_of_types
        names = [f"nodes/{each.name}" for each in self.types] or ["nodes"]
        held = {name: kind.ranges for name, kind in zip(names, kinds, strict=True) if kind is not None}
        return {name: each for name, each in held.items() if each is not None}

    @property
    def states(self) -> States:
        """The states of each table's fitted columns."""
        return {table: tuple(each.state for each in columns) for table, columns in self.encodings.items()}

    @property
    def every_class_name(self) -> list[str]:
        """A name for each class: its number where the labels give it none."""
        return names_of_classes(self.class_names, self.num_classes)

    @cached_property
    def schema(self) -> GraphSchema:
        """The graph's types and relations."""
        if not self.types:
            return UNTYPED
        return GraphSchema.named((each.name for each in self.types), (each.name for each in self.relations))

    @cached_property
    def book(self) -> PartitionBook:
        """The partitions and types of dense ids."""
        return PartitionBook(np.asarray(self.offsets, np.int64), max(len(self.types), 1))

    @cached_property
    def cluster_book(self) -> ClusterBook:
        """The clusters of dense ids."""
        starts = np.asarray(self.clusters or self.offsets, np.int64)
        return ClusterBook(starts, self.book.num_partitions, self.book.num_types)

    @property
    def target_type(self) -> int:
        """The number of the type that is labelled and scored."""
        return self.schema.types.index(self.target) if self.types else 0

    @property
    def target_types(self) -> tuple[int, ...]:
        """The numbers of the targets' types, ascending: one, or the types that the edges to predict join."""
        return tuple(sorted({*self.pair_types})) if self.target_relation else (self.target_type,)

    @property
    def id_type_of_targets(self) -> IdType:
        """The type of the targets' ids; text where targets have two types and one has text."""
        held = {self.types[number].id_type for number in self.target_types} if self.target_relation else {self.id_type}
        return "int64" if held == {"int64"} else "string"

    @property
    def id_types_of_pairs(self) -> tuple[IdType, IdType]:
        """The id types of the source and the target of an edge to predict."""
        if not self.target_relation:
            return self.id_type, self.id_type
        source, target = self.pair_types
        return self.types[source].id_type, self.types[target].id_type

    @property
    def pair_types(self) -> PairTypes:
        """The types of the ends of an edge to predict."""
        number = self.pair_relation
        return PairTypes(self.schema.source_types[number], self.schema.target_types[number])

    @property
    def pair_relation(self) -> int:
        """The number of the relation of edges to predict."""
        names = [str(each) for each in self.schema.relations]
        return names.index(self.target_relation) if self.target_relation else 0

    @property
    def pair_attribute_width(self) -> int:
        """The number of attributes of an edge to predict."""
        return self.relations[self.pair_relation].attribute_width if self.target_relation else self.attribute_width

    @property
    def features_of_types(self) -> tuple[FeatureFacts | None, ...]:
        """The form of each type's features, in the schema's order."""
        return tuple(each.features for each in self.types) if self.types else (self.features,)

    @property
    def leaves_of_relations(self) -> tuple[int, ...]:
        """The number of leaves of each relation's edges, in the schema's order."""
        return tuple(each.leaves for each in self.relations) if self.types else (self.leaves,)

    def replace_relations(self, relations: Sequence[RelationFacts]) -> GraphFacts:
        """Return the facts of the graph with other relations.

        Degree bins are summed over relations.
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
    """The selected neighbours. kept: the most in-edges kept of a node per relation; None: the store's edges are used.

    num_hubs: nodes whose in-degree is above hub_threshold, whose edges several reducers sampled. relations: for
    neighbours other than direct ones, the relations that replace the graph's own, in the order of their names;
    bytes_ratio: their bytes over the bytes of the store.
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
    """A shard as GraphFlat's manifest lists it.

    num_nodes, num_edges: of what its batches are cut from, which is the whole graph where the layout is store.
    num_pairs: the pairs of its target nodes, in tasks of pairs.
    """

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
        """The number of the task's targets: pairs, or nodes where targets are nodes."""
        return self.num_pairs or self.num_targets


@dataclass(frozen=True)
class BlowUp:
    """The bytes that GraphFlat read and wrote; ratio is bytes_out / bytes_in."""

    bytes_in: int
    bytes_out: int
    ratio: float
    bytes_per_target: float


@dataclass(frozen=True)
class FlatFacts:
    """The shards of one GraphFlat, in order. fanouts: one per hop from the targets outward; None: every edge."""

    layout: Layout
    num_hops: int
    fanouts: tuple[Fanout, ...] | None
    num_targets: int
    blow_up: BlowUp
    shards: tuple[ShardEntry, ...]
    link_facts: LinkFacts | None = None
