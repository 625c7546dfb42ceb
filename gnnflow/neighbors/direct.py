"""Select every node's in-edges once, for all hops and targets.

A node keeps its first `limit` in-edges in priority order, where limit is the largest fan-out; each hop then takes a
prefix, because fan-outs nest. A hub (in-degree above the threshold) is re-indexed as in AGL (VLDB 2020, section 3.2.2):
its edges are dealt by a salt to all reducers, each keeps its own first `limit`, and the owner merges what they send.
Top-k merges exactly, so the sample is that of one reducer. Without sampling nothing is selected and nothing copied: the
graph store itself is read, hubs included.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.edges import InEdges
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.sampling import priorities, top_k, top_k_ungrouped
from gnnflow.storage.columns import take_rows, to_matrix, to_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.graph.arrays import IntArray, KeyArray
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner
    from gnnflow.sampling import SamplingKind
    from gnnflow.storage.graph_store import GraphStore


@dataclass(frozen=True)
class SelectionPlan:
    """Which in-edges are kept. fanouts: one per hop, targets first; None keeps every edge."""

    store: GraphStore
    kind: SamplingKind
    fanouts: tuple[int, ...] | None
    seed: int
    hub_threshold: int

    @property
    def limit(self) -> int | None:
        """The most in-edges any hop takes of one node."""
        return max(self.fanouts) if self.fanouts else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a kept edge."""
        return ("dst", "src", *self.store.edge_columns)


def run_rounds(plan: SelectionPlan, runner: RoundRunner) -> tuple[dict[str, str], int]:
    """Run selection. Returns the channels `in_edges` reads (channel: round), and the number of hubs re-indexed."""
    if plan.limit is None:
        return {}, 0
    parts = plan.store.num_partitions
    records = runner.run(Round("select", parts, parts, partial(select_partition, plan=plan)))
    hubs = sum(record.counts["hubs"] for record in records)
    channels = {"selected": "select"}
    if hubs:
        runner.run(Round("select_hubs", parts, parts, partial(select_hubs, plan=plan), {"hub_edges": "select"}))
        channels["hub_selected"] = "select_hubs"
    return channels, hubs


def select_partition(index: int, _: Inbox, *, plan: SelectionPlan) -> TaskOutput:
    """Keep the first edges of a partition's nodes, piece by piece; deal the edges of its hubs to all reducers."""
    store, limit = plan.store, plan.limit
    assert limit is not None
    start = store.book.start(index)
    in_degree = to_numpy(store.nodes(index, ["in_degree"])["in_degree"])
    is_hub = in_degree > plan.hub_threshold
    pieces, hubs = [], []
    for piece, priority in _prioritized(plan, index):
        hub_row = is_hub[to_numpy(piece["dst"]) - start]
        hubs.append(_with_priority(piece, priority, np.flatnonzero(hub_row)))
        pieces.append(_first_edges(_with_priority(piece, priority, np.flatnonzero(~hub_row)), limit))
    kept = pieces[0] if len(pieces) == 1 else _first_edges(pa.concat_tables(pieces).combine_chunks(), limit)
    dealt = pa.concat_tables(hubs).combine_chunks()
    salt = (to_numpy(dealt["edge_key"]) % np.uint64(store.num_partitions)).astype(np.int64)
    return TaskOutput(
        emits=(
            Emit("selected", kept.select(plan.columns), np.full(kept.num_rows, index)),
            Emit("hub_edges", dealt, salt),
        ),
        counts={"hubs": int(is_hub.sum()), "hub_edges": dealt.num_rows, "kept": kept.num_rows},
    )


def _prioritized(plan: SelectionPlan, index: int) -> Iterator[tuple[pa.Table, KeyArray]]:
    columns = [*plan.columns, "edge_key"]
    empty = True
    for piece in plan.store.iter_edges(index, columns):
        empty = False
        weight = to_numpy(piece["weight"]) if "weight" in piece.column_names else None
        keys = to_numpy(piece["edge_key"])
        yield piece, priorities(keys, kind=plan.kind, seed=plan.seed, weight=None if plan.kind == "uniform" else weight)
    if empty:
        yield plan.store.edges(index, columns), np.zeros(0, np.uint64)


def _with_priority(piece: pa.Table, priority: KeyArray, rows: IntArray) -> pa.Table:
    table = piece if len(rows) == piece.num_rows else take_rows(piece, rows)
    return table.append_column("priority", pa.array(priority[rows]))


def _first_edges(table: pa.Table, limit: int) -> pa.Table:
    """Return each destination's first `limit` edges in priority order, grouped by destination."""
    nodes, row = np.unique(to_numpy(table["dst"]), return_inverse=True)
    priority, tie = to_numpy(table["priority"]), to_numpy(table["edge_key"])
    if len(row) == 0 or np.all(row[1:] >= row[:-1]):
        chosen = top_k(offsets_of(np.bincount(row, minlength=len(nodes))), priority, tie=tie, limit=limit)
    else:
        chosen = top_k_ungrouped(row, priority, num_targets=len(nodes), tie=tie, limit=limit)
    return take_rows(table, chosen.edges)


def select_hubs(index: int, inbox: Inbox, *, plan: SelectionPlan) -> TaskOutput:
    """Keep each hub's first edges among those this reducer was dealt, and send them to the hub's owner."""
    assert plan.limit is not None
    kept = _first_edges(inbox.read("hub_edges").combine_chunks(), plan.limit)
    return TaskOutput(
        emits=(Emit("hub_selected", kept, plan.store.book.owner(to_numpy(kept["dst"]))),),
        counts={"kept": kept.num_rows},
    )


def in_edges(index: int, inbox: Inbox, plan: SelectionPlan) -> InEdges:
    """Return a partition's in-edges by local row, sources as dense ids.

    Those that were selected, hubs merged back; all of them where nothing was sampled.
    """
    if plan.limit is None:
        table = plan.store.edges(index, plan.columns)
    else:
        table = inbox.read("selected")
        if "hub_selected" in inbox.channels:
            merged = _first_edges(inbox.read("hub_selected").combine_chunks(), plan.limit)
            table = pa.concat_tables([table, merged.select(plan.columns)])
    book = plan.store.book
    return edges_by_row(table, to_numpy(table["dst"]) - book.start(index), num_rows=book.size(index))


def edges_by_row(table: pa.Table, rows: IntArray, *, num_rows: int) -> InEdges:
    """Return edges with columns src and perhaps weight and attributes, grouped by the row each leads to [E].

    A row's edges keep the order of the table.
    """
    names = table.column_names
    edges = InEdges(
        offsets=offsets_of(np.bincount(rows, minlength=num_rows)),
        sources=to_numpy(table["src"]),
        weight=to_numpy(table["weight"]) if "weight" in names else None,
        attributes=to_matrix(table["attributes"]) if "attributes" in names else None,
    )
    if np.all(rows[1:] >= rows[:-1]):
        return edges
    return edges.take(np.argsort(rows, kind="stable"), offsets=edges.offsets)


def fanout_of(plan: SelectionPlan, hop: int) -> int | None:
    """Return how many in-edges hop number `hop` (from 1) takes of a node."""
    return None if plan.fanouts is None else plan.fanouts[hop - 1]
