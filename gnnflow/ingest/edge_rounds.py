"""The rounds of ingest over edges: what a task does to one chunk or partition. Pure but for the files it commits.

An edge visits the partition of its source, then its destination's; each end's dense id is looked up where that
node lives, so no task ever needs more than one partition's ids. Edges end sorted by (destination, source, place in the
input), and equal pairs are numbered in that order, which makes every edge's key unique and reproducible.

With T types, E edge tables and R relations the tasks of a round are, in this order: chunks table by table; for each
partition its types, its edge tables, or its relations. `book` counts the nodes of a type in a partition as a
part; without types a part is a partition.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.book import PartitionBook
from gnnflow.graph.errors import TableError
from gnnflow.ingest.checks import Fault, Separated, first_rows, near_id, place_of
from gnnflow.ingest.classes import label_text, plain_values
from gnnflow.ingest.moments import count_numbers, scaled
from gnnflow.ingest.source import (
    edge_column_names,
    edge_columns,
    edge_faults,
    edge_number_types,
    read_rows,
    separate_arrived,
    take_kept,
)
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.native import Sorted, find, find_texts, hash_texts, number_pairs, stable_sort
from gnnflow.sampling import edge_keys
from gnnflow.storage.columns import combine, from_matrix, id_keys, take_rows, texts_of, to_matrix, to_numpy
from gnnflow.storage.graph_store import edges_file
from gnnflow.storage.tables import commit_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.graph.arrays import BoolArray, FloatArray, IntArray, KeyArray
    from gnnflow.graph.facts import IdType
    from gnnflow.graph.scales import Scales
    from gnnflow.ingest.job import IngestJob
    from gnnflow.ingest.schema import EdgeSchema
    from gnnflow.ingest.tables import EdgeTable
    from gnnflow.mapreduce.exchange import Inbox


class CheckedEnds(NamedTuple):
    """Edges with a known end [E], all rows after the check, and that end's dense ids and keys [E]."""

    rows: pa.Table
    checked: Separated
    dense: IntArray
    keys: KeyArray


class KnownEdges(NamedTuple):
    """A table's edges both ends of which are nodes [E], and what became of the others."""

    rows: pa.Table
    done: TaskOutput


class DirectedEdges(NamedTuple):
    """Edges, each in the direction of its relation, and the number of that relation [E]."""

    rows: pa.Table
    relation: IntArray


def read_edges(index: int, inbox: Inbox, *, job: IngestJob) -> TaskOutput:
    """Read one chunk of edges, check its rows, and send each to the home of its source."""
    source = job.edge_table(index)
    schema, config = source.schema, source.config

    def send(rows: pa.Table, place: IntArray) -> Emit:
        columns = edge_columns(rows, schema, config)
        home = job.home_of(columns["src_id"]) * len(job.tables.edges) + source.number
        return Emit("edges_by_src", pa.table({**columns, "place": place}), home)

    scale = job.given_scales.get(job.table_names.edges[source.number])
    coming = read_rows(
        source,
        index - source.first,
        job,
        names=list(dict.fromkeys([*edge_column_names(schema, config), *end_columns(source)])),
        numbers=edge_number_types(schema, config),
        faults=partial(edge_faults, schema=schema, config=config, scale=scale),
        send=send,
        chosen=None if source.chosen is None else partial(are_edges, source=source),
    )
    return TaskOutput(coming=coming)


def end_columns(source: EdgeTable) -> list[str]:
    """Return the columns of both ends, and the columns that say which rows are edges."""
    where = () if source.chosen is None else source.chosen.where or ()
    return list(dict.fromkeys([source.config.src_column, source.config.dst_column, *where]))


def are_edges(rows: pa.Table, *, source: EdgeTable) -> BoolArray:
    """Return which rows of a table that a relation reads in its own way are its edges [E]: by value, with both ends."""
    assert source.chosen is not None
    ends = (source.config.src_column, source.config.dst_column)
    found: BoolArray = ~np.logical_or.reduce(
        [to_numpy(pc.is_null(combine(rows[name]), nan_is_null=True)) for name in ends]
    )
    for name, values in (source.chosen.where or {}).items():
        text = label_text(plain_values(combine(rows[name])))
        found &= to_numpy(pc.is_in(text, value_set=pa.array(values, pa.string())))
    return found


