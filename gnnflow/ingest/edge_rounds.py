"""The rounds of ingest over edges: what a task does to one chunk or partition. Pure but for the files it commits.

An edge visits the partition of its source, then its destination's; each end's dense id is looked up where that
node lives, so no task ever needs more than one partition's ids. Where tasks map all ids (`owned_ids`) it visits its
destination alone. Edges end sorted by (destination, source, place in the input), and equal pairs are numbered in that
order, which makes every edge's key unique and reproducible.

With T types, E edge tables and R relations the tasks of a round are, in this order: chunks table by table; for each
partition its types, its edge tables, or its relations. `book` counts the nodes of a type in a partition as a
part; without types a part is a partition.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.book import PartitionBook
from gnnflow.graph.errors import TableError
from gnnflow.graph.hashing import seed_word
from gnnflow.ingest.checks import Fault, Separated, first_rows, near_id, place_of
from gnnflow.ingest.classes import label_text
from gnnflow.ingest.large_parts import EdgeRuns, runs_of
from gnnflow.ingest.moments import count_numbers, scaled
from gnnflow.ingest.owned_ids import OwnedIds
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
from gnnflow.native import Sorted, find, find_texts, hash_pairs, hash_texts, number_pairs, stable_sort
from gnnflow.sampling import edge_keys
from gnnflow.storage.columns import (
    combine,
    from_matrix,
    id_keys,
    plain_values,
    take_rows,
    texts_of,
    to_matrix,
    to_numpy,
)
from gnnflow.storage.graph_store import ENDS, edges_file
from gnnflow.storage.tables import TablePieces

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from gnnflow.graph.arrays import BoolArray, FloatArray, IntArray, KeyArray
    from gnnflow.graph.facts import IdType
    from gnnflow.graph.scales import Scales
    from gnnflow.ingest.job import IngestJob
    from gnnflow.ingest.schema import EdgeSchema
    from gnnflow.ingest.tables import EdgeTable
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.storage.writing import FileEntry

WeightSums = npt.NDArray[np.float64]
_ROW_GROUP = 1 << 20
_ALL = sys.maxsize  # bytes of a run that has all edges
_COUNTERS = 2
"""Nodes for each edge of a run, up to which counting at every node is faster than sorting the sources."""


class CheckedEnds(NamedTuple):
    """Edges with a known end [E], all rows after the check, and the end's place [E]."""

    rows: pa.Table
    checked: Separated
    places: IntArray


class KnownEdges(NamedTuple):
    """A table's edges both ends of which are nodes [E], and what became of the others."""

    rows: pa.Table
    done: TaskOutput


class DirectedEdges(NamedTuple):
    """Edges, each in the direction of its relation, and the number of that relation [E]."""

    rows: pa.Table
    relation: IntArray


def read_edges(index: int, inbox: Inbox, *, job: IngestJob) -> TaskOutput:
    """Read one chunk of edges, check its rows, and send each to the home of its source, or its destination's."""
    source = job.edge_table(index)
    schema, config = source.schema, source.config
    channel, end = ("edges_by_dst", "dst_id") if job.maps_ids else ("edges_by_src", "src_id")

    def send(rows: pa.Table, place: IntArray) -> tuple[Emit]:
        columns = edge_columns(rows, schema, config)
        home = job.home_of(columns[end]) * len(job.tables.edges) + source.number
        return (Emit(channel, pa.table({**columns, "place": place}), home),)

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
    return TaskOutput(coming=source_runs(index, inbox, job=job, book=book))


