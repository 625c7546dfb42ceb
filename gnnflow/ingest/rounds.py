"""What each round of ingest does to one chunk or partition. Pure but for the files a task commits.

Nodes are dealt to partitions by the hash of their id and numbered in id order, so dense ids depend on neither file nor
row order. An edge visits the partition of its source, then that of its destination; each end's dense id is looked up
where that node lives, so no task ever needs more than one partition's ids. Edges end sorted by (destination, source,
place in the input), and equal pairs are numbered in that order, which makes every edge's key unique and reproducible.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.book import PartitionBook
from gnnflow.graph.errors import TableError
from gnnflow.graph.labels import LABEL_KINDS
from gnnflow.ingest.checks import Fault, input_positions, place_of, separate
from gnnflow.ingest.moments import moments_of
from gnnflow.ingest.source import (
    edge_column_names,
    edge_columns,
    edge_faults,
    node_column_names,
    node_columns,
    node_faults,
)
from gnnflow.ingest.statistics import count_rows
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.sampling import edge_keys
from gnnflow.storage.columns import combine, from_matrix, id_keys, take_rows, to_matrix, to_numpy
from gnnflow.storage.tables import commit_table
from gnnflow.storage.user_tables import read_chunk

if TYPE_CHECKING:
    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.ingest.job import IngestJob
    from gnnflow.ingest.moments import Scale
    from gnnflow.mapreduce.exchange import Inbox


def read_nodes(index: int, inbox: Inbox, *, job: IngestJob) -> TaskOutput:
    """Read one chunk of nodes, check its rows, and send each to its home partition."""
    chunk = job.nodes[index]
    table = read_chunk(chunk, node_column_names(job.schema, job.config))
    # an integer per row that says which chunk and row it came from [R]
    place = input_positions(index, np.arange(table.num_rows))
    faults = node_faults(table, job.schema, job.config)
    kept, bad = separate(table, faults, chunks=job.nodes, place=place, policy=job.config.on_bad_rows)
    columns = node_columns(take_kept(table, kept), job.schema, job.config)
    home = job.home_of(columns["id"])
    rows = pa.table({**columns, "place": place[kept]})
    return TaskOutput(
        emits=(Emit("nodes", rows, home),),
        files=job.set_aside(f"nodes-read-{index:05d}", bad),
        counts={"rows_in": table.num_rows, "rows_quarantined": bad.num_rows},
    )


def take_kept(table: pa.Table, kept: IntArray) -> pa.Table:
    """Return the kept rows; the table itself where all are."""
    return table if len(kept) == table.num_rows else take_rows(table.combine_chunks(), kept)


def sort_nodes(index: int, inbox: Inbox, *, job: IngestJob) -> TaskOutput:
    """Give a partition's nodes their order, by id, set repeated ids aside, and count what the plan needs to know."""
    rows = inbox.read("nodes").combine_chunks()
    ids, place = combine(rows["id"]), to_numpy(rows["place"])
    # the order by id, rows of one id in input order [R]
    order = to_numpy(
        pc.sort_indices(pa.table({"id": ids, "place": place}), [("id", "ascending"), ("place", "ascending")])
    ).astype(np.int64)
    rows = take_rows(rows, order)
    ids, place = combine(rows["id"]), to_numpy(rows["place"])
    # rows with the same id as the row before them
    repeated = 1 + np.flatnonzero(to_numpy(pc.equal(ids[1:], ids[:-1]))) if len(ids) > 1 else np.zeros(0, np.int64)
    fault = Fault("id appears more than once", "id", repeated, "Keep one row per id.")
    kept, bad = separate(rows, [fault], chunks=job.nodes, place=place, policy=job.config.on_bad_rows)
    rows = take_kept(rows, kept).drop_columns(["place"])
    return TaskOutput(
        emits=(
            Emit("node_rows", rows, np.full(rows.num_rows, index)),
            count_rows(rows, job.schema, partitions=job.partitions),
        ),
        files=job.set_aside(f"nodes-sort-{index:05d}", bad),
        counts={"rows_out": rows.num_rows, "rows_quarantined": bad.num_rows, **_node_counts(rows, job)},
    )


def _node_counts(rows: pa.Table, job: IngestJob) -> dict[str, Any]:
    split = to_numpy(rows["split"])
    counts: dict[str, Any] = {"splits": np.bincount(split + 1, minlength=4).tolist()}
    counts["labelled"] = int(to_numpy(rows["labelled"]).sum())
    if job.schema.has_labels and LABEL_KINDS[job.schema.label_kind].is_class:
        counts["label_max"] = int(to_numpy(rows["label"]).max(initial=-1))
    if job.config.normalize == "standard":
        counts["moments"] = asdict(moments_of(to_matrix(rows["x"], np.float64)))
    return counts