def resolve_sources(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook) -> TaskOutput:
    """Replace source ids by dense ids and keys, set aside edges of unknown nodes, send each to its destination."""
    partition, number = divmod(index, len(job.tables.edges))
    source = job.tables.edges[number]
    arrived = inbox.read("edges_by_src", tasks=source.tasks).combine_chunks()
    part = partition * job.graph.num_types + source.source
    rows, found, dense, keys = _resolve(arrived, inbox, job, book, source=source, part=part, column="src_id")
    rows = rows.drop_columns(["src_id"]).append_column("src", pa.array(dense)).append_column("src_key", pa.array(keys))
    home = job.home_of(combine(rows["dst_id"])) * len(job.tables.edges) + number
    counts = found.counts
    if source.schema.attributes and job.table_names.edges[number] not in job.given_scales:
        counts |= count_numbers(rows["attributes"], job.config.edge_normalize, in_order=False)
    return TaskOutput(
        emits=(Emit("edges_by_dst", rows, home),),
        files=job.set_aside(f"{source.stem}-src-{partition:05d}", found.bad),
        counts=counts,
    )


def _resolve(
    rows: pa.Table, inbox: Inbox, job: IngestJob, book: PartitionBook, *, source: EdgeTable, part: int, column: str
) -> CheckedEnds:
    """Look up the end `column` of edges among the nodes of a part."""
    ids = combine(inbox.read("node_ids", tasks=[part], partition=part)["id"])
    # local row of the node that each edge names [E], -1 where the node table has no such id
    local = _places(ids, combine(rows[column]))
    missing = np.flatnonzero(local < 0)
    is_source = column == "src_id"
    side, of = (source.config.src_column, source.ends[0]) if is_source else (source.config.dst_column, source.ends[1])
    id_type = source.schema.src_type if is_source else source.schema.dst_type
    near = ""
    if len(missing) and id_type == "string" and job.config.on_bad_rows == "fail":
        unknown = combine(rows[column].take(pa.array(first_rows(missing, to_numpy(rows["place"])))))
        near = near_id(unknown, _ids_of_type(inbox, job, node_type=part % job.graph.num_types))
    fault = replace(end_fault(missing, side=side, of=of, id_type=id_type, near=near), held_in=column)
    checked = separate_arrived(rows, fault, source=source, job=job)
    local = local[checked.kept] if len(missing) else local
    return CheckedEnds(take_kept(rows, checked.kept), checked, local + book.start(part), id_keys(ids)[local])


def _places(ids: pa.Array, wanted: pa.Array) -> IntArray:
    """Return the place of each wanted id [E] among distinct ids, -1 where it is none of them."""
    if pa.types.is_int64(ids.type):
        found = find(to_numpy(ids), to_numpy(wanted))
    else:
        found = find_texts(*(each._replace(keys=hash_texts(each)) for each in map(texts_of, (ids, wanted))))
    if found is None:
        found = to_numpy(pc.index_in(wanted, value_set=ids).fill_null(-1)).astype(np.int64)
    return found


def end_fault(rows: IntArray, *, side: str, of: str, id_type: IdType, near: str = "") -> Fault:
    """Return the fault of edges whose end is no node. near: a sentence about an id that resembles one of them."""
    letters = "; ids are text here, compared letter by letter." if id_type == "string" else "."
    fix = f"{near} Write both alike{letters}" if near else f"Add the node, or drop the edge{letters}"
    return Fault(f"{side} is not an id of {of}", side, rows, fix)


def _ids_of_type(inbox: Inbox, job: IngestJob, *, node_type: int) -> Iterator[Any]:
    """Yield the ids of a type's nodes, partition by partition."""
    for part in range(node_type, job.partitions * job.graph.num_types, job.graph.num_types):
        yield combine(inbox.read("node_ids", tasks=[part], partition=part)["id"])