def source_runs(
    index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook, at_once: bool = False
) -> Generator[Emit, None, TaskOutput]:
    """Send a partition's edges to their destinations, run by run, and return the task's files and counts.

    Integers are sent as the ids of the sources, of which their keys follow (`with_source_keys`): an id takes half the
    bytes of its key. at_once: all edges are one run.
    """
    partition, number = divmod(index, len(job.tables.edges))
    source = job.tables.edges[number]
    part = partition * job.graph.num_types + source.source
    is_counted = bool(source.schema.attributes) and job.table_names.edges[number] not in job.given_scales
    ids, done, counts = part_ids(inbox, part), SetAside(f"{source.stem}-src-{partition:05d}"), dict[str, Any]()
    # numbers are counted in the order of all of them
    most = _ALL if at_once or is_counted else job.run_bytes
    for arrived in runs_of(inbox.files("edges_by_src", tasks=source.tasks), most):
        local = _places(ids, combine(arrived["src_id"]))
        rows, found, local = _resolve(arrived, local, inbox, job, source=source, part=part, column="src_id")
        keys = None if pa.types.is_integer(ids.type) else id_keys(ids)[local]
        rows = rows.append_column("src", pa.array(local + book.start(part)))
        rows = rows if keys is None else rows.drop_columns(["src_id"]).append_column("src_key", pa.array(keys))
        home = job.home_of(combine(rows["dst_id"])) * len(job.tables.edges) + number
        done.add(found, rows.num_rows)
        if is_counted:
            counts = count_numbers(rows["attributes"], job.config.edge_normalize, in_order=False)
        yield Emit("edges_by_dst", rows, home)
    return TaskOutput(files=done.files(job), counts={**done.counts, **counts})


def with_source_keys(rows: pa.Table) -> pa.Table:
    """Return edges that `source_runs` sent with the keys of their sources."""
    if "src_id" not in rows.column_names:
        return rows
    return rows.drop_columns(["src_id"]).append_column("src_key", pa.array(id_keys(rows["src_id"])))


class SetAside:
    """The rows that a task's runs set aside, and its counts. name: of the file for them."""

    def __init__(self, name: str) -> None:
        self._name, self._bad = name, list[pa.Table]()
        self.rows_out = 0
        self.counts: dict[str, Any] = {"rows_quarantined": 0, "reasons": ()}

    def add(self, found: Separated, rows_out: int) -> None:
        """Add what became of a run."""
        self._bad.append(found.bad)
        self.rows_out += rows_out
        for name, value in found.counts.items():
            self.counts[name] += value

    def files(self, job: IngestJob) -> tuple[FileEntry, ...]:
        """Commit the rows, if there are any."""
        return job.set_aside(self._name, pa.concat_tables(self._bad))


def part_ids(inbox: Inbox, part: int) -> pa.Array:
    """Return the ids of a part's nodes, in the order of their dense ids."""
    return combine(inbox.read("node_ids", tasks=[part], partition=part)["id"])


def _resolve(
    rows: pa.Table,
    places: IntArray,
    inbox: Inbox,
    job: IngestJob,
    *,
    source: EdgeTable,
    part: int,
    column: str,
) -> CheckedEnds:
    """Separate edges whose end `column` is a node of a part's type. places [E]: of the nodes, -1 for one unknown."""
    missing = np.flatnonzero(places < 0)
    is_source = column == "src_id"
    side, of = (source.config.src_column, source.ends[0]) if is_source else (source.config.dst_column, source.ends[1])
    id_type = source.schema.src_type if is_source else source.schema.dst_type
    near = ""
    if len(missing) and id_type == "string" and job.config.on_bad_rows == "fail":
        unknown = combine(rows[column].take(pa.array(first_rows(missing, to_numpy(rows["place"])))))
        near = near_id(unknown, _ids_of_type(inbox, job, node_type=part % job.graph.num_types))
    fault = replace(end_fault(missing, side=side, of=of, id_type=id_type, near=near), held_in=column)
    checked = separate_arrived(rows, fault, source=source, job=job)
    return CheckedEnds(take_kept(rows, checked.kept), checked, places[checked.kept])


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
        yield part_ids(inbox, part)


def resolve_destinations(
    index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook, scales: Scales
) -> TaskOutput:
    """Replace destination ids by dense ids and keys, then build the in-edges, or send edges and reverses on.

    scales: of the attributes of each table's edges.
    """
    return TaskOutput(coming=_destination_runs(index, inbox, job=job, book=book, scales=scales))


