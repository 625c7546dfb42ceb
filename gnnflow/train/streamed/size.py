"""What is known of a graph before its edges are read: how many nodes, edges, targets and leaves a rank has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from gnnflow.executions.row_exchange import Exchange, told_by_all
from gnnflow.graph.arrays import IntArray
from gnnflow.graph.labels import LABEL_KINDS
from gnnflow.graph.splits import SPLITS
from gnnflow.neighbors.selected import Neighbors
from gnnflow.storage.graph_store import GraphStore
from gnnflow.train.streamed.disk import disk_of

_TEST = SPLITS.index("test")


@dataclass(frozen=True)
class TypedSize:
    """What is known of a typed graph: nodes and dense feature columns of each type, edges of each relation.

    entries: of the sparse features of each type, in all; empty where no type has such.
    nodes_of_all: of all types and ranks together. Of several ranks, nodes and edges are those of the one with the most.
    """

    nodes: tuple[int, ...]
    features: tuple[int, ...]
    edges: tuple[int, ...]
    nodes_of_all: int
    entries: tuple[int, ...] = ()

    @property
    def entries_of_node(self) -> tuple[int, ...]:
        """The mean number of entries of a node's sparse features, of each type, rounded up."""
        held = self.entries or (0,) * len(self.nodes)
        return tuple(math.ceil(entries / max(nodes, 1)) for entries, nodes in zip(held, self.nodes, strict=True))


@dataclass(frozen=True)
class GraphSize:
    """What is known of a graph before it is read. edge_columns: numbers per edge beside its ends.

    leaves: of an edge, the mean of the relation whose edges have most, rounded up; 1 where edges have none.
    largest: the most nodes and in-edges of a partition. every_edge: no layer samples them. Of several ranks, what the
    one with the most of each has; targets_of_all: those of all ranks together, whose outputs each of them is told.
    typed: of a graph with types; feature_width is then that of the type with the most. entries: of sparse features, in
    all and the most of a partition. labelled: targets of all splits, label_bytes of each of which is its label.
    tested: those of the test split, whose metrics have intervals; of several ranks those of all.
    """

    num_nodes: int
    num_edges: int
    num_targets: int
    feature_width: int
    edge_columns: int
    largest: tuple[int, int]
    leaves: int = 1
    ranks: int = 1
    targets_of_all: int = 0
    every_edge: bool = True
    typed: TypedSize | None = None
    entries: tuple[int, int] = (0, 0)
    labelled: int = 0
    label_bytes: int = 8
    tested: int = 0

    @property
    def by_type(self) -> TypedSize:
        """The same of each type and relation; of a graph without types there is one."""
        nodes, edges, entries = (self.num_nodes,), (self.num_edges,), self.entries[:1]
        return self.typed or TypedSize(nodes, (self.feature_width,), edges, self.num_nodes, entries)

    @property
    def has_leaves(self) -> bool:
        """Whether edges come from several nodes each."""
        return self.leaves > 1

    @property
    def may_prune(self) -> bool:
        """Whether training may compute fewer rows than there are: on one rank, where not all nodes are targets."""
        return self.ranks == 1 and not self.has_leaves and self.num_targets < self.num_nodes


def times_as_large(size: GraphSize, times: int, *, partitions: float) -> GraphSize:
    """Return about the size, on one rank, of a graph of so many times the nodes, of which this one is a subsample.

    partitions: how many times as many it has.
    """
    typed = size.typed
    if typed is not None:
        counted = (typed.nodes, typed.edges, typed.entries)
        nodes, edges, entries = (tuple(each * times for each in counts) for counts in counted)
        typed = replace(typed, nodes=nodes, edges=edges, nodes_of_all=typed.nodes_of_all * times, entries=entries)
    return replace(
        size,
        num_nodes=size.num_nodes * times,
        num_edges=size.num_edges * times,
        num_targets=size.num_targets * times,
        largest=(math.ceil(size.largest[0] * times / partitions), math.ceil(size.largest[1] * times / partitions)),
        typed=typed,
        labelled=size.labelled * times,
        tested=size.tested * times,
        entries=(size.entries[0] * times, math.ceil(size.entries[1] * times / partitions)),
    )