def read_edges(index: int, inbox: Inbox, *, job: IngestJob) -> TaskOutput:
    """Read one chunk of edges, check its rows, and send each to the home of its source."""
    chunk = job.edges[index]
    table = read_chunk(chunk, edge_column_names(job.schema, job.config))
    place = input_positions(index, np.arange(table.num_rows))
    faults = edge_faults(table, job.schema, job.config)
    kept, bad = separate(table, faults, chunks=job.edges, place=place, policy=job.config.on_bad_rows)
    columns = edge_columns(take_kept(table, kept), job.schema, job.config)
    home = job.home_of(columns["src_id"])
    rows = pa.table({**columns, "place": place[kept]})
    return TaskOutput(
        emits=(Emit("edges_by_src", rows, home),),
        files=job.set_aside(f"edges-read-{index:05d}", bad),
        counts={"rows_in": table.num_rows, "rows_quarantined": bad.num_rows},
    )


def resolve_sources(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook) -> TaskOutput:
    """Replace source ids by dense ids and keys, set aside edges of unknown nodes, send each to its destination."""
    rows, bad, dense = _resolve(index, inbox, job, book, channel="edges_by_src", column="src_id")
    keys = id_keys(rows["src_id"])
    rows = rows.drop_columns(["src_id"]).append_column("src", pa.array(dense)).append_column("src_key", pa.array(keys))
    home = job.home_of(combine(rows["dst_id"]))
    return TaskOutput(
        emits=(Emit("edges_by_dst", rows, home),),
        files=job.set_aside(f"edges-src-{index:05d}", bad),
        counts={"rows_quarantined": bad.num_rows},
    )


def _resolve(
    index: int, inbox: Inbox, job: IngestJob, book: PartitionBook, *, channel: str, column: str
) -> tuple[pa.Table, pa.Table, IntArray]:
    rows = inbox.read(channel).combine_chunks()
    ids = combine(inbox.read("node_rows")["id"])
    # local row of the node that each edge names [E], null where the node table has no such id
    found = pc.index_in(combine(rows[column]), value_set=ids)
    missing = np.flatnonzero(to_numpy(pc.is_null(found)))
    side = job.config.src if column == "src_id" else job.config.dst
    letters = "; ids are text here, compared letter by letter." if job.schema.id_type == "string" else "."
    fix = f"Add the node, or drop the edge{letters}"
    fault = Fault(f"{side} is not an id of the node table", column, missing, fix)
    place = to_numpy(rows["place"])
    kept, bad = separate(rows, [fault], chunks=job.edges, place=place, policy=job.config.on_bad_rows)
    # the same for the edges that are kept
    local = to_numpy(found.fill_null(-1)).astype(np.int64)[kept]
    return take_kept(rows, kept), bad, local + book.start(index)


def resolve_destinations(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook) -> TaskOutput:
    """Replace destination ids by dense ids and keys; build the partition, or first send edges both ways."""
    rows, done = known_edges(index, inbox, job=job, book=book)
    if job.config.reverse_edges:
        both = both_ways(rows)
        return replace(done, emits=(Emit("edges_both", both, book.owner(to_numpy(both["dst"]))),))
    built = build_edges(index, rows, job=job, book=book)
    return replace(done, emits=built.emits, files=(*done.files, *built.files), counts={**built.counts, **done.counts})


def known_edges(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook) -> tuple[pa.Table, TaskOutput]:
    """Return the edges into a partition with dense ids and keys of both ends, and what became of the others."""
    rows, bad, dense = _resolve(index, inbox, job, book, channel="edges_by_dst", column="dst_id")
    keys = id_keys(rows["dst_id"])
    rows = rows.drop_columns(["dst_id"]).append_column("dst", pa.array(dense)).append_column("dst_key", pa.array(keys))
    files = job.set_aside(f"edges-dst-{index:05d}", bad)
    counts = {"rows_out": rows.num_rows, "rows_quarantined": bad.num_rows}
    return rows, TaskOutput(files=files, counts=counts)


def both_ways(rows: pa.Table) -> pa.Table:
    """Return the edges and their reverses; a loop is its own, so it is kept once."""
    proper = np.flatnonzero(to_numpy(rows["src"]) != to_numpy(rows["dst"]))
    back = take_rows(rows, proper)
    swapped = {"src": "dst", "dst": "src", "src_key": "dst_key", "dst_key": "src_key"}
    back = back.rename_columns([swapped.get(name, name) for name in back.column_names]).select(rows.column_names)
    return pa.concat_tables([rows, back]).combine_chunks()


def build_both_ways(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook) -> TaskOutput:
    """Build a partition from edges sent both ways."""
    return build_edges(index, inbox.read("edges_both").combine_chunks(), job=job, book=book)


