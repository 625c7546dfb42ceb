"""Counts of a graph, known before its edges are read: nodes, edges, targets and leaves of a rank.

A graph without types has one type and one relation.
"""

from __future__ import annotations

import math
import platform
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gnnflow.executions.row_exchange import Exchange, told_by_all
from gnnflow.graph.arrays import IntArray
from gnnflow.graph.labels import LABEL_KINDS
from gnnflow.graph.splits import SPLITS
from gnnflow.neighbors.selected import Neighbors
from gnnflow.storage.graph_store import GraphStore

_TEST = SPLITS.index("test")


@dataclass(frozen=True)
class GraphSize:
    """Counts of a rank's part of a graph; of several ranks, each is the largest that one of them has.

    nodes, features, entries: of each type, its nodes, dense feature columns, and entries of sparse features (empty: no
    type has any). edges: of each relation. num_targets: of the largest split. edge_columns: numbers of an edge besides
    its ends. largest: the most nodes and in-edges of a partition; largest_entries: the most entries. all_nodes: of all
    ranks and types (0: as of one rank). leaves: of an edge, the mean of the relation whose edges have most, rounded
    up; 1 where edges have none. all_targets: of all ranks, which are told the outputs. labelled: targets of all splits;
    label_bytes: of one label. tested: targets of the test split, on all ranks. stored: of each type, the numbers of 4
    bytes of a dense row in fewer bytes than float32, 0 for another (empty: of all).
    """

    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    num_targets: int
    features: tuple[int, ...]
    edge_columns: int
    largest: tuple[int, int]
    is_typed: bool = False
    entries: tuple[int, ...] = ()
    largest_entries: int = 0
    all_nodes: int = 0
    leaves: int = 1
    ranks: int = 1
    all_targets: int = 0
    labelled: int = 0
    label_bytes: int = 8
    tested: int = 0
    stored: tuple[int, ...] = ()

    @property
    def narrow(self) -> tuple[int, ...]:
        """The numbers of 4 bytes of a row in fewer bytes, of each type: read before the row is widened."""
        return self.stored or (0,) * len(self.features)

    @property
    def in_files(self) -> tuple[int, ...]:
        """The numbers of 4 bytes of a dense row in files, of each type."""
        return tuple(rows or wide for rows, wide in zip(self.narrow, self.features, strict=True))

    @property
    def num_nodes(self) -> int:
        """Nodes of all types."""
        return sum(self.nodes)

    @property
    def num_edges(self) -> int:
        """Edges of all relations."""
        return sum(self.edges)

    @property
    def mean_entries(self) -> tuple[int, ...]:
        """Entries of a node's sparse features, of each type: the mean, rounded up."""
        held = self.entries or (0,) * len(self.nodes)
        return tuple(math.ceil(entries / max(nodes, 1)) for entries, nodes in zip(held, self.nodes, strict=True))

    @property
    def has_leaves(self) -> bool:
        """True where edges come from several nodes each."""
        return self.leaves > 1

    @property
    def may_prune(self) -> bool:
        """True where training may compute fewer rows than there are: on one rank, where some nodes are no targets."""
        return self.ranks == 1 and not self.has_leaves and self.num_targets < self.num_nodes


