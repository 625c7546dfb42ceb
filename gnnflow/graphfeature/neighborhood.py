"""Neighbourhoods: the k-hop neighbours of one or more targets as a self-contained graph.

In-edges are kept in sampling-priority order, so a fan-out is a prefix of a node's list and lists of the same node
nest. That makes merging exact: of all copies of a node the longest list wins, and no edges are compared. A node has a
list per relation, and the longest of each wins.

Shapes: B roots, N nodes, E edges, R relations, D distinct nodes, n rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gnnflow.graph.arrays import Array, IntArray, is_first, offsets_of
from gnnflow.graph.batch import Degrees, Features, NodeFeatures, TypedFeatures
from gnnflow.graph.edges import InEdges, join_relations

RowArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Neighborhood:
    """The merged k-hop neighbourhood of its roots. A node at the rim has no in-edges stored.

    roots [B] are the targets' rows; node_ids [N] dense ids; degrees, features and edges belong to the N rows. The
    edges' sources are rows too, as int32. Degrees and features of a typed graph hold the types.
    """

    roots: IntArray
    node_ids: IntArray
    degrees: Degrees
    features: NodeFeatures
    edges: InEdges

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.node_ids)

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.edges.num_edges


@dataclass(frozen=True)
class NeighborhoodRows:
    """The disjoint union of many neighbourhoods, of which several may have the same node.

    Row i owns the union's nodes node_offsets[i] .. node_offsets[i + 1] and roots root_offsets[i] .. root_offsets[i +
    1]; roots and sources are rows of the union. Both offsets: int64 [n + 1].
    """

    neighborhood: Neighborhood
    root_offsets: IntArray
    node_offsets: IntArray

    def __len__(self) -> int:
        """Return the number of neighbourhoods."""
        return len(self.node_offsets) - 1

    @property
    def edge_offsets(self) -> IntArray:
        """Offsets of each row's edges, where edges are grouped by row: int64 [n + 1]."""
        edges = self.neighborhood.edges
        # edges before each row's first node in each relation [R, n + 1]
        before = edges.offsets[np.arange(edges.num_relations)[:, None] * edges.num_targets + self.node_offsets]
        return offsets_of(np.diff(before).sum(0))


def side_by_side(neighborhoods: Sequence[Neighborhood]) -> NeighborhoodRows:
    """Return the disjoint union of one or more neighbourhoods of one graph. A single one is not copied."""
    # offsets of each neighbourhood's roots and nodes in the union [n + 1]
    root_offsets = offsets_of(np.array([len(each.roots) for each in neighborhoods], np.int64))
    node_offsets = offsets_of(np.array([each.num_nodes for each in neighborhoods], np.int64))
    if len(neighborhoods) == 1:
        return NeighborhoodRows(neighborhoods[0], root_offsets, node_offsets)
    starts = node_offsets[:-1].tolist()
    union = Neighborhood(
        roots=np.concatenate([each.roots + start for each, start in zip(neighborhoods, starts, strict=True)]),
        node_ids=np.concatenate([each.node_ids for each in neighborhoods]),
        degrees=join_degrees([each.degrees for each in neighborhoods]),
        features=_join_node_features([each.features for each in neighborhoods]),
        edges=join_edges([each.edges for each in neighborhoods], starts),
    )
    return NeighborhoodRows(union, root_offsets, node_offsets)


def merge(neighborhoods: Sequence[Neighborhood]) -> Neighborhood:
    """Return one neighbourhood of all roots, in their order, with every node once and rows sorted by node id.

    Per node and relation the longest in-edge list wins. A disjoint union is merged by its repeated ids.
    """
    union = side_by_side(neighborhoods).neighborhood
    if np.all(union.node_ids[1:] > union.node_ids[:-1]):
        return union
    winners, row_of = _longest(union.node_ids, union.edges.lengths.reshape(union.edges.num_relations, -1))
    # the same as numbers among the lists of all relations [R D]
    lists = (winners + np.arange(len(winners))[:, None] * union.num_nodes).ravel()
    # the whole list of each winner [E]
    picked = replace(union.edges, num_relations=1).prefix(lists, limit=None)
    # the new row of each edge's source or, one edge after the other, of its leaves
    sources = row_of[union.edges.sources_of(picked.positions)].astype(np.int32)
    # all else is equal in every copy of a node
    copies = winners[0]
    return Neighborhood(
        roots=row_of[union.roots],
        node_ids=union.node_ids[copies],
        degrees=union.degrees.take(copies),
        features=union.features.take(copies),
        edges=union.edges.take(picked.positions, offsets=picked.offsets, sources=sources),
    )


class _Copies(NamedTuple):
    """Copies of D distinct nodes, which are numbered by ascending id.

    winners [R, D]: the row of each node's longest list in each relation; numbers [N]: the number of each row's node.
    """

    winners: IntArray
    numbers: IntArray


