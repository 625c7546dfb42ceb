"""The rounds of GraphFlat, each on one partition or shard.

The frontier is (shard, node), not AGL's (target, node): with hash-keyed samples a node's kept in-edges are the same for
every target, so a shard needs each node once. A pair remembers how many of its edges were already sent (`taken`), in
each relation; a pair that is reached again sends only the edges that a larger fan-out adds.

With types, each type has a channel for its rows, because types differ in their features.

Shapes: T targets, P pairs, R relations, E edges.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import distinct
from gnnflow.graph.batch import TypedFeatures
from gnnflow.graph.splits import split_name
from gnnflow.graphfeature.neighborhood import Neighborhood
from gnnflow.graphfeature.shards import write_pairs, write_shard, write_targets
from gnnflow.graphflat.shard_plan import ShardPlan, bucket_counts, signatures
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.mapped import Kept
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.native import find
from gnnflow.neighbors.pairs import draws_of, pool_weights
from gnnflow.neighbors.selected import NEXT_ARRIVAL, edges_by_row
from gnnflow.storage.columns import (
    as_ids,
    combine,
    from_matrix,
    from_ragged,
    from_rows,
    take_rows,
    to_matrix,
    to_numpy,
)
from gnnflow.storage.graph_store import DEGREE_COLUMNS, degrees_of, features_of

if TYPE_CHECKING:
    from gnnflow.graph.arrays import IntArray
    from gnnflow.graph.batch import Degrees, NodeFeatures
    from gnnflow.graphflat.job import FlatJob
    from gnnflow.mapreduce.exchange import Inbox


def find_targets(index: int, inbox: Inbox, *, job: FlatJob) -> TaskOutput:
    """Choose a partition's targets, sign each by its neighbourhood, and count signatures for the plan.

    Pairs are those that lead to the partition, signed by their targets; the partition's nodes are weighed for draws.
    """
    store = job.neighbors.store
    if job.pairs is None:
        chosen = [_chosen(index, kind, job) for kind in store.facts.target_types]
        table = pa.concat_tables(chosen).combine_chunks()
    else:
        table = store.pairs(index, job.target_columns)
        table = table.filter(pa.array(to_numpy(table["split"]) >= 0)).combine_chunks()
    # dense ids of the targets [T], and the in-edges the first hop takes of them [E]
    nodes, edges = to_numpy(table[job.end_columns[-1]]), job.neighbors.in_edges(index)
    picked = edges.prefix(nodes - store.book.start(index), limit=job.neighbors.sampling.of_hop(1))
    # the smallest hash of each target's neighbourhood [T]
    signature = signatures(nodes, edges.source_offsets(picked), edges.sources_of(picked.positions))
    signed = table.append_column("signature", pa.array(signature))
    # targets of each split in each bucket of signatures [4, NUM_BUCKETS]
    buckets = bucket_counts(signature, to_numpy(table["split"])).tolist()
    counts: dict[str, Any] = {"targets": len(nodes), "buckets": buckets}
    if job.pairs is not None:
        counts["weight"] = float(pool_weights(store, index, job.pairs).sum())
    return TaskOutput(emits=(Emit("signed", signed, np.full(len(nodes), index)),), counts=counts)


def _chosen(index: int, node_type: int, job: FlatJob) -> pa.Table:
    """Return the rows of a partition's targets of one type."""
    store = job.neighbors.store
    table = store.nodes(index, [*job.target_columns, "labelled"], node_type=node_type)
    # ids of the type in the form that ids of all target types have
    ids = as_ids(combine(table["id"]), store.facts.id_type_of_targets)
    table = table.set_column(table.column_names.index("id"), "id", ids)
    if isinstance(job.targets, str):
        return table
    if job.targets is None:
        return take_rows(table, np.flatnonzero((to_numpy(table["split"]) >= 0) & to_numpy(table["labelled"])))
    return take_rows(table, np.flatnonzero(np.isin(to_numpy(table["node"]), job.targets)))