def scaled_size(size: GraphSize, times: int, *, partitions: float) -> GraphSize:
    """Return the approximate size of a graph with `times` as many nodes, of which this one is a subsample.

    partitions: by how much its number of partitions is larger. Of one rank.
    """

    def scaled(counts: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(each * times for each in counts)

    def of_partition(count: int) -> int:
        return math.ceil(count * times / partitions)

    return replace(
        size,
        nodes=scaled(size.nodes),
        edges=scaled(size.edges),
        entries=scaled(size.entries),
        all_nodes=size.all_nodes * times,
        num_targets=size.num_targets * times,
        largest=(of_partition(size.largest[0]), of_partition(size.largest[1])),
        largest_entries=of_partition(size.largest_entries),
        labelled=size.labelled * times,
        tested=size.tested * times,
    )


def of_all_ranks(own: GraphSize, counts: IntArray, folder: str | None, exchange: Exchange) -> tuple[GraphSize, int]:
    """Return the size that every rank plans for, and the number of ranks whose files lie on this rank's disk.

    counts: this rank's targets by split. folder: None where files lie in the memory of the machine.
    """
    # the disk is told by a hash of its machine and device
    place = "memory" if folder is None else Path(folder).stat().st_dev
    disk = zlib.crc32(f"{platform.node()} {place}".encode())
    figures = [disk, own.num_targets, *own.largest, own.largest_entries, *own.nodes, *own.edges, *own.entries]
    # of each rank its figures, and its targets by split
    told, splits = np.split(told_by_all(exchange, np.array([*figures, *counts], np.int64)), [len(figures)], axis=1)
    num_targets, nodes, edges, entries, *of_types = told[:, 1:].max(0).tolist()
    first, last = len(own.nodes), len(own.nodes) + len(own.edges)
    size = replace(
        own,
        nodes=tuple(of_types[:first]),
        edges=tuple(of_types[first:last]),
        entries=tuple(of_types[last:]),
        num_targets=num_targets,
        largest=(nodes, edges),
        largest_entries=entries,
        ranks=exchange.size,
        all_targets=int(splits.sum(0).max()),
        labelled=int(splits.sum(1).max()),
        tested=int(splits[:, _TEST].sum()),
    )
    return size, int((told[:, 0] == told[exchange.rank, 0]).sum())


def graph_size(neighbors: Neighbors, targets: Sequence[int] | IntArray, partitions: range) -> GraphSize:
    """Return the size of a rank's partitions. targets: of each split."""
    store, facts = neighbors.store, neighbors.store.facts
    book, schema = store.book, store.schema
    # in-edges of each partition in each relation
    in_edges = np.array([store.degrees(number).in_degree.sum(0).reshape(-1) for number in partitions])
    # entries of sparse features of each partition in each type
    entries = np.array(
        [[store.num_entries(number, node_type=of) for of in range(schema.num_types)] for number in partitions]
    )
    # nodes of each partition in each type
    nodes = np.diff(book.offsets).reshape(-1, schema.num_types)[partitions.start : partitions.stop]
    kinds = facts.features_of_types if schema.is_typed else [facts.features]
    stored = tuple(0 if each is None or each.narrow is None else -(-each.row_bytes // 4) for each in kinds)
    return GraphSize(
        nodes=tuple(nodes.sum(0).tolist()),
        edges=tuple(in_edges.sum(0).tolist()),
        num_targets=int(max(targets)),
        features=tuple(0 if each is None or each.kind != "dense" else each.width for each in kinds),
        edge_columns=facts.has_weight + facts.attribute_width + (neighbors.sampling.kind == "weighted"),
        largest=(max(map(book.size, partitions)), int(in_edges.sum(1).max())),
        is_typed=schema.is_typed,
        entries=tuple(entries.sum(0).tolist()),
        largest_entries=int(entries.sum(1).max()),
        all_nodes=book.num_nodes,
        leaves=_most_leaves(store, partitions),
        labelled=int(sum(targets)),
        label_bytes=4 * facts.num_classes if LABEL_KINDS[facts.label_kind].is_list else 8,
        tested=int(targets[_TEST]),
        stored=stored if any(stored) else (),
    )


def _most_leaves(store: GraphStore, partitions: range) -> int:
    """Return the mean number of leaves of the relation whose edges have most, rounded up; 1 where edges have none."""
    if set(store.facts.leaves_of_relations) == {1}:
        return 1
    held = [store.degrees(number) for number in partitions]
    num_relations = store.schema.num_relations
    edges = sum(each.in_degree.reshape(-1, num_relations).sum(0) for each in held)
    # the out-degree of a node is the number of edges of which it is a leaf
    leaves = sum(each.out_degree.reshape(-1, num_relations).sum(0) for each in held)
    return max(2, int(np.ceil(leaves / np.maximum(edges, 1)).max()))