def _destination_runs(
    index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook, scales: Scales
) -> Generator[Emit, None, TaskOutput]:
    source = job.tables.edges[index % len(job.tables.edges)]
    done = SetAside(f"{source.stem}-dst-{index // len(job.tables.edges):05d}")
    runs = known_runs(index, inbox, job=job, book=book, scales=scales, done=done, most_bytes=job.run_bytes)
    built = TaskOutput()
    if source.reverse is None:
        # Without reverses every relation has a table, and both are in the order of their names.
        built = yield from build_edges(index, runs, job=job, book=book)
    else:
        for rows in runs:
            both, relation = with_reverses(rows, source)
            home = book.owner(to_numpy(both["dst"])) // job.graph.num_types
            yield Emit("edges_both", both, home * job.graph.num_relations + relation)
    counts = {**built.counts, "rows_out": done.rows_out, **done.counts}
    return TaskOutput(files=(*done.files(job), *built.files), counts=counts)


def known_edges(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook, scales: Scales) -> KnownEdges:
    """Return a table's scaled edges into a partition, with dense ids and keys of both ends; others are set aside."""
    partition, number = divmod(index, len(job.tables.edges))
    done = SetAside(f"{job.tables.edges[number].stem}-dst-{partition:05d}")
    (rows,) = known_runs(index, inbox, job=job, book=book, scales=scales, done=done, most_bytes=_ALL)
    return KnownEdges(rows, TaskOutput(files=done.files(job), counts={"rows_out": done.rows_out, **done.counts}))


def known_runs(
    index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook, scales: Scales, done: SetAside, most_bytes: int
) -> Iterator[pa.Table]:
    """Yield what `known_edges` returns in runs of about `most_bytes`. done: gets what became of them."""
    num_tables = len(job.tables.edges)
    partition, number = divmod(index, num_tables)
    source = job.tables.edges[number]
    tasks = source.tasks if job.maps_ids else range(number, job.partitions * num_tables, num_tables)
    part = partition * job.graph.num_types + source.target
    ids, scale = part_ids(inbox, part), scales.get(job.table_names.edges[number])
    sources = OwnedIds.of(source.source, inbox, job=job, book=book) if job.maps_ids else None
    most_bytes = most_bytes if sources is None else most_bytes // 4 * 3  # the sources' dense ids are still to come
    for sent in runs_of(inbox.files("edges_by_dst", tasks=tasks), most_bytes):
        arrived = with_source_keys(sent)
        if sources is not None:
            src = sources.find(to_numpy(sent["src_id"]), to_numpy(arrived["src_key"]))
            _resolve(sent, src, inbox, job, source=source, part=source.source, column="src_id")  # raises for any other
            arrived = arrived.append_column("src", pa.array(src))
        local = _places(ids, combine(arrived["dst_id"]))
        rows, found, local = _resolve(arrived, local, inbox, job, source=source, part=part, column="dst_id")
        keys = id_keys(rows["dst_id"]) if pa.types.is_integer(ids.type) else id_keys(ids)[local]
        rows = rows.drop_columns(["dst_id"])
        rows = rows.append_column("dst", pa.array(local + book.start(part))).append_column("dst_key", pa.array(keys))
        if scale is not None:
            column = rows.column_names.index("attributes")
            rows = rows.set_column(column, "attributes", scaled(rows["attributes"], scale))
        done.add(found, rows.num_rows)
        yield rows


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
    runs = runs_of(inbox.files("edges_both", tasks=tasks), job.run_bytes)
    return TaskOutput(coming=build_edges(index, runs, job=job, book=book))