def place_targets(index: int, inbox: Inbox, *, job: FlatJob, plan: ShardPlan, weights: tuple[float, ...]) -> TaskOutput:
    """Send each target's row to its shard; the targets are the first frontier.

    Of pairs both ends are, and the draws of the shards' pools that this partition owns. weights: the partitions'.
    """
    store, signed = job.neighbors.store, inbox.read("signed")
    # dense ids of the targets, or of both ends of each pair [T], and the shard of each target [T]
    nodes = [to_numpy(signed[name]) for name in job.end_columns]
    keys = nodes[0] if job.pairs is None else to_numpy(signed["key"]).view(np.int64)
    shard = plan.shard_of(keys, to_numpy(signed["signature"]), to_numpy(signed["split"]))
    emits, shards = [Emit("targets", signed.select(job.target_columns), shard)], [shard] * len(nodes)
    if job.layout == "store":
        return TaskOutput(emits=tuple(emits))
    if job.pairs is not None:
        numbers = np.arange(plan.total_shards)
        # the draws of this partition's nodes: node, shard, and place in the shard's pool [D]
        drawn, drawn_shard, number = draws_of(index, store, numbers, job.pairs, weights=np.array(weights))
        emits.append(Emit("pool", pa.table({"node": drawn, "number": number}), drawn_shard))
        nodes, shards = [*nodes, drawn], [*shards, drawn_shard]
    # every node that a shard needs first, with its shard
    reached = np.concatenate(nodes)
    frontier = pa.table({"shard": np.concatenate(shards), "node": reached})
    return TaskOutput(emits=(*emits, Emit("frontier_0", frontier, store.book.owner(reached))))