def of_all_ranks(own: GraphSize, counts: IntArray, folder: str | None, exchange: Exchange) -> tuple[GraphSize, int]:
    """Return the size that every rank plans for, and how many have their files on this rank's disk.

    counts: this rank's targets by split. folder: None where files lie in the memory of the machine.
    """
    of = own.by_type
    figures = [own.num_nodes, own.num_edges, own.num_targets, *own.largest, disk_of(folder), *counts]
    most_of = [*own.entries, *of.nodes, *of.edges, *of.entries]
    told = told_by_all(exchange, np.array([*figures, *most_of], np.int64))
    told, most_of = told[:, : len(figures)], told[:, len(figures) :].max(0).tolist()
    num_nodes, num_edges, num_targets, nodes, edges = told[:, :5].max(0).tolist()
    found = iter(most_of)
    of_all, nodes_of, edges_of, entries_of = (
        tuple(islice(found, len(each))) for each in (own.entries, of.nodes, of.edges, of.entries)
    )
    size = replace(
        own,
        num_nodes=num_nodes,
        num_edges=num_edges,
        num_targets=num_targets,
        largest=(nodes, edges),
        ranks=exchange.size,
        targets_of_all=int(told[:, 6:].sum(0).max()),
        labelled=int(told[:, 6:].sum(1).max()),
        tested=int(told[:, 6 + _TEST].sum()),
        typed=own.typed and replace(own.typed, nodes=nodes_of, edges=edges_of, entries=entries_of),
        entries=(of_all[0], of_all[1]),
    )
    return size, int((told[:, 5] == told[exchange.rank, 5]).sum())


def graph_size(neighbors: Neighbors, targets: Sequence[int] | IntArray, partitions: range) -> GraphSize:
    """Return what is known of a rank's partitions before their edges are read. targets: of each split."""
    store, facts = neighbors.store, neighbors.store.facts
    book = store.book
    # of each partition in each relation
    in_edges = np.array([store.degrees(number).in_degree.sum(0).reshape(-1) for number in partitions])
    # of sparse features, of each partition in each type
    types = range(store.schema.num_types)
    entries = np.array([[store.num_entries(number, node_type=of) for of in types] for number in partitions])
    typed = None if not store.schema.is_typed else _typed_size(store, partitions, in_edges.sum(0), entries.sum(0))
    dense = facts.features.width if facts.features.kind == "dense" else 0
    columns = facts.has_weight + facts.attribute_width + (neighbors.sampling == "weighted")
    return GraphSize(
        num_nodes=sum(map(book.size, partitions)),
        num_edges=facts.num_edges if len(partitions) == book.num_partitions else int(in_edges.sum()),
        num_targets=int(max(targets)),
        feature_width=dense if typed is None else max(typed.features),
        edge_columns=columns,
        largest=(max(map(book.size, partitions)), int(in_edges.sum(1).max())),
        leaves=_most_leaves(neighbors, partitions),
        every_edge=neighbors.fanouts is None,
        typed=typed,
        entries=(int(entries.sum()), int(entries.sum(1).max())),
        labelled=int(sum(targets)),
        tested=int(targets[_TEST]),
        label_bytes=4 * facts.num_classes if LABEL_KINDS[facts.label_kind].is_list else 8,
    )


def _typed_size(store: GraphStore, partitions: range, edges: IntArray, entries: IntArray) -> TypedSize:
    """Return what is known of a rank's part of a typed graph.

    edges: in-edges in each relation. entries: of the sparse features of each type.
    """
    sizes = np.diff(store.book.offsets).reshape(-1, store.schema.num_types)
    kinds = store.facts.features_of_types
    return TypedSize(
        tuple(sizes[partitions.start : partitions.stop].sum(0).tolist()),
        tuple(0 if each is None or each.kind != "dense" else each.width for each in kinds),
        tuple(edges.tolist()),
        store.book.num_nodes,
        tuple(entries.tolist()),
    )


def _most_leaves(neighbors: Neighbors, partitions: range) -> int:
    """Return the mean number of leaves of the relation whose edges have most, rounded up; 1 where edges have none."""
    store = neighbors.store
    if set(store.facts.leaves_of_relations) == {1}:
        return 1
    held = [store.degrees(number) for number in partitions]
    num_relations = store.schema.num_relations
    edges = sum(each.in_degree.reshape(-1, num_relations).sum(0) for each in held)
    # a node's out-degree says of how many edges it is a leaf
    leaves = sum(each.out_degree.reshape(-1, num_relations).sum(0) for each in held)
    return max(2, int(np.ceil(leaves / np.maximum(edges, 1)).max()))
