"""Direct in-neighbours, sampled: each node's first in-edges in priority order, kept once for all hops and runs.

A node keeps as many as the largest fan-out takes; each hop then takes a prefix, because fan-outs nest. A hub
(in-degree above the threshold) is re-indexed as in AGL (VLDB 2020, section 3.2.2): its edges are dealt to all
reducers, each keeps its first edges, and the owner merges them. Top-k merges exactly, so the sample equals one
reducer's, whoever gets an edge.

A weighted sample also needs the arrival of the first edge that was left out (`gnnflow.graph.edges` says why): one edge
more travels until the end, where each kept edge gets the arrival of the next one.

Each relation has separate rounds: a node is a hub, and keeps its first edges, in each relation.

Shapes: E edges of a piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.schema import qualified
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.neighbors.selected import NEXT_ARRIVAL
from gnnflow.sampling import arrivals, priorities, top_k, top_k_ungrouped
from gnnflow.storage.columns import take_rows, to_numpy
from gnnflow.storage.graph_store import edges_file
from gnnflow.storage.tables import commit_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.graph.arrays import FloatArray
    from gnnflow.graph.sampling import Fanout
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner
    from gnnflow.sampling import SamplingKind
    from gnnflow.storage.graph_store import GraphStore
    from gnnflow.storage.writing import FileEntry

_ROW_GROUP = 1 << 20


@dataclass(frozen=True)
class SelectJob:
    """The job of the selection, known to every task. kept: the most in-edges of a node in each relation."""

    artifact: str
    store: GraphStore
    sampling: SamplingKind
    kept: Fanout
    seed: int
    hub_threshold: int


@dataclass(frozen=True)
class RelationJob:
    """The job of the selection in one relation, known to every task."""

    whole: SelectJob
    relation: int

    @property
    def store(self) -> GraphStore:
        """The store that edges are read from."""
        return self.whole.store

    def round_name(self, step: str) -> str:
        """Return the name of a step's round in the relation."""
        schema = self.store.schema
        return qualified(step, schema.name_of(schema.relations[self.relation]))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of an in-edge in the store."""
        return ("dst", "src", *self.store.edge_columns_of(self.relation))

    @property
    def kept(self) -> int:
        """The most in-edges that a node keeps."""
        return self.whole.kept if isinstance(self.whole.kept, int) else self.whole.kept[self.relation]

    @property
    def carried(self) -> int:
        """The most in-edges of a node that go from round to round."""
        return self.kept + 1 if self.whole.sampling == "weighted" else self.kept


@dataclass(frozen=True)
class SelectResult:
    """The committed files, one per relation and partition in order, and the numbers of edges and hubs."""

    files: tuple[FileEntry, ...]
    num_edges: int
    num_hubs: int


def run_rounds(job: SelectJob, runner: RoundRunner) -> SelectResult:
    """Run the selection, one relation after the other."""
    results = [_select(RelationJob(job, number), runner) for number in range(job.store.schema.num_relations)]
    files = tuple(entry for result in results for entry in result.files)
    return SelectResult(files, sum(each.num_edges for each in results), sum(each.num_hubs for each in results))


def _select(job: RelationJob, runner: RoundRunner) -> SelectResult:
    """Select in one relation. A partition without hubs is written by the first round already."""
    parts = job.store.num_partitions
    first, hubs, merge = (job.round_name(step) for step in ("select", "select_hubs", "select_merge"))
    records = runner.run(Round(first, parts, parts, partial(select_partition, job=job)))
    num_hubs = sum(record.counts["hubs"] for record in records)
    if num_hubs:
        dealt = {"hub_edges": first}
        runner.run(Round(hubs, parts, parts, partial(select_hubs, job=job), dealt, frozenset(dealt)))
        reads = {"selected": first, "hub_selected": hubs}
        merged = runner.run(Round(merge, parts, parts, partial(merge_hubs, job=job), reads))
        records = [late if late.files else early for early, late in zip(records, merged, strict=True)]
    files = tuple(entry for record in records for entry in record.files)
    return SelectResult(files, sum(record.counts["kept"] for record in records), num_hubs)


def select_partition(index: int, _: Inbox, *, job: RelationJob) -> TaskOutput:
    """Keep the first edges of a partition's nodes, piece by piece; deal edges of hubs to all reducers."""
    store, node_type = job.store, job.store.schema.target_types[job.relation]
    # the first node that the relation may lead to, and whether each of these nodes is a hub [nodes]
    start = store.book.start(index) + store.book.rows(index, node_type).start
    is_hub = store.in_degrees(index, job.relation) > job.whole.hub_threshold
    pieces, hubs = [], []
    for piece in _pieces(job, index):
        # whether each edge leads to a hub [E]
        to_hub = is_hub[to_numpy(piece["dst"]) - start]
        others = take_rows(piece, np.flatnonzero(~to_hub)) if to_hub.any() else piece
        pieces.append(_first_edges(_with_priority(others, job), job.carried))
        hubs.append(take_rows(piece, np.flatnonzero(to_hub)))
    # a node may lie in two pieces: its first edges are among the first of each
    first = pieces[0] if len(pieces) == 1 else _first_edges(pa.concat_tables(pieces).combine_chunks(), job.carried)
    kept = _finished(first, job)
    dealt = pa.concat_tables(hubs).combine_chunks()
    # the reducer of each hub edge [hub edges]: runs of one length, which are sent as they lie
    salt = np.arange(dealt.num_rows) * store.num_partitions // max(dealt.num_rows, 1)
    files = () if is_hub.any() else (_commit(index, kept, job),)
    waiting = kept.slice(0, 0) if files else kept
    return TaskOutput(
        emits=(Emit("selected", waiting, np.full(waiting.num_rows, index)), Emit("hub_edges", dealt, salt)),
        files=files,
        counts={"hubs": int(is_hub.sum()), "kept": kept.num_rows, "hub_edges": dealt.num_rows},
    )


