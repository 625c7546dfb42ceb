"""What each round of GraphFlat does to one partition or shard.

The frontier is (shard, node), not AGL's (target, node): with hash-keyed samples a node's kept in-edges are the same for
every target, so a shard needs each node once, whoever reaches it. A pair remembers how many of its edges were already
sent (`taken`); a pair that is reached again sends only what a larger fan-out adds.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import distinct
from gnnflow.graph.splits import split_name
from gnnflow.graphfeature.neighborhood import Neighborhood
from gnnflow.graphfeature.shards import write_shard
from gnnflow.graphflat.placement import Placement, bucket_counts, signatures
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.neighbors.selected import NEXT_ARRIVAL, edges_by_row
from gnnflow.storage.columns import from_matrix, take_rows, to_numpy
from gnnflow.storage.graph_store import DEGREE_COLUMNS, degrees_of, features_of

if TYPE_CHECKING:
    from gnnflow.graph.arrays import IntArray
    from gnnflow.graph.facts import ShardEntry
    from gnnflow.graphflat.job import FlatJob
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.storage.filesystem import FileEntry


def find_targets(index: int, inbox: Inbox, *, job: FlatJob) -> TaskOutput:
    """Choose a partition's targets, sign each by its neighbourhood, and count signatures for the placement."""
    store = job.neighbors.store
    table = store.nodes(index, [*job.target_columns, "labelled"])
    # local rows of the targets [T]
    rows = _chosen(table, job)
    # the in-edges the first hop takes of them [E]
    edges = job.neighbors.in_edges(index)
    picked = edges.prefix(rows, limit=job.neighbors.fanout(1))
    table = take_rows(table, rows)
    # the smallest hash of each target's neighbourhood [T]
    signature = signatures(to_numpy(table["node"]), picked.offsets, edges.sources[picked.positions])
    split = to_numpy(table["split"])
    signed = table.append_column("signature", pa.array(signature))
    return TaskOutput(
        emits=(Emit("signed", signed, np.full(len(rows), index)),),
        counts={"targets": len(rows), "buckets": bucket_counts(signature, split).tolist()},
    )


def _chosen(table: pa.Table, job: FlatJob) -> IntArray:
    if isinstance(job.targets, str):
        return np.arange(table.num_rows)
    if job.targets is None:
        return np.flatnonzero((to_numpy(table["split"]) >= 0) & to_numpy(table["labelled"]))
    return np.flatnonzero(np.isin(to_numpy(table["node"]), job.targets))


def place_targets(index: int, inbox: Inbox, *, job: FlatJob, placement: Placement) -> TaskOutput:
    """Send each target's row to its shard; the targets are the first frontier."""
    signed = inbox.read("signed")
    # dense id and shard of each target [T]
    nodes = to_numpy(signed["node"])
    shard = placement.shard_of(nodes, to_numpy(signed["signature"]), to_numpy(signed["split"]))
    frontier = pa.table({"shard": shard, "node": nodes})
    return TaskOutput(
        emits=(
            Emit("targets", signed.select(job.target_columns), shard),
            Emit("frontier_0", frontier, np.full(len(shard), index)),
        )
    )