def resolve_destinations(
    index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook, scales: Scales
) -> TaskOutput:
    """Replace destination ids by dense ids and keys, then build the in-edges, or send edges and reverses on.

    scales: of the attributes of each table's edges.
    """
    rows, done = known_edges(index, inbox, job=job, book=book, scales=scales)
    source = job.tables.edges[index % len(job.tables.edges)]
    if source.reverse is not None:
        both, relation = with_reverses(rows, source)
        home = book.owner(to_numpy(both["dst"])) // job.graph.num_types
        return replace(done, emits=(Emit("edges_both", both, home * job.graph.num_relations + relation),))
    # Without reverses every relation has a table, and both are in the order of their names.
    built = build_edges(index, rows, job=job, book=book)
    return replace(done, emits=built.emits, files=(*done.files, *built.files), counts={**built.counts, **done.counts})


def known_edges(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook, scales: Scales) -> KnownEdges:
    """Return a table's scaled edges into a partition, with dense ids and keys of both ends; others are set aside."""
    num_tables = len(job.tables.edges)
    partition, number = divmod(index, num_tables)
    source = job.tables.edges[number]
    tasks = range(number, job.partitions * num_tables, num_tables)
    arrived = inbox.read("edges_by_dst", tasks=tasks).combine_chunks()
    part = partition * job.graph.num_types + source.target
    rows, found, dense, keys = _resolve(arrived, inbox, job, book, source=source, part=part, column="dst_id")
    rows = rows.drop_columns(["dst_id"]).append_column("dst", pa.array(dense)).append_column("dst_key", pa.array(keys))
    if (scale := scales.get(job.table_names.edges[number])) is not None:
        rows = rows.set_column(rows.column_names.index("attributes"), "attributes", scaled(rows["attributes"], scale))
    files = job.set_aside(f"{source.stem}-dst-{partition:05d}", found.bad)
    counts = {"rows_out": rows.num_rows, **found.counts}
    return KnownEdges(rows, TaskOutput(files=files, counts=counts))


def with_reverses(rows: pa.Table, source: EdgeTable) -> DirectedEdges:
    """Return a table's edges and their reverses, and the number of the relation that each is of.

    Where both are of one relation, a loop is its own reverse and is kept once.
    """
    assert source.reverse is not None
    back = rows
    if source.reverse == source.relation:
        back = take_rows(rows, np.flatnonzero(to_numpy(rows["src"]) != to_numpy(rows["dst"])))
    swapped = {"src": "dst", "dst": "src", "src_key": "dst_key", "dst_key": "src_key"}
    back = back.rename_columns([swapped.get(name, name) for name in back.column_names]).select(rows.column_names)
    relation = np.repeat([source.relation, source.reverse], [rows.num_rows, back.num_rows])
    return DirectedEdges(pa.concat_tables([rows, back]).combine_chunks(), relation)


def build_with_reverses(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook) -> TaskOutput:
    """Build a partition's in-edges in one relation from edges and their reverses."""
    num_tables = len(job.tables.edges)
    source = job.tables.table_of(index % job.graph.num_relations)
    tasks = range(source.number, job.partitions * num_tables, num_tables)
    return build_edges(index, inbox.read("edges_both", tasks=tasks).combine_chunks(), job=job, book=book)