def select_hubs(index: int, inbox: Inbox, *, job: RelationJob) -> TaskOutput:
    """Keep each hub's first edges of this reducer, and send them to the hub's owner."""
    kept = _first_edges(_with_priority(inbox.read("hub_edges").combine_chunks(), job), job.carried)
    return TaskOutput(
        emits=(Emit("hub_selected", kept, job.store.book.owner(to_numpy(kept["dst"]))),),
        counts={"kept": kept.num_rows},
    )


def merge_hubs(index: int, inbox: Inbox, *, job: RelationJob) -> TaskOutput:
    """Merge the reducers' edges of a partition's hubs with its other nodes' edges; skip one without hubs."""
    sent = inbox.read("hub_selected").combine_chunks()
    if not sent.num_rows:
        return TaskOutput()
    merged = _finished(_first_edges(sent, job.carried), job)
    table = pa.concat_tables([inbox.read("selected"), merged]).combine_chunks()
    # edges back in the order of their destinations; a stable sort keeps each node's priority order
    table = take_rows(table, np.argsort(to_numpy(table["dst"]), kind="stable"))
    return TaskOutput(files=(_commit(index, table, job),), counts={"kept": table.num_rows})


def _finished(table: pa.Table, job: RelationJob) -> pa.Table:
    """Return the columns of selected edges, cut to those that are kept. table: edges in priority order."""
    if job.whole.sampling != "weighted":
        return table.select(job.columns)
    dst, arrival = to_numpy(table["dst"]), arrivals(to_numpy(table["priority"]))
    # whether an edge is the last of its node [E]
    last = np.append(dst[1:] != dst[:-1], [True] * bool(len(dst)))
    # arrival of the next edge of the same node [E], infinity for a node's last
    following = np.where(last, np.inf, np.append(arrival[1:], [np.inf] * bool(len(dst))))
    table = table.select(job.columns).append_column(NEXT_ARRIVAL, pa.array(following))
    # each edge's place among the edges of its node [E]
    ends = np.flatnonzero(last) + 1
    lengths = np.diff(ends, prepend=0)
    place = np.arange(len(dst)) - np.repeat(ends - lengths, lengths)
    return take_rows(table, np.flatnonzero(place < job.kept))


def _commit(index: int, table: pa.Table, job: RelationJob) -> FileEntry:
    name = edges_file(index, job.store.schema, relation=job.relation)
    return commit_table(job.whole.artifact, name, table, row_group_size=_ROW_GROUP)


def _pieces(job: RelationJob, index: int) -> Iterator[pa.Table]:
    """Yield pieces of a partition's in-edges; one empty piece where there is no edge."""
    store, columns = job.store, [*job.columns, "edge_key"]
    empty = True
    for piece in store.iter_edges(index, columns, relation=job.relation):
        empty = False
        yield piece
    if empty:
        yield store.edges(index, columns, relation=job.relation)


def _weights(piece: pa.Table, store: GraphStore) -> FloatArray | None:
    """Return the weight of each edge [E]: 1 in a relation without weights where others have them."""
    if "weight" in piece.column_names:
        return to_numpy(piece["weight"])
    return np.ones(piece.num_rows, np.float32) if store.facts.has_weight else None


def _with_priority(edges: pa.Table, job: RelationJob) -> pa.Table:
    """Return edges with the priority of each."""
    sampling = job.whole.sampling
    weight = None if sampling == "uniform" else _weights(edges, job.store)
    priority = priorities(to_numpy(edges["edge_key"]), kind=sampling, seed=job.whole.seed, weight=weight)
    return edges.append_column("priority", pa.array(priority))


def _first_edges(table: pa.Table, limit: int) -> pa.Table:
    """Return each destination's first `limit` edges in priority order, grouped by destination."""
    # the distinct destinations, ascending, and each edge's number among them [E]
    nodes, row = np.unique(to_numpy(table["dst"]), return_inverse=True)
    priority, tie = to_numpy(table["priority"]), to_numpy(table["edge_key"])
    if len(row) == 0 or np.all(row[1:] >= row[:-1]):
        chosen = top_k(offsets_of(np.bincount(row, minlength=len(nodes))), priority, tie=tie, limit=limit)
    else:
        chosen = top_k_ungrouped(row, priority, num_targets=len(nodes), tie=tie, limit=limit)
    return take_rows(table, chosen.edges)