def build_edges(
    index: int, runs: Iterable[pa.Table], *, job: IngestJob, book: PartitionBook
) -> Generator[Emit, None, TaskOutput]:
    """Write a partition's in-edges in one relation, sorted by destination; out-degrees are counted at the owners.

    runs: of the edges, one or several.
    """
    partition, relation = divmod(index, job.graph.num_relations)
    source = job.tables.table_of(relation)
    part = partition * job.graph.num_types + job.graph.target_types[relation]
    name, file = job.graph.name_of(job.graph.relations[relation]), edges_file(partition, job.graph, relation=relation)
    # in-edges of each node here, and the sum of their weights [N]
    in_degree, in_weight = np.zeros(book.size(part), np.int64), np.zeros(book.size(part))
    with EdgeRuns(partial(_pairs, book=book, part=part)) as held, TablePieces() as pieces:
        for rows in runs:
            held.add(rows)
        for rows in held.ranges():
            place = to_numpy(rows["place"])
            # the order by (destination, source, place in the input) [E]
            pair, order = _edge_order(_pairs(rows, book=book, part=part), place)
            local, src = pair >> _node_bits(book), pair & (1 << _node_bits(book)) - 1
            dst = local + book.start(part)
            columns: dict[str, Any] = {
                "dst": dst,
                "src": src,
                "edge_key": ordered_keys(pair, order, rows, relation=name),
            }
            columns |= _other_columns(rows, order, source.schema)
            pieces.add(pa.table(columns))
            in_degree += np.bincount(local, minlength=len(in_degree))
            if (weight := columns.get("weight")) is not None:
                _add_weights(in_weight, local, weight)
                _refuse_overflow(in_weight, local, weight, place=place[order], source=source)
            nodes, out = _out_degrees(src, book.num_nodes)
            yield Emit("out_degree", pa.table({"node": nodes, "count": out}), book.owner(nodes))
        entry = pieces.commit(job.artifact, file, row_group_size=_ROW_GROUP, ascending=ENDS)
    weights = in_weight if source.schema.has_weight else in_degree
    degrees = pa.table({"in_degree": in_degree, "in_weight": weights.astype(np.float32)})
    yield Emit("in_degree", degrees, np.full(len(in_degree), part))
    return TaskOutput(files=(entry,), counts={"edges": int(in_degree.sum())})


def _pairs(rows: pa.Table, *, book: PartitionBook, part: int) -> IntArray:
    """Return both ends of edges into a part as one integer [E], in the order of (destination, source)."""
    pairs: IntArray = to_numpy(rows["dst"]) - book.start(part)
    pairs <<= _node_bits(book)
    pairs |= to_numpy(rows["src"])
    return pairs


def _node_bits(book: PartitionBook) -> int:
    return book.num_nodes.bit_length()


def _add_weights(in_weight: WeightSums, local: IntArray, weight: FloatArray) -> None:
    """Add the weights of edges, in order, to the sums of their destinations [N]."""
    if len(local):
        # only the first destination has edges in an earlier range: its sum so far is the first to add
        begun = np.bincount(np.r_[local[0], local], np.r_[in_weight[local[0]], weight])
        in_weight[local[0] : len(begun)] = begun[local[0] :]


def _out_degrees(src: IntArray, num_nodes: int) -> tuple[IntArray, IntArray]:
    """Return the sources of edges, anywhere in the graph, ascending, and how many of the edges each has."""
    if num_nodes <= _COUNTERS * len(src):
        counts = np.bincount(src, minlength=num_nodes)
        nodes = np.flatnonzero(counts)
        return nodes, counts[nodes]
    ascending, _ = stable_sort(src)
    begins = np.flatnonzero(np.diff(ascending, prepend=-1))
    return ascending[begins], np.diff(begins, append=len(src))


def ordered_keys(pair: IntArray, order: IntArray, rows: pa.Table, *, relation: str) -> KeyArray:
    """Return what identifies each edge, whatever the partitioning [E]. pair: in order, rows [E]: in the given order."""
    ends = (to_numpy(rows["dst_key"]), to_numpy(rows["src_key"]))
    native = hash_pairs(pair, order, *ends, seed_word(relation))
    if native is not None:
        return native
    # a pair as one integer stands for both of its ends
    return edge_keys(ends[0][order], ends[1][order], occurrences(pair, pair), relation=relation)


def _other_columns(rows: pa.Table, order: IntArray, schema: EdgeSchema) -> dict[str, Any]:
    """Return the columns of edges in the store besides ends and keys. rows [E]: in the given `order`."""
    columns: dict[str, Any] = {}
    if schema.has_weight:
        columns["weight"] = to_numpy(rows["weight"])[order]
    if schema.attributes:
        columns["attributes"] = from_matrix(to_matrix(rows["attributes"])[order])
    if schema.has_time:
        columns["time"] = to_numpy(rows["time"])[order]
    return columns


def _refuse_overflow(
    in_weight: WeightSums, local: IntArray, weight: FloatArray, *, place: IntArray, source: EdgeTable
) -> None:
    """Raise TableError where the weights into a node add up to more than float32 holds, naming the largest of them."""
    beyond, column = np.flatnonzero(in_weight > np.finfo(np.float32).max), source.config.weight_column
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