def expand_hop(index: int, inbox: Inbox, *, job: FlatJob, hop: int) -> TaskOutput:
    """Send the in-edges that a hop adds to the shards, and their sources to their owners. Visited pairs stay here."""
    book = job.neighbors.store.book
    # one entry per (shard, node) pair that this partition owns [P]
    shard, local, taken = _pairs(index, inbox, job, hop)
    # the in-edges the hop adds, pair by pair [E]
    edges = job.neighbors.in_edges(index)
    picked = edges.prefix(local, limit=job.neighbors.fanout(hop), taken=taken)
    added = edges.take(picked.positions, offsets=picked.offsets)
    # the shard each of them goes to [E]
    edge_shard = np.repeat(shard, picked.counts)
    columns: dict[str, Any] = {"dst": np.repeat(local + book.start(index), picked.counts), "src": added.sources}
    if added.weight is not None:
        columns["weight"] = added.weight
    if added.attributes is not None:
        columns["attributes"] = from_matrix(added.attributes)
    if added.next_arrival is not None:
        columns[NEXT_ARRIVAL] = added.next_arrival
    if added.time is not None:
        columns["time"] = added.time
    # the pairs reached: one integer each, ascending, which sorts by shard, then node
    pairs = distinct(edge_shard * book.num_nodes + added.sources)
    reached = pa.table({"shard": pairs // book.num_nodes, "node": pairs % book.num_nodes})
    # the pairs of this hop again, with all that was taken of each so far [P]
    visited = pa.table({"shard": shard, "local": local, "taken": taken + picked.counts})
    return TaskOutput(
        emits=(
            Emit(f"edges_{hop}", pa.table(columns), edge_shard),
            Emit(f"frontier_{hop}", reached, book.owner(pairs % book.num_nodes)),
            Emit(f"visited_{hop}", visited, np.full(len(shard), index)),
        ),
        counts={"pairs": len(shard), "edges": added.num_edges},
    )


def _pairs(index: int, inbox: Inbox, job: FlatJob, hop: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return (shard, local node, edges taken) of every pair reached before hop `hop`, sorted by (shard, node)."""
    book = job.neighbors.store.book
    size, start = book.size(index), book.start(index)
    reached = inbox.read(f"frontier_{hop - 1}")
    # pairs as integers that sort by shard, then node: those the last hop reached, one or more times
    keys = to_numpy(reached["shard"]) * size + to_numpy(reached["node"]) - start
    # those of the last hop, and how many edges were taken of each
    seen, taken = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if hop > 1:
        visited = inbox.read(f"visited_{hop - 1}")
        seen, taken = to_numpy(visited["shard"]) * size + to_numpy(visited["local"]), to_numpy(visited["taken"])
    # all of them, each once, ascending [P]; a pair that is new has 0 edges taken
    every = distinct(np.concatenate([keys, seen]))
    all_taken = np.zeros(len(every), np.int64)
    all_taken[np.searchsorted(every, seen)] = taken
    return every // max(size, 1), every % max(size, 1), all_taken


def send_nodes(index: int, inbox: Inbox, *, job: FlatJob) -> TaskOutput:
    """Send the row of every reached node to the shards that reached it, once each."""
    store = job.neighbors.store
    # every (shard, node) pair that this partition owns [P]
    shard, local, _ = _pairs(index, inbox, job, job.num_hops + 1)
    table = store.nodes(index, ["node", *DEGREE_COLUMNS, *store.feature_columns])
    return TaskOutput(emits=(Emit("nodes", table, shard, picked=local),), counts={"rows": len(local)})


def build_shard(index: int, inbox: Inbox, *, job: FlatJob, placement: Placement) -> TaskOutput:
    """Join a shard's targets, edges and node rows into one neighbourhood and commit it in the plan's layout."""
    targets = _sorted_by(inbox.read("targets").combine_chunks(), "node")
    neighborhood = assemble(inbox, job, targets)
    code, number = placement.split_of(index)
    split = split_name(code)
    entry, files = commit_shard(job, neighborhood, targets, name=f"{split}-{number:05d}", split=split)
    return TaskOutput(files=files, counts={"entry": asdict(entry), "targets": entry.num_targets})


def commit_shard(
    job: FlatJob, neighborhood: Neighborhood, targets: pa.Table, *, name: str, split: str, num_pairs: int = 0
) -> tuple[ShardEntry, tuple[FileEntry, ...]]:
    """Write a shard in the plan's layout and return its entry and files."""
    entry, files = write_shard(
        job.artifact,
        neighborhood,
        targets,
        name=name,
        split=split,
        layout=job.layout,
        fanouts=job.neighbors.fanouts,
        num_hops=job.num_hops,
    )
    return replace(entry, num_pairs=num_pairs), files


def assemble(inbox: Inbox, job: FlatJob, targets: pa.Table) -> Neighborhood:
    """Return a shard's merged neighbourhood, nodes in dense id order. targets: with their ids as `node`, ascending."""
    nodes = inbox.read("nodes").combine_chunks()
    nodes = _sorted_by(nodes, "node")
    # dense ids of the shard's nodes, ascending [N]
    node_ids = to_numpy(nodes["node"])
    # every hop's edges, one hop after the other [E]
    edges = pa.concat_tables([inbox.read(f"edges_{hop}") for hop in range(1, job.num_hops + 1)]).combine_chunks()
    # the row each edge leads to [E]
    rows = np.searchsorted(node_ids, to_numpy(edges["dst"]))
    # A node's edges arrive hop by hop, each hop's after those before it: kept in that order they are in priority order.
    by_row = edges_by_row(edges, rows, num_rows=len(node_ids))
    # the row each edge comes from, in the same order [E]
    sources = np.searchsorted(node_ids, by_row.sources).astype(np.int32)
    return Neighborhood(
        roots=np.searchsorted(node_ids, to_numpy(targets["node"])),
        node_ids=node_ids,
        degrees=degrees_of(nodes),
        features=features_of(nodes, job.neighbors.store.facts.features.width),
        edges=replace(by_row, sources=sources),
    )


def _sorted_by(table: pa.Table, column: str) -> pa.Table:
    # Owners send in id order and are read in the order of the ids they own: there is seldom anything to do.
    keys = to_numpy(table[column])
    return table if np.all(keys[1:] >= keys[:-1]) else take_rows(table, np.argsort(keys, kind="stable"))