def build_edges(index: int, rows: pa.Table, *, job: IngestJob, book: PartitionBook) -> TaskOutput:
    """Write a partition's in-edges in one relation, sorted by destination; out-degrees are counted at the owners."""
    partition, relation = divmod(index, job.graph.num_relations)
    source = job.tables.table_of(relation)
    part = partition * job.graph.num_types + job.graph.target_types[relation]
    src, dst, place = (to_numpy(rows[column]) for column in ("src", "dst", "place"))
    # the order by (destination, source, place in the input) [E]; a pair of dense ids is one integer. local: the row of
    # each edge's destination in the part [E]
    pair, order = _edge_order((dst - book.start(part)) * book.num_nodes + src, place)
    local = pair // max(book.num_nodes, 1)
    src, dst = pair - local * book.num_nodes, local + book.start(part)
    name = job.graph.name_of(job.graph.relations[relation])
    columns = _edge_columns(src, dst, rows, order, schema=source.schema, relation=name)
    weight = columns.get("weight")
    file = edges_file(partition, job.graph, relation=relation)
    entry = commit_table(job.artifact, file, pa.table(columns), row_group_size=1 << 20)
    # in-edges of each node here, and the sum of their weights [N]
    in_degree = np.bincount(local, minlength=book.size(part))
    in_weight = in_degree if weight is None else np.bincount(local, weight, minlength=book.size(part))
    if weight is not None:
        column = source.config.weight_column
        _refuse_overflow(in_weight.astype(np.float64), local, weight, place=place[order], source=source, column=column)
    # the sources of these edges, anywhere in the graph, and how many of the edges each has
    ascending, _ = stable_sort(src)
    begins = np.flatnonzero(np.diff(ascending, prepend=-1))
    nodes, out = ascending[begins], np.diff(begins, append=len(src))
    return TaskOutput(
        emits=(
            Emit("out_degree", pa.table({"node": nodes, "count": out}), book.owner(nodes)),
            Emit(
                "in_degree",
                pa.table({"in_degree": in_degree, "in_weight": in_weight.astype(np.float32)}),
                np.full(len(in_degree), part),
            ),
        ),
        files=(entry,),
        counts={"edges": len(src)},
    )


def _edge_columns(
    src: IntArray, dst: IntArray, rows: pa.Table, order: IntArray, *, schema: EdgeSchema, relation: str
) -> dict[str, Any]:
    """Return the columns of edges in the store. src, dst: in the order of the store, rows [E]: in the given `order`."""
    # what identifies each edge, whatever the partitioning [E]
    ends, number = (to_numpy(rows["dst_key"])[order], to_numpy(rows["src_key"])[order]), occurrences(dst, src)
    columns = {"dst": dst, "src": src, "edge_key": edge_keys(*ends, number, relation=relation)}
    if schema.has_weight:
        columns["weight"] = to_numpy(rows["weight"])[order]
    if schema.attributes:
        columns["attributes"] = from_matrix(to_matrix(rows["attributes"])[order])
    if schema.has_time:
        columns["time"] = to_numpy(rows["time"])[order]
    return columns


def _refuse_overflow(
    in_weight: FloatArray, local: IntArray, weight: FloatArray, *, place: IntArray, source: EdgeTable, column: str
) -> None:
    """Raise TableError where the weights into a node add up to more than float32 holds, naming the largest of them."""
    beyond = np.flatnonzero(in_weight > np.finfo(np.float32).max)
    if len(beyond):
        into = np.flatnonzero(local == beyond[0])
        chunk, row = place_of(source.chunks, int(place[into[np.argmax(weight[into])]]))
        raise TableError(
            f"column {column!r}: the weights into one node add up to {in_weight[beyond[0]]:.3g}, more than "
            f"float32 holds (3.4e38); row {row} is the largest of them",
            where=chunk.place,
            fix="Scale the weights down.",
        )


def _edge_order(pair: IntArray, place: IntArray) -> Sorted:
    """Return pairs in order, and the order by (pair, place): one stable sort, as parallel edges come in input order."""
    pair, order = stable_sort(pair)
    # edges after another of the same pair; with reverses one may come before the reverse of an earlier one
    again = 1 + np.flatnonzero(pair[1:] == pair[:-1])
    if np.any(place[order[again]] < place[order[again - 1]]):
        order = order[np.lexsort((place[order], pair))]
    return Sorted(pair, order)


def occurrences(dst: IntArray, src: IntArray) -> IntArray:
    """Return each edge's number among the edges of the same pair [E]; pairs lie together."""
    native = number_pairs(dst, src)
    if native is not None:
        return native
    if not len(dst):
        return np.zeros(0, np.int64)
    # whether an edge is the first of its pair [E], and the positions of those
    first = np.r_[True, (dst[1:] != dst[:-1]) | (src[1:] != src[:-1])]
    start = np.flatnonzero(first)
    # how far each edge lies behind the first of its pair [E]
    numbers: IntArray = np.arange(len(dst)) - start[np.cumsum(first) - 1]
    return numbers