def build_edges(index: int, rows: pa.Table, *, job: IngestJob, book: PartitionBook) -> TaskOutput:
    """Write a partition's in-edges, sorted by destination; in-degrees are counted here, out-degrees at the owners."""
    src, dst, place = (to_numpy(rows[name]) for name in ("src", "dst", "place"))
    # the order by (destination, source, place in the input) [E]; a pair of dense ids is one integer
    order = _edge_order((dst - book.start(index)) * book.num_nodes + src, place)
    src, dst = src[order], dst[order]
    weight = to_numpy(rows["weight"])[order] if job.schema.has_weight else None
    # what identifies each edge, whatever the partitioning [E]
    keys = edge_keys(to_numpy(rows["dst_key"])[order], to_numpy(rows["src_key"])[order], occurrences(dst, src))
    columns: dict[str, Any] = {"dst": dst, "src": src, "edge_key": keys}
    if weight is not None:
        columns["weight"] = weight
    if job.schema.attributes:
        columns["attributes"] = from_matrix(to_matrix(rows["attributes"])[order])
    if job.schema.has_time:
        columns["time"] = to_numpy(rows["time"])[order]
    entry = commit_table(job.artifact, f"edges-{index:05d}.parquet", pa.table(columns), row_group_size=1 << 20)
    # local row of each edge's destination [E]; in-edges of each node here, and the sum of their weights [N]
    local = dst - book.start(index)
    in_degree = np.bincount(local, minlength=book.size(index))
    in_weight = in_degree if weight is None else np.bincount(local, weight, minlength=book.size(index))
    if weight is not None:
        _refuse_overflow(in_weight.astype(np.float64), local, weight, place=place[order], job=job)
    # the sources of these edges, anywhere in the graph, and how many of the edges each has
    nodes, out = np.unique(src, return_counts=True)
    return TaskOutput(
        emits=(
            Emit("out_degree", pa.table({"node": nodes, "count": out}), book.owner(nodes)),
            Emit(
                "in_degree",
                pa.table({"in_degree": in_degree, "in_weight": in_weight.astype(np.float32)}),
                np.full(len(in_degree), index),
            ),
        ),
        files=(entry,),
        counts={"edges": len(src)},
    )


def _refuse_overflow(
    in_weight: FloatArray, local: IntArray, weight: FloatArray, *, place: IntArray, job: IngestJob
) -> None:
    """Raise TableError where the weights into a node add up to more than float32 holds, naming the largest of them."""
    beyond = np.flatnonzero(in_weight > np.finfo(np.float32).max)
    if len(beyond):
        into = np.flatnonzero(local == beyond[0])
        chunk, row = place_of(job.edges, int(place[into[np.argmax(weight[into])]]))
        raise TableError(
            f"column {job.config.weight!r}: the weights into one node add up to {in_weight[beyond[0]]:.3g}, more than "
            f"float32 holds (3.4e38); row {row} is the largest of them",
            where=chunk.place,
            fix="Scale the weights down.",
        )


def _edge_order(pair: IntArray, place: IntArray) -> IntArray:
    """Return the order by (pair, place): one stable sort, since parallel edges come in input order."""
    order = np.argsort(pair, kind="stable")
    pair, place = pair[order], place[order]
    # Not so where edges were sent both ways: an edge may meet the reverse of an earlier one.
    if np.any((pair[1:] == pair[:-1]) & (place[1:] < place[:-1])):
        order = order[np.lexsort((place, pair))]
    return order


def occurrences(dst: IntArray, src: IntArray) -> IntArray:
    """Return each edge's number among those of the same pair; pairs lie together."""
    if not len(dst):
        return np.zeros(0, np.int64)
    # whether an edge is the first of its pair [E], and the positions of those
    first = np.r_[True, (dst[1:] != dst[:-1]) | (src[1:] != src[:-1])]
    start = np.flatnonzero(first)
    # how far each edge lies behind the first of its pair [E]
    numbers: IntArray = np.arange(len(dst)) - start[np.cumsum(first) - 1]
    return numbers


def write_nodes(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook, scale: Scale | None) -> TaskOutput:
    """Write a partition's node rows with their degrees. scale: what is applied to dense features."""
    rows, degrees, sent = inbox.read("node_rows"), inbox.read("in_degree"), inbox.read("out_degree")
    size, start = book.size(index), book.start(index)
    # out-edges of each node here, added up over the partitions that hold them [N]
    out_degree = np.bincount(to_numpy(sent["node"]) - start, to_numpy(sent["count"]), minlength=size).astype(np.int64)
    in_degree = to_numpy(degrees["in_degree"])
    columns: dict[str, Any] = {
        "id": combine(rows["id"]),
        "node": start + np.arange(size),
        "key": id_keys(rows["id"]),
        "in_degree": in_degree,
        "out_degree": out_degree,
        "in_weight": to_numpy(degrees["in_weight"]),
        **{name: combine(rows[name]) for name in rows.column_names if name != "id"},
    }
    if scale is not None:
        x = to_matrix(rows["x"], np.float64)
        columns["x"] = from_matrix(((x - scale.mean) / scale.deviation).astype(np.float32))
    entry = commit_table(job.artifact, f"nodes-{index:05d}.parquet", pa.table(columns))
    # nodes per power of two of in-degree: bin 0 none, bin 1 one, bin 2 two or three, bin 3 four to seven, ...
    bins = np.bincount(np.ceil(np.log2(in_degree + 1)).astype(np.int64), minlength=1).tolist()
    return TaskOutput(files=(entry,), counts={"degree_bins": bins, "max_in_degree": int(in_degree.max(initial=0))})
