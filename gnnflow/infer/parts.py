"""One layer of a partition from what other partitions sent, fetched while the task reads and orders its edges.

Where nothing is gained by parts the layer's in-edges are one block, as if all rows had been there from the start. Where
some partitions send states, or there are more rows than a task should hold, the state over the edges that are at hand
comes first and the others are merged to it, each while the next is fetched: rows by ascending partition, then states by
ascending partition, whatever arrives first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.executions.sliced import layer_slice, term_layouts
from gnnflow.executions.sliced_states import MergedStates, sent_state
from gnnflow.infer.reads import LayerReads
from gnnflow.infer.states import plan_of
from gnnflow.mapreduce.ahead import fetching
from gnnflow.storage.columns import to_matrix

if TYPE_CHECKING:
    import pyarrow as pa

    from gnnflow.executions.sliced import TermArrays, TermLayouts
    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.infer.job import InferJob
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Inbox

_PIECES_AHEAD = 2
"""How many pieces are fetched, or wait fetched, while one is merged: memory holds no more of them."""


def plain_layer(
    index: int, inbox: Inbox, job: InferJob, model: Model, *, layer: int, rows: IntArray
) -> tuple[FloatArray, pa.Table]:
    """Return layer `layer`'s output of local rows [T] of a graph without types, and what was kept of them for it."""
    plan = plan_of(index, inbox, job, layer)
    sends = plan.num_asked > 0
    # whose rows the first part reads [P]: all that come as rows, or this partition's own alone
    at_once = sends & ~plan.as_states & (np.arange(len(sends)) == index if plan.by_pieces else True)
    by_rows, by_states = np.flatnonzero(sends & ~at_once & ~plan.as_states), np.flatnonzero(plan.as_states)
    wanted = [(f"own_{layer}", index)]
    wanted += [(f"source_{layer}", task) for each in (np.flatnonzero(at_once), by_rows) for task in each.tolist()]
    wanted += [(f"state_{layer}", task) for task in by_states.tolist()]
    ahead = _PIECES_AHEAD if plan.by_pieces else job.exchange.ahead(len(wanted))
    with fetching(inbox, wanted, ahead=ahead) as pieces:
        reads = LayerReads.of(index, job, layer=layer, rows=rows)
        first = reads.of_owners(at_once) if plan.by_pieces or len(by_states) else reads.whole
        own = next(pieces)
        kept = _Kept.of(own, term_layouts(model, layer - 1))
        # packed source terms of the T targets, then of the rows that come first
        source = kept.layouts.source.unpack(
            np.concatenate([kept.source, *(to_matrix(next(pieces)["row"]) for _ in range(int(at_once.sum())))])
        )
        if first is reads.whole:
            return layer_slice(model, layer - 1, own=kept.target, source=source, block=first), own
        merged = MergedStates(model, layer - 1, own=kept.target, sample_scale=reads.whole.sample_scale)
        merged.add_block(source, first)
        for owner in by_rows.tolist():
            block, targets = reads.of_owner(owner)
            merged.add_block(kept.layouts.source.unpack(to_matrix(next(pieces)["row"])), block, targets)
        layout = sent_state(model, layer - 1, **job.edge_columns)
        for owner in by_states.tolist():
            assert layout is not None, "states were sent of a layer that has none"
            merged.add_state(layout.unpack(to_matrix(next(pieces)["state"])), reads.targets_of(owner))
    return merged.finish(kept.layouts.source.unpack(kept.source), **job.edge_columns), own


@dataclass(frozen=True)
class _Kept:
    """What was kept of T targets: packed source terms [T, K], target terms, and how they are packed."""

    source: FloatArray
    target: TermArrays
    layouts: TermLayouts

    @classmethod
    def of(cls, own: pa.Table, layouts: TermLayouts) -> _Kept:
        # A layer without target terms keeps none: Arrow has no column of width zero.
        target = layouts.target.unpack(to_matrix(own["target"])) if layouts.target.names else {}
        return cls(to_matrix(own["source"]), target, layouts)
