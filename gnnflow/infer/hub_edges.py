"""In-edges of hubs that the need round splits off, and sends to the owners of their sources; `hubs.py` says why.

Shapes: T targets, H hubs among them, n in-edges that are split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import distinct, offsets_of, ragged_ranges
from gnnflow.mapreduce.exchange import Emit
from gnnflow.storage.columns import from_matrix, to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.graph.arrays import IntArray
    from gnnflow.graph.edges import InEdges
    from gnnflow.infer.job import InferJob
    from gnnflow.mapreduce.exchange import Inbox


@dataclass(frozen=True)
class HubEdges:
    """In-edges of a partition's hubs in a relation. number: of hubs, split or not.

    edges: of all targets. positions [n]: of the edges that are split, hub by hub; sources [n]: the dense id that each
    comes from; targets [n]: the local row that it leads to.
    """

    number: int
    edges: InEdges
    positions: IntArray
    sources: IntArray
    targets: IntArray

    @property
    def counts(self) -> HubCounts:
        """The number of hubs, and of their edges that are split."""
        return HubCounts(self.number, len(self.positions))


class HubCounts(NamedTuple):
    """The number of a partition's hubs in a relation, and of their in-edges that are split."""

    number: int
    edges: int


class SplitEdges(NamedTuple):
    """The edges that stay with the owner of their targets, and the hubs with the others."""

    own: InEdges
    hubs: HubEdges


def split_edges(edges: InEdges, rows: IntArray, *, index: int, job: InferJob, layer: int, relation: int) -> SplitEdges:
    """Split off the edges of hubs that come from other partitions. rows [T]: the targets' local rows."""
    hubs = none = np.zeros(0, np.int64)
    if job.hub_threshold is not None and job.neighbors.sampling.takes_every:
        hubs = rows[edges.offsets[rows + 1] - edges.offsets[rows] > job.hub_threshold]
    if not len(hubs) or not job.splits_hubs(job.need_layer(layer), relation):
        return SplitEdges(edges, HubEdges(len(hubs), edges, none, none, none))
    lengths, start = edges.lengths, job.neighbors.store.book.start(index)
    positions = ragged_ranges(edges.offsets[hubs], lengths[hubs])
    # whether each edge of a hub comes from elsewhere, and how many do of each hub [H]
    sources = edges.sources_of(positions)
    outside = (sources < start) | (sources >= start + job.neighbors.store.book.size(index))
    number = np.add.reduceat(outside, offsets_of(lengths[hubs])[:-1], dtype=np.int64)
    positions, sources = positions[outside], sources[outside]
    # the other edges, by target
    kept = np.ones(edges.num_edges, bool)
    kept[positions] = False
    lengths[hubs] -= number
    own = edges.take(np.flatnonzero(kept), offsets=offsets_of(lengths))
    return SplitEdges(own, HubEdges(len(hubs), edges, positions, sources, np.repeat(hubs, number)))


def send_edges(hubs: HubEdges, *, index: int, job: InferJob, layer: int, relation: int) -> tuple[Emit, ...]:
    """Return the split edges on their way to the owners of their sources. layer: of the need round."""
    if not len(hubs.positions):
        return ()
    book, edges, positions = job.neighbors.store.book, hubs.edges, hubs.positions
    owner = book.owner(hubs.sources)
    # local rows at the owners of the sources
    columns = {"source": pa.array(hubs.sources - book.offsets[:: book.num_types][owner])}
    columns["target"] = pa.array(hubs.targets)
    if edges.weight is not None:
        columns["weight"] = pa.array(edges.weight[positions])
    if edges.attributes is not None and edges.attributes.shape[1]:
        columns["attributes"] = from_matrix(edges.attributes[positions])
    # the hubs whose terms this partition sends later
    rows = distinct(hubs.targets)
    named = Emit(job.channel("hub_rows", layer, relation), pa.table({"row": rows}), np.full(len(rows), index))
    return Emit(job.channel("hub_edges", layer, relation), pa.table(columns), owner), named


def sources_here(inbox: Inbox, job: InferJob, layer: int, relation: int) -> IntArray:
    """Return the local rows that split edges of a layer's relation come from, ascending."""
    found = [to_numpy(edges["source"]) for edges in edges_here(inbox, job, layer, relation)]
    return distinct(np.concatenate(found)) if found else np.zeros(0, np.int64)


def edges_here(inbox: Inbox, job: InferJob, layer: int, relation: int) -> Sequence[pa.Table]:
    """Return the edges that each owner of hubs sent here."""
    owners, channel = job.hub_owners(layer, relation), job.channel("hub_edges", job.need_layer(layer), relation)
    return list(inbox.pieces(channel, tasks=owners)) if owners else []


def hub_channels(job: InferJob, layer: int, *names: str) -> tuple[str, ...]:
    """Return the channels of some names in which something of a layer's hubs travels."""
    return tuple(job.channel(name, layer, relation) for name in names for relation in job.hub_relations(layer))


def need_channels(job: InferJob, need_layer: int) -> tuple[str, ...]:
    """Return the channels in which a need round sends split edges and names hubs."""
    return hub_channels(job, need_layer, "hub_edges", "hub_rows")