def expand_hop(index: int, inbox: Inbox, *, job: FlatJob, hop: int) -> TaskOutput:
    """Send a hop's new in-edges to the shards, and their sources to their owners. Visited pairs stay here."""
    book = job.neighbors.store.book
    # one entry per (shard, node) pair that this partition owns [P]
    shard, local, taken = _pairs(index, inbox, job, hop)
    # the in-edges the hop adds, pair by pair [E]
    edges = job.neighbors.in_edges(index)
    picked = edges.prefix(local, limit=job.neighbors.sampling.of_hop(hop), taken=taken)
    added = edges.take(picked.positions, offsets=picked.offsets)
    # the shard each of them goes to [E]
    edge_shard = picked.each(shard)
    source = added.sources if added.leaves is None else from_ragged(added.leaves, added.sources)
    columns: dict[str, Any] = {"dst": picked.each(local + book.start(index)), "src": source}
    if added.num_relations > 1:
        columns["relation"] = np.repeat(np.arange(added.num_relations), picked.per_relation)
    if added.weight is not None:
        columns["weight"] = added.weight
    if added.attributes is not None:
        columns["attributes"] = from_matrix(added.attributes)
    if added.next_arrival is not None:
        columns[NEXT_ARRIVAL] = added.next_arrival
    if added.time is not None:
        columns["time"] = added.time
    # the pairs reached: one integer each, ascending, which sorts by shard, then node
    pairs = distinct(edges.per_leaf(picked.positions, edge_shard) * book.num_nodes + added.sources)
    reached = pa.table({"shard": pairs // book.num_nodes, "node": pairs % book.num_nodes})
    # the pairs of this hop again, with the edges taken of each so far [P, R]
    by_pair = from_matrix((taken + picked.counts).reshape(added.num_relations, -1).T)
    visited = pa.table({"shard": shard, "local": local, "taken": by_pair})
    return TaskOutput(
        emits=(
            Emit(f"edges_{hop}", pa.table(columns), edge_shard),
            Emit(f"frontier_{hop}", reached, book.owner(pairs % book.num_nodes)),
            Emit(f"visited_{hop}", visited, np.full(len(shard), index)),
        ),
        counts={"pairs": len(shard), "edges": added.num_edges},
    )


class _Pairs(NamedTuple):
    """Pairs of a shard and a node, sorted by both: shards [P], local nodes [P], and edges taken, by relation [R P]."""

    shards: IntArray
    nodes: IntArray
    taken: IntArray


def _pairs(index: int, inbox: Inbox, job: FlatJob, hop: int) -> _Pairs:
    """Return every pair reached before hop `hop`."""
    book = job.neighbors.store.book
    size, start = book.size(index), book.start(index)
    reached = inbox.read(f"frontier_{hop - 1}")
    # pairs as integers that sort by shard, then node: those the last hop reached, one or more times
    keys = to_numpy(reached["shard"]) * size + to_numpy(reached["node"]) - start
    # pairs of the last hop, and how many edges were taken of each in each relation
    num_relations = job.neighbors.store.schema.num_relations
    seen, taken = np.zeros(0, np.int64), np.zeros((0, num_relations), np.int64)
    if hop > 1:
        visited = inbox.read(f"visited_{hop - 1}")
        seen = to_numpy(visited["shard"]) * size + to_numpy(visited["local"])
        taken = to_matrix(visited["taken"], np.int64)
    # all of them, each once, ascending [P]; a pair that is new has 0 edges taken
    every = distinct(np.concatenate([keys, seen]))
    all_taken = np.zeros((num_relations, len(every)), np.int64)
    all_taken[:, np.searchsorted(every, seen)] = taken.T
    return _Pairs(every // max(size, 1), every % max(size, 1), all_taken.ravel())


def send_nodes(index: int, inbox: Inbox, *, job: FlatJob) -> TaskOutput:
    """Send the row of every reached node to the shards that reached it, once each.

    Features that shards map are kept here, once for all shards; each row then says which of them is its own.
    """
    store = job.neighbors.store
    # every (shard, node) pair that this partition owns [P]
    shard, local, _ = _pairs(index, inbox, job, job.num_hops + 1)
    emits: list[Emit | Kept] = []
    for node_type, channel in enumerate(job.node_channels):
        rows = store.book.rows(index, node_type)
        own = np.flatnonzero((local >= rows.start) & (local < rows.stop))
        columns = ["node", *DEGREE_COLUMNS, *store.feature_columns_of(node_type)]
        table, picked = store.nodes(index, columns, node_type=node_type), local[own] - rows.start
        facts = store.facts.features_of_types[node_type]
        if facts is not None and node_type in job.mapped_types:
            is_reached = np.zeros(table.num_rows, bool)
            is_reached[picked] = True
            # features of the nodes that any shard reached [n, W], and the place of each node among them
            x = np.asarray(features_of(table, facts).dense)[is_reached]
            emits.append(Kept(job.mapped_types[node_type], {"x": x}))
            place = pa.array(np.cumsum(is_reached) - 1)
            table = table.drop_columns("x").append_column("place", place)
        emits.append(Emit(channel, table, shard[own], picked=picked))
    return TaskOutput(emits=tuple(emits), counts={"rows": len(local)})


def build_shard(index: int, inbox: Inbox, *, job: FlatJob, plan: ShardPlan) -> TaskOutput:
    """Join a shard's targets, edges and node rows into one neighbourhood and commit it in the job's layout.

    With the layout store its targets are committed alone: whoever reads them holds the graph.

    Where targets are pairs, the shard's target nodes are their ends and the draws of its pool.
    """
    code, number = plan.split_of(index)
    split = split_name(code)
    targets, ends = inbox.read("targets").combine_chunks(), []
    if job.pairs is None:
        targets = _sorted_by(targets, "node")
    else:
        # Pieces arrive in an order that follows the partitions; pairs are stored by key, draws by number.
        pairs, pool = targets.sort_by("key"), inbox.read("pool").combine_chunks().sort_by("number")
        ends = [to_numpy(pairs["src"]), to_numpy(pairs["dst"]), to_numpy(pool["node"])]
        # the nodes that are an end or a draw, ascending [R]
        roots = distinct(np.concatenate(ends))
        targets = pa.table({"node": roots, "split": pa.array(np.full(len(roots), code, np.int8))})
    name = f"{split}-{number:05d}"
    if job.layout == "store":
        facts = job.neighbors.store.facts
        entry, files = write_targets(
            job.artifact, targets, name=name, split=split, num_nodes=facts.num_nodes, num_edges=facts.num_edges
        )
    else:
        entry, files = write_shard(
            job.artifact,
            _assembled(inbox, job, targets),
            targets,
            name=name,
            split=split,
            layout=job.layout,
            sampling=job.neighbors.sampling,
            num_hops=job.num_hops,
        )
    if job.pairs is not None:
        source, target, drawn = (np.searchsorted(roots, nodes) for nodes in ends)
        numbered = {name: pa.array(rows.astype(np.int32)) for name, rows in (("source", source), ("target", target))}
        table = pa.table({**numbered, **{name: pairs[name] for name in ("key", *job.neighbors.store.pair_columns)}})
        entry = replace(entry, num_pairs=len(source))
        files = (*files, *write_pairs(job.artifact, entry.name, table, drawn))
    return TaskOutput(files=tuple(files), counts={"entry": asdict(entry), "targets": entry.num_samples})


def _assembled(inbox: Inbox, job: FlatJob, targets: pa.Table) -> Neighborhood:
    """Return a shard's merged neighbourhood, nodes in dense id order. targets: with their ids as `node`, ascending."""
    node_ids, degrees, features = _node_rows(inbox, job)
    # every hop's edges, one hop after the other [E]
    edges = pa.concat_tables([inbox.read(f"edges_{hop}") for hop in range(1, job.num_hops + 1)]).combine_chunks()
    # the row each edge leads to, one per relation and node [E]
    rows = np.searchsorted(node_ids, to_numpy(edges["dst"]))
    if "relation" in edges.column_names:
        rows += to_numpy(edges["relation"]) * len(node_ids)
    # a node's edges arrive hop by hop, which is their priority order
    num_relations = job.neighbors.store.schema.num_relations
    by_row = edges_by_row(edges, rows, num_nodes=len(node_ids), num_relations=num_relations)
    # the row each edge comes from, or each of its leaves, in the same order
    found = find(node_ids, by_row.sources)
    sources = (np.searchsorted(node_ids, by_row.sources) if found is None else found).astype(np.int32)
    return Neighborhood(
        roots=np.searchsorted(node_ids, to_numpy(targets["node"])),
        node_ids=node_ids,
        degrees=degrees,
        features=features,
        edges=replace(by_row, sources=sources),
    )


class _NodeRows(NamedTuple):
    """The nodes of a shard [N]: dense ids, ascending, degrees and features."""

    ids: IntArray
    degrees: Degrees
    features: NodeFeatures


def _node_rows(inbox: Inbox, job: FlatJob) -> _NodeRows:
    """Return the nodes that were sent to a shard."""
    facts = job.neighbors.store.facts
    tables = [_sorted_by(_node_table(inbox, job, number), "node") for number in range(len(job.node_channels))]
    kinds = zip(tables, facts.features_of_types, strict=True)
    parts = tuple(None if kind is None else features_of(table, kind) for table, kind in kinds)
    nodes, degrees = np.concatenate([to_numpy(table["node"]) for table in tables]), degrees_of(tables)
    if degrees.types is None:
        assert parts[0] is not None
        return _NodeRows(nodes, degrees, parts[0])
    # the order of all types' nodes by dense id [N]; nodes of one type keep the order of their table
    order = np.argsort(nodes, kind="stable")
    return _NodeRows(nodes[order], degrees.take(order), TypedFeatures(degrees.types[order], parts))


def _node_table(inbox: Inbox, job: FlatJob, node_type: int) -> pa.Table:
    """Return the rows of a shard's nodes of one type, with their features."""
    pieces = list(inbox.pieces(job.node_channels[node_type]))
    table = pa.concat_tables(pieces).combine_chunks()
    if node_type not in job.mapped_types:
        return table
    facts = job.neighbors.store.facts.features_of_types[node_type]
    assert facts is not None, "mapped features are dense"
    # features of all owners' nodes, one owner after the other, as bytes [N, row_bytes]
    x = np.empty((table.num_rows, facts.row_bytes), np.uint8)
    begin = 0
    for owner, piece in enumerate(pieces):
        if not piece.num_rows:
            continue
        kept = inbox.map(job.mapped_types[node_type], owner, ("x",))["x"].view(np.uint8)
        # whole rows, in a copy that checks no bounds
        np.take(kept, to_numpy(piece["place"]), axis=0, out=x[begin : begin + piece.num_rows], mode="clip")
        begin += piece.num_rows
    return table.drop_columns("place").append_column("x", from_rows(x))


def _sorted_by(table: pa.Table, column: str) -> pa.Table:
    # Owners send in id order and are read in the order of the ids they own: there is seldom anything to do.
    keys = to_numpy(table[column])
    return table if np.all(keys[1:] >= keys[:-1]) else take_rows(table, np.argsort(keys, kind="stable"))
