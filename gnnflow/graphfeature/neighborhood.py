"""Neighbourhoods: the k-hop surroundings of one or more targets as a small graph that stands alone.

In-edges are kept in sampling-priority order, so a fan-out is a prefix of a node's list and lists of the same node
nest. That makes merging exact: of all copies of a node the longest list wins and nothing else needs comparing.

Shapes: R roots, N nodes, E edges, A edge attributes, n rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gnnflow.graph.arrays import Array, FloatArray, IntArray, offsets_of, ragged_ranges
from gnnflow.graph.batch import Degrees, Features

RowArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Neighborhood:
    """The merged k-hop neighbourhood of its roots. A node at the rim has no in-edges stored.

    roots [R] are the targets' rows; node_ids [N] dense ids; columns and features belong to the N rows. offsets [N +
    1] and sources [E] (int32 rows) are the in-edges by row, each row's in priority order. edge_weight [E] and
    edge_attributes [E, A] are None where the graph has none.
    """

    roots: IntArray
    node_ids: IntArray
    columns: Degrees
    features: Features
    offsets: IntArray
    sources: RowArray
    edge_weight: FloatArray | None = None
    edge_attributes: FloatArray | None = None

    @property
    def num_nodes(self) -> int:
        """How many nodes it holds."""
        return len(self.node_ids)

    @property
    def num_edges(self) -> int:
        """How many edges it holds."""
        return len(self.sources)


@dataclass(frozen=True)
class NeighborhoodRows:
    """Many neighbourhoods side by side, as one disjoint union: nothing is shared, a node may occur in several.

    Row i owns the union's nodes node_offsets[i] .. node_offsets[i + 1] and roots root_offsets[i] .. root_offsets[i +
    1]; roots and sources are rows of the union. Both offsets: int64 [n + 1].
    """

    neighborhood: Neighborhood
    root_offsets: IntArray
    node_offsets: IntArray

    def __len__(self) -> int:
        """Return how many neighbourhoods there are."""
        return len(self.node_offsets) - 1

    @property
    def edge_offsets(self) -> IntArray:
        """Which edges each row owns: int64 [n + 1]."""
        return self.neighborhood.offsets[self.node_offsets]


def side_by_side(neighborhoods: Sequence[Neighborhood]) -> NeighborhoodRows:
    """Return the disjoint union of one or more neighbourhoods of one graph. One alone is not copied."""
    root_offsets = offsets_of(np.array([len(each.roots) for each in neighborhoods], np.int64))
    node_offsets = offsets_of(np.array([each.num_nodes for each in neighborhoods], np.int64))
    if len(neighborhoods) == 1:
        return NeighborhoodRows(neighborhoods[0], root_offsets, node_offsets)
    starts = node_offsets[:-1].tolist()
    union = Neighborhood(
        roots=np.concatenate([each.roots + start for each, start in zip(neighborhoods, starts, strict=True)]),
        node_ids=np.concatenate([each.node_ids for each in neighborhoods]),
        columns=_join_columns([each.columns for each in neighborhoods]),
        features=_join_features([each.features for each in neighborhoods]),
        offsets=_join_offsets([each.offsets for each in neighborhoods]),
        sources=np.concatenate([each.sources + start for each, start in zip(neighborhoods, starts, strict=True)]),
        edge_weight=_join_optional([each.edge_weight for each in neighborhoods]),
        edge_attributes=_join_optional([each.edge_attributes for each in neighborhoods]),
    )
    return NeighborhoodRows(union, root_offsets, node_offsets)


def merge(neighborhoods: Sequence[Neighborhood]) -> Neighborhood:
    """Return one neighbourhood of all roots, in their order, with every node once and rows sorted by node id.

    Per node the longest in-edge list wins. A disjoint union is merged as well: repeated ids are what is looked for.
    """
    union = side_by_side(neighborhoods).neighborhood
    if np.all(union.node_ids[1:] > union.node_ids[:-1]):
        return union
    winners, row_of = _longest(union.node_ids, np.diff(union.offsets))
    lengths = np.diff(union.offsets)[winners]
    edges = ragged_ranges(union.offsets[winners], lengths)
    return Neighborhood(
        roots=row_of[union.roots],
        node_ids=union.node_ids[winners],
        columns=union.columns.take(winners),
        features=union.features.take(winners),
        offsets=offsets_of(lengths),
        sources=row_of[union.sources[edges]].astype(np.int32),
        edge_weight=None if union.edge_weight is None else union.edge_weight[edges],
        edge_attributes=None if union.edge_attributes is None else union.edge_attributes[edges],
    )


def _longest(node_ids: IntArray, lengths: IntArray) -> tuple[IntArray, IntArray]:
    """Return each distinct node's copy with the longest list, by ascending id, and every copy's number among them."""
    order = np.argsort(node_ids, kind="stable")
    starts_node = np.ones(len(order), bool)
    starts_node[1:] = node_ids[order[1:]] != node_ids[order[:-1]]
    group = np.cumsum(starts_node) - 1
    longest = np.maximum.reduceat(lengths[order], np.flatnonzero(starts_node))
    candidates = np.flatnonzero(lengths[order] == longest[group])
    first = np.ones(len(candidates), bool)
    first[1:] = group[candidates[1:]] != group[candidates[:-1]]
    row_of = np.empty(len(order), np.int64)
    row_of[order] = group
    return order[candidates[first]], row_of


def _join_columns(columns: Sequence[Degrees]) -> Degrees:
    def join(pick: Callable[[Degrees], Array]) -> Array:
        return np.concatenate([pick(each) for each in columns])

    return Degrees(join(lambda c: c.in_degree), join(lambda c: c.out_degree), join(lambda c: c.in_weight))


def _join_features(features: Sequence[Features]) -> Features:
    assert len({(each.width, each.is_sparse, each.value is None) for each in features}) == 1
    row_offsets = [each.offsets for each in features if each.offsets is not None]
    return Features(
        features[0].width,
        dense=_join_optional([each.dense for each in features]),
        offsets=_join_offsets(row_offsets) if row_offsets else None,
        index=_join_optional([each.index for each in features]),
        value=_join_optional([each.value for each in features]),
    )


def _join_offsets(offsets: Sequence[IntArray]) -> IntArray:
    return offsets_of(np.concatenate([np.diff(each) for each in offsets]))


def _join_optional(arrays: Sequence[Array | None]) -> Array | None:
    present = [each for each in arrays if each is not None]
    assert len(present) in {0, len(arrays)}, "neighbourhoods of one graph have the same columns"
    return np.concatenate(present) if present else None
