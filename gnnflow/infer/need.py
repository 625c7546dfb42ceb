"""Which rows each slice computes and which it must receive, planned from the last layer back.

D_K are the targets; D_{l-1} is D_l and the sources of D_l's in-edges. Each partition asks the owners for its sources
once, and the owners answer in the order they were asked, so source rows travel without their ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gnnflow.graph.block import distinct
from gnnflow.graph.hashing import combine, seed_word
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.selection.rounds import kept_edges, prefix_rows
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from gnnflow.graph.block import IntArray, KeyArray
    from gnnflow.infer.task import InferTask
    from gnnflow.mapreduce.exchange import Inbox


@dataclass(frozen=True)
class Sends:
    """The local rows other partitions asked for: partition q gets rows[bounds[q] : bounds[q + 1]]."""

    rows: IntArray
    destination: IntArray


def plan_need(index: int, inbox: Inbox, *, task: InferTask, layer: int) -> TaskOutput:
    """Ask the owners for the sources of this partition's in-edges at a layer."""
    store, book = task.selection.store, task.selection.store.book
    rows = targets_of(index, task) if layer == task.num_layers else computed_rows(index, inbox, task, layer)
    edges = kept_edges(index, inbox, task.selection)
    picked, _ = prefix_rows(edges, rows, np.zeros(len(rows), np.int64), task.fanout(layer))
    sources = distinct(edges.src[picked])
    counts: dict[str, Any] = {"rows": len(rows), "sources": len(sources)}
    if layer == task.num_layers:
        counts["sample"] = _sample(rows, to_numpy(store.nodes(index, ["key"])["key"]), book.start(index), task)
    return TaskOutput(
        emits=(
            Emit(f"asked_{layer}", pa.table({"node": sources}), book.owner(sources)),
            Emit(f"rows_{layer}", pa.table({"row": rows}), np.full(len(rows), index)),
        ),
        counts=counts,
    )


def targets_of(index: int, task: InferTask) -> IntArray:
    """Return the local rows to score."""
    if isinstance(task.targets, str):
        return np.arange(task.selection.store.book.size(index))
    split = to_numpy(task.selection.store.nodes(index, ["split"])["split"])
    return np.flatnonzero(np.isin(split, task.targets))


def computed_rows(index: int, inbox: Inbox, task: InferTask, layer: int) -> IntArray:
    """Return D_layer of this partition: its own rows of the layer above, and what was asked of it there."""
    above = task.need_layer(layer + 1)
    asked = to_numpy(inbox.read(f"asked_{above}")["node"]) - task.selection.store.book.start(index)
    return distinct(np.concatenate([to_numpy(inbox.read(f"rows_{above}")["row"]), asked]))


def rows_of_layer(index: int, inbox: Inbox, task: InferTask, layer: int) -> IntArray:
    """Return D_layer, as the layer's own need round recorded it; D_0 follows from the first layer's."""
    if layer == 0:
        return computed_rows(index, inbox, task, 0)
    return to_numpy(inbox.read(f"rows_{task.need_layer(layer)}")["row"])


def sends_of(index: int, inbox: Inbox, task: InferTask, layer: int) -> Sends:
    """Return the local rows each partition asked of this one for a layer, grouped by partition."""
    start = task.selection.store.book.start(index)
    asked = [to_numpy(piece["node"]) - start for piece in inbox.pieces(f"asked_{task.need_layer(layer)}")]
    destination = np.repeat(np.arange(len(asked)), [len(rows) for rows in asked])
    return Sends(np.concatenate(asked), destination)


def need_channels(task: InferTask, layer: int) -> dict[str, str]:
    """Return the reads that make a layer's asked and rows channels available."""
    served = task.need_layer(layer)
    return {f"asked_{served}": f"need_{served}", f"rows_{served}": f"need_{served}"}


def _sample(rows: IntArray, keys: KeyArray, start: int, task: InferTask) -> list[list[int]]:
    """Return this partition's candidates for the parity certificate: (hash, dense id), smallest hashes first."""
    hashed = combine(keys[rows], seed_word(task.seed, "parity"))
    first = np.argsort(hashed, kind="stable")[: task.parity_samples]
    pairs = np.stack([(hashed[first] >> np.uint64(1)).astype(np.int64), rows[first] + start], axis=1)
    listed: list[list[int]] = pairs.tolist()
    return listed