def _longest(node_ids: IntArray, lengths: IntArray) -> _Copies:
    """Return the copies of each node, with the longest list in each relation. lengths: [R, N]."""
    # rows sorted by node id, so copies of a node are adjacent [N]
    order = np.argsort(node_ids, kind="stable")
    # whether a place in that order is the first of its node [N]
    starts_node = is_first(node_ids[order])
    # the node's number, by ascending id, at each place [N]
    group = np.cumsum(starts_node) - 1
    first_places = np.flatnonzero(starts_node)
    winners = np.stack([order[_first_longest(each[order], group, first_places)] for each in lengths])
    # the node's number of each row, in the order the rows came in [N]
    row_of = np.empty(len(order), np.int64)
    row_of[order] = group
    return _Copies(winners, row_of)


def _first_longest(lengths: IntArray, group: IntArray, first_places: IntArray) -> IntArray:
    """Return the first place of each group [D] with its longest list. lengths and group [N], places by group."""
    # the longest list of each node [D]
    longest = np.maximum.reduceat(lengths, first_places)
    # places with a list of that length, one or more per node [C]
    candidates = np.flatnonzero(lengths == longest[group])
    return candidates[is_first(group[candidates])]


def join_degrees(degrees: Sequence[Degrees]) -> Degrees:
    """Return the degrees of the nodes of several parts, part by part."""

    def join(pick: Callable[[Degrees], Array]) -> Array:
        return np.concatenate([pick(each) for each in degrees])

    return Degrees(
        join(lambda d: d.in_degree),
        join(lambda d: d.out_degree),
        join(lambda d: d.in_weight),
        _join_optional([each.types for each in degrees]),
    )


def join_edges(edges: Sequence[InEdges], starts: Sequence[int]) -> InEdges:
    """Return the in-edges of the nodes of several parts, part by part in each relation.

    starts: added to each part's sources. A single part is not copied where it starts at 0.
    """
    if len(edges) == 1 and not starts[0]:
        return edges[0]
    relations = range(edges[0].num_relations)
    return join_relations([_join_relation([each.relation(number) for each in edges], starts) for number in relations])


def _join_relation(edges: Sequence[InEdges], starts: Sequence[int]) -> InEdges:
    return InEdges(
        offsets=_join_offsets([each.offsets for each in edges]),
        sources=np.concatenate(
            [each.sources + start if start else each.sources for each, start in zip(edges, starts, strict=True)]
        ),
        weight=_join_optional([each.weight for each in edges]),
        attributes=_join_optional([each.attributes for each in edges]),
        next_arrival=_join_optional([each.next_arrival for each in edges]),
        time=_join_optional([each.time for each in edges]),
        leaves=_join_leaves(edges),
    )


def _join_leaves(edges: Sequence[InEdges]) -> IntArray | None:
    leaves = [each.leaves for each in edges if each.leaves is not None]
    assert len(leaves) in {0, len(edges)}, "edges of one graph have leaves alike"
    return _join_offsets(leaves) if leaves else None


def _join_node_features(features: Sequence[NodeFeatures]) -> NodeFeatures:
    typed = [each for each in features if isinstance(each, TypedFeatures)]
    if not typed:
        return join_features([each for each in features if isinstance(each, Features)])
    assert len(typed) == len(features), "neighbourhoods of one graph have the same types"
    # the features of each type, by neighbourhood
    parts = zip(*(each.parts for each in typed), strict=True)
    joined = ([part for part in own if part is not None] for own in parts)
    types = np.concatenate([each.types for each in typed])
    return TypedFeatures(types, tuple(join_features(own) if own else None for own in joined))


def join_features(features: Sequence[Features]) -> Features:
    """Return the features of the nodes of several parts, part by part."""
    first, forms = features[0].narrow, {(each.width, each.is_sparse, each.value is None) for each in features}
    assert len(forms) == 1
    for other in (each.narrow for each in features[1:]):
        assert first is other or (first is not None and other is not None and first.same_as(other))
    row_offsets = [each.offsets for each in features if each.offsets is not None]
    return Features(
        features[0].width,
        dense=_join_optional([None if each.dense is None else each.stored for each in features]),
        offsets=_join_offsets(row_offsets) if row_offsets else None,
        index=_join_optional([each.index for each in features]),
        value=_join_optional([each.value for each in features]),
        narrow=first,
    )


def _join_offsets(offsets: Sequence[IntArray]) -> IntArray:
    # cumulative lengths of all rows, neighbourhood by neighbourhood [N + 1]
    return offsets_of(np.concatenate([np.diff(each) for each in offsets]))


def _join_optional(arrays: Sequence[Array | None]) -> Array | None:
    present = [each for each in arrays if each is not None]
    assert len(present) in {0, len(arrays)}, "neighbourhoods of one graph have the same columns"
    return np.concatenate(present) if present else None
