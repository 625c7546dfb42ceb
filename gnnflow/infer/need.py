"""Which rows each slice computes and which it must receive, planned from the last layer back.

D_K are the targets; D_{l-1} is D_l and the sources of D_l's in-edges. Each partition asks the owners for its sources
once, and the owners answer in the order they were asked, so source rows travel without their ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import distinct
from gnnflow.graph.hashing import combine, seed_word
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from gnnflow.graph.arrays import IntArray, KeyArray
    from gnnflow.infer.job import InferJob
    from gnnflow.mapreduce.exchange import Inbox


@dataclass(frozen=True)
class Sends:
    """The local rows that partitions asked for, a row once per partition, and the partition each goes to."""

    rows: IntArray
    destination: IntArray


def plan_need(index: int, inbox: Inbox, *, job: InferJob, layer: int) -> TaskOutput:
    """Ask the owners for the sources of this partition's in-edges at a layer."""
    store, book = job.neighbors.store, job.neighbors.store.book
    # local rows this layer computes here, ascending [T]
    rows = targets_of(index, job) if layer == job.num_layers else computed_rows(index, inbox, job, layer)
    # the in-edges the layer takes of them [E]
    edges = job.neighbors.in_edges(index)
    picked = edges.prefix(rows, limit=job.fanout(layer))
    # the dense ids these come from, ascending, each once [S]
    sources = distinct(edges.sources[picked.positions])
    counts: dict[str, Any] = {"rows": len(rows), "sources": len(sources)}
    if layer == job.num_layers:
        counts["sample"] = _sample(rows, to_numpy(store.nodes(index, ["key"])["key"]), book.start(index), job)
    return TaskOutput(
        emits=(
            Emit(f"asked_{layer}", pa.table({"node": sources}), book.owner(sources)),
            Emit(f"rows_{layer}", pa.table({"row": rows}), np.full(len(rows), index)),
        ),
        counts=counts,
    )


def targets_of(index: int, job: InferJob) -> IntArray:
    """Return the local rows to score."""
    if isinstance(job.node_targets, str):
        return np.arange(job.neighbors.store.book.size(index))
    split = to_numpy(job.neighbors.store.nodes(index, ["split"])["split"])
    return np.flatnonzero(np.isin(split, job.node_targets))


def computed_rows(index: int, inbox: Inbox, job: InferJob, layer: int) -> IntArray:
    """Return D_layer of this partition: its own rows of the layer above, and what was asked of it there."""
    above = job.need_layer(layer + 1)
    # local rows that partitions asked of this one for the layer above, a row as often as it was asked for
    asked = to_numpy(inbox.read(f"asked_{above}")["node"]) - job.neighbors.store.book.start(index)
    return distinct(np.concatenate([to_numpy(inbox.read(f"rows_{above}")["row"]), asked]))


def rows_of_layer(index: int, inbox: Inbox, job: InferJob, layer: int) -> IntArray:
    """Return D_layer, as the layer's own need round recorded it; D_0 follows from the first layer's."""
    if layer == 0:
        return computed_rows(index, inbox, job, 0)
    return to_numpy(inbox.read(f"rows_{job.need_layer(layer)}")["row"])


def sends_of(index: int, inbox: Inbox, job: InferJob, layer: int) -> Sends:
    """Return the local rows each partition asked of this one for a layer, grouped by partition."""
    start = job.neighbors.store.book.start(index)
    # local rows asked for, one array per asking partition
    asked = [to_numpy(piece["node"]) - start for piece in inbox.pieces(f"asked_{job.need_layer(layer)}")]
    # the partition that asked for each of them
    destination = np.repeat(np.arange(len(asked)), [len(rows) for rows in asked])
    return Sends(np.concatenate(asked), destination)


def need_channels(job: InferJob, layer: int) -> dict[str, str]:
    """Return the reads that make a layer's asked and rows channels available."""
    served = job.need_layer(layer)
    return {f"asked_{served}": f"need_{served}", f"rows_{served}": f"need_{served}"}


def _sample(rows: IntArray, keys: KeyArray, start: int, job: InferJob) -> list[list[int]]:
    """Return this partition's candidates for the parity certificate: (hash, dense id), smallest hashes first."""
    # one hash per row to score, and the places of the smallest
    hashed = combine(keys[rows], seed_word(job.seed, "parity"))
    first = np.argsort(hashed, kind="stable")[: job.parity_samples]
    pairs = np.stack([(hashed[first] >> np.uint64(1)).astype(np.int64), rows[first] + start], axis=1)
    listed: list[list[int]] = pairs.tolist()
    return listed
