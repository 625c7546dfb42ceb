"""One layer of a partition from what other partitions sent: while one piece is computed on, the next are fetched.

Where nothing is gained by parts the layer's in-edges are one block, made while the rows arrive. Where pieces are large,
or some come as states, the state over the edges that are at hand comes first and the others are merged to it: rows by
ascending partition, then states by ascending partition, whatever arrives first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gnnflow.executions.sliced import layer_slice, term_layouts
from gnnflow.executions.sliced_states import MergedStates, sent_state
from gnnflow.infer.reads import LayerReads
from gnnflow.infer.states import Plan, plan_of
from gnnflow.mapreduce.ahead import fetching
from gnnflow.storage.columns import to_matrix

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from gnnflow.executions.sliced import TermLayouts
    from gnnflow.graph.arrays import Array, FloatArray, IntArray
    from gnnflow.infer.job import InferJob
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Inbox


def plain_layer(
    index: int, inbox: Inbox, job: InferJob, model: Model, *, layer: int, own: pa.Table, rows: IntArray
) -> FloatArray:
    """Return layer `layer`'s output of local rows [T] of a graph without types. own: what was kept of them."""
    plan = plan_of(index, inbox, job, layer)
    if plan is None:
        everyone = np.ones(job.neighbors.store.num_partitions, np.int64)
        plan = Plan(everyone, np.zeros(len(everyone), bool), by_pieces=False)
    # whose rows the first part reads [P]: all that come as rows, or this partition's own alone
    at_once = ~plan.as_states & (np.arange(len(plan.as_states)) == index if plan.by_pieces else True)
    sends = plan.num_asked > 0
    by_rows, by_states = np.flatnonzero(sends & ~at_once & ~plan.as_states), np.flatnonzero(plan.as_states)
    row_senders = np.concatenate([np.flatnonzero(sends & at_once), by_rows])
    wanted = [(f"source_{layer}", task) for task in row_senders.tolist()]
    wanted += [(f"state_{layer}", task) for task in by_states.tolist()]
    layouts = term_layouts(model, layer - 1)
    # A layer without target terms keeps none: Arrow has no column of width zero.
    target = layouts.target.unpack(to_matrix(own["target"])) if layouts.target.names else {}
    with fetching(inbox, wanted) as pieces:
        reads = LayerReads.of(index, job, layer=layer, rows=rows)
        if not plan.by_pieces and not plan.as_states.any():
            block = reads.whole
            source = layouts.source.unpack(_rows(to_matrix(own["source"]), pieces, len(wanted)))
            return layer_slice(model, layer - 1, own=target, source=source, block=block)
        merged = MergedStates(model, layer - 1, own=target, sample_scale=reads.whole.sample_scale)
        first = at_once & sends
        _merge_rows(merged, reads, pieces, layouts, own=to_matrix(own["source"]), at_once=first, by_rows=by_rows)
        layout = sent_state(model, layer - 1, **job.edge_columns)
        for owner in by_states.tolist():
            assert layout is not None, "states were sent of a layer that has none"
            merged.add_state(layout.unpack(to_matrix(next(pieces)["state"])), reads.targets_of(owner))
    return merged.finish(layouts.source.unpack(to_matrix(own["source"])), **job.edge_columns)


def _merge_rows(
    merged: MergedStates,
    reads: LayerReads,
    pieces: Iterator[pa.Table],
    layouts: TermLayouts,
    *,
    own: FloatArray,
    at_once: Array,
    by_rows: IntArray,
) -> None:
    """Merge what comes as rows: first that of the targets' own rows and of partitions `at_once`, then each other's."""
    block = reads.of_owners(at_once)
    source = layouts.source.unpack(_rows(own, pieces, int(at_once.sum())))
    merged.add_block(source, block)
    for owner in by_rows.tolist():
        block, targets = reads.of_owner(owner)
        merged.add_block(layouts.source.unpack(to_matrix(next(pieces)["row"])), block, targets)


def _rows(own: FloatArray, pieces: Iterator[pa.Table], number: int) -> FloatArray:
    """Return the targets' own packed rows and those of the next pieces, one below the other."""
    return np.concatenate([own, *(to_matrix(next(pieces)["row"]) for _ in range(number))])
