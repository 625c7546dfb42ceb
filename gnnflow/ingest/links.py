"""The rounds of ingest over edges that are targets: splits them, and removes copies of held-out edges from messages.

An edge's split is a function of its two ends in either order, or of its time, or a column of the table. A column may
put an edge and its reverse into different splits: then the later split (train, valid, test) has both. So each held-out
pair is sent to the owners of both its ends, who leave out every copy of an earlier split. Edges with times keep their
copies: an earlier edge between the same ends is history, and a later one is hidden where the pair is scored
(`graphfeature/times.py`).

With types targets are the edges of one table, and a held-out pair is sent to every relation that joins the types of its
ends, in either direction: the reverse relation, and any other, whose edges may be the same ones written again.

Shapes: E edges, H held-out pairs, P targets, R relations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import find_places
from gnnflow.graph.hashing import combine, seed_word
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest import edge_rounds
from gnnflow.ingest.labels import label_counts
from gnnflow.ingest.source import time_keys
from gnnflow.ingest.splits import bounds_of_keys, find_edge_bounds, send_keys
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput, drained
from gnnflow.sampling import edge_keys
from gnnflow.sampling.pairs import EDGE_SPLIT, pair_keys, random_splits, ranked_splits
from gnnflow.storage.columns import id_keys, take_rows, to_numpy
from gnnflow.storage.graph_store import pairs_file
from gnnflow.storage.tables import commit_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.graph.arrays import Array, IntArray, KeyArray
    from gnnflow.graph.book import PartitionBook
    from gnnflow.graph.scales import Scales
    from gnnflow.ingest.job import IngestJob
    from gnnflow.ingest.tables import EdgeTable, Tables
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner, TaskRecord
    from gnnflow.sampling.pairs import SplitBounds

_TRAIN = SPLITS.index("train")
_STORED = ("src", "dst", "key", "split", "label", "attributes", "time")
_OF_TARGETS = ("split", "label", "labelled")


def send_ranks(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook) -> TaskOutput:
    """Resolve sources as `edge_rounds.resolve_sources` does, and send the keys that targets are divided by."""
    assert job.targets is not None
    if index % len(job.tables.edges) != job.targets.table:
        return edge_rounds.resolve_sources(index, inbox, job=job, book=book)
    (sent,), done = drained(edge_rounds.source_runs(index, inbox, job=job, book=book, at_once=True))
    rows = edge_rounds.with_source_keys(sent.rows)
    source, target = to_numpy(rows["src_key"]), id_keys(rows["dst_id"])
    is_target = _are_targets(rows, source, target, tables=job.tables)
    keyed = rows.append_column("dst_key", pa.array(target))
    keyed = keyed.select(["time"] if job.targets.by_time else ["src_key", "dst_key", "label"])
    group, key = _ranked_keys(take_rows(keyed, np.flatnonzero(is_target)), job.tables)
    ranks = send_keys(group, key, destinations=job.partitions)
    return replace(done, emits=(sent, *ranks.emits), counts={**done.counts, **ranks.counts})


def find_bounds(records: Sequence[TaskRecord], job: IngestJob, runner: RoundRunner) -> SplitBounds:
    """Return the keys that divide the targets. records: of the tasks of `send_ranks`, which sent their keys."""
    assert job.targets is not None
    tasks = _tasks(job.targets.table, job)
    return find_edge_bounds(
        [records[task] for task in tasks],
        job.tables,
        runner,
        partitions=job.partitions,
        read="edges_src",
        tasks=tasks,
    )


def split_edges(
    index: int,
    inbox: Inbox,
    *,
    job: IngestJob,
    book: PartitionBook,
    scales: Scales,
    bounds: SplitBounds,
) -> TaskOutput:
    """Send on a table's edges that carry messages into a partition, with its targets and held-out pairs.

    bounds: the keys that divide the targets, where these are split by their ranks.
    """
    assert job.targets is not None
    rows, done = edge_rounds.known_edges(index, inbox, job=job, book=book, scales=scales)
    partition, number = divmod(index, len(job.tables.edges))
    table = job.tables.edges[number]
    if not table.schema.is_target:
        carries = np.ones(rows.num_rows, bool)
        if job.targets.by_time and table.schema.has_time and not job.targets.held_out_carry:
            carries = ranked_splits(*time_keys(to_numpy(rows["time"])), bounds) <= _TRAIN
        return replace(done, emits=(_carrying(rows, carries, table, job=job, book=book),))
    src, dst = to_numpy(rows["src"]), to_numpy(rows["dst"])
    # split code of each edge [E]; -1 for an edge without a label, and for a loop where links are predicted
    is_target = _are_targets(rows, src, dst, tables=job.tables)
    codes = _codes(rows, job.tables, bounds) if job.targets.are_split else np.full(len(is_target), -1)
    split = np.where(is_target, codes, -1).astype(np.int8)
    # every labelled edge is published with its attributes; links are compared with random pairs, which have none
    pairs = _without(rows, ("split", "weight") if job.targets.are_all_edges else ("split", "weight", "attributes"))
    pairs = pairs.append_column("split", pa.array(split))
    pairs = take_rows(pairs, np.flatnonzero((split >= 0) | job.targets.are_all_edges))
    # where the last edges by time are held out, no edge that late carries messages, target or not
    carries = ((codes if job.targets.by_time else split) <= _TRAIN) | job.targets.held_out_carry
    held = (split > _TRAIN) & job.targets.hides_copies
    home = partition * job.graph.num_relations + table.relation
    emits = (
        _carrying(rows, carries, table, job=job, book=book),
        Emit("pairs", pairs, np.full(pairs.num_rows, home)),
        _held(src[held], dst[held], split[held], table, job=job, book=book),
    )
    return replace(done, emits=emits)


def splits_of(columns: pa.Table, tables: Tables) -> Array:
    """Return the split code of each edge of the targets' table [E], -1 for no target. columns: of all its rows."""
    targets = tables.targets
    assert targets is not None
    source, target = id_keys(columns["src_id"]), id_keys(columns["dst_id"])
    is_target = _are_targets(columns, source, target, tables=tables)
    keyed = columns.append_column("src_key", pa.array(source)).append_column("dst_key", pa.array(target))
    found, codes = np.flatnonzero(is_target), np.full(len(is_target), -1)
    keyed = take_rows(keyed, found)
    bounds = () if targets.drawn is None else bounds_of_keys(*_ranked_keys(keyed, tables), targets.drawn)
    codes[found] = _codes(keyed, tables, bounds)
    return codes


def _ranked_keys(rows: pa.Table, tables: Tables) -> tuple[IntArray, KeyArray]:
    """Return the group and the key of each edge of the targets' table [E], where these are divided by ranks."""
    assert tables.targets is not None
    if tables.targets.by_time:
        return time_keys(to_numpy(rows["time"]))
    keys = _pair_keys(to_numpy(rows["src_key"]), to_numpy(rows["dst_key"]), tables=tables)
    hashed = combine(keys, seed_word(EDGE_SPLIT, tables.targets.seed))
    return np.asarray(to_numpy(rows["label"]), np.int64), ~hashed  # the smallest are test, as of a random split


def _are_targets(rows: pa.Table, source: Array, target: Array, *, tables: Tables) -> Array:
    """Return which edges of the targets' table may be targets [E]. source, target: ids or keys of their ends."""
    targets = tables.targets
    assert targets is not None
    if targets.are_all_edges:
        return to_numpy(rows["labelled"]) if targets.have_labels else np.zeros(rows.num_rows, bool)
    table = tables.edges[targets.table]
    return source != target if table.source == table.target else np.ones(rows.num_rows, bool)


def _carrying(rows: pa.Table, carries: Array, table: EdgeTable, *, job: IngestJob, book: PartitionBook) -> Emit:
    """Send the edges of a table that carry messages, and their reverses where the config adds them."""
    edges = _without(take_rows(rows, np.flatnonzero(carries)), _OF_TARGETS)
    relation: int | IntArray = table.relation
    if table.reverse is not None:
        edges, relation = edge_rounds.with_reverses(edges, table)
    home = book.owner(to_numpy(edges["dst"])) // job.graph.num_types
    return Emit("edges_both", edges, home * job.graph.num_relations + relation)


def _held(src: IntArray, dst: IntArray, split: Array, table: EdgeTable, *, job: IngestJob, book: PartitionBook) -> Emit:
    """Send held-out pairs [H], in both directions, to every relation whose edges may join their ends."""
    ways = ((table.source, table.target, src, dst), (table.target, table.source, dst, src))
    of_relations = zip(job.graph.source_types, job.graph.target_types, strict=True)
    found = [
        (source, target, book.owner(target) // job.graph.num_types * job.graph.num_relations + relation)
        for relation, joined in enumerate(of_relations)
        for first, last, source, target in ways
        if joined == (first, last)
    ]
    source, target, home = (np.concatenate(column) for column in zip(*found, strict=True))
    ends = pa.table({"src": source, "dst": target, "split": np.tile(split, len(found))})
    return Emit("held", ends, home)


def _without(rows: pa.Table, names: tuple[str, ...]) -> pa.Table:
    return rows.drop_columns([name for name in names if name in rows.column_names])


def _codes(rows: pa.Table, tables: Tables, bounds: SplitBounds) -> Array:
    assert tables.targets is not None
    split = tables.targets.task.split
    if split.kind == "column":
        return to_numpy(rows["split"])
    if tables.targets.drawn is not None:
        return ranked_splits(*_ranked_keys(rows, tables), bounds)
    assert split.kind == "random", "split codes are asked only of edges in splits"
    keys = _pair_keys(to_numpy(rows["src_key"]), to_numpy(rows["dst_key"]), tables=tables)
    return random_splits(keys, seed=tables.targets.seed, valid=split.valid, test=split.test)


def _pair_keys(source: KeyArray, target: KeyArray, *, tables: Tables) -> KeyArray:
    """Return the key of each target [E]; an edge and its reverse in one relation have the same."""
    assert tables.targets is not None
    table = tables.edges[tables.targets.table]
    return pair_keys(source, target) if table.source == table.target else combine(source, target)


def build_links(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook) -> TaskOutput:
    """Build a relation's in-edges in a partition without held-out copies, and write the targets among them."""
    assert job.targets is not None
    partition, relation = divmod(index, job.graph.num_relations)
    table = job.tables.table_of(relation)
    edges = inbox.read("edges_both", tasks=_tasks(table.number, job)).combine_chunks()
    of_targets = _tasks(job.targets.table, job)
    held, split = _latest(inbox.read("held", tasks=of_targets), book)
    kept_edges = _split_of(_pair(edges, book), held, split) < 0
    kept = take_rows(edges, np.flatnonzero(kept_edges))
    emits, built = drained(edge_rounds.build_edges(index, [kept], job=job, book=book))
    built = replace(built, emits=tuple(emits))
    counts = {**built.counts, "copies_left_out": int((~kept_edges).sum())}
    if relation != job.tables.edges[job.targets.table].relation:
        return replace(built, counts=counts)
    pairs = inbox.read("pairs", tasks=of_targets).combine_chunks()
    if job.targets.are_pairs:
        copies = _split_of(_pair(pairs, book), held, split) > to_numpy(pairs["split"])
        pairs = take_rows(pairs, np.flatnonzero(~copies))
    pairs = _with_keys(pairs, relation, job=job, book=book)
    stored = pairs.select([name for name in _STORED if name in pairs.column_names])
    entry = commit_table(job.artifact, pairs_file(partition), stored)
    return replace(built, files=(*built.files, entry), counts={**counts, **_counts(pairs, job)})


def _with_keys(pairs: pa.Table, relation: int, *, job: IngestJob, book: PartitionBook) -> pa.Table:
    """Return targets with keys, sorted by (dst, src); parallel edges in table order, or as one target [P]."""
    assert job.targets is not None
    pairs = take_rows(pairs, np.lexsort((to_numpy(pairs["place"]), _pair(pairs, book))))
    number = edge_rounds.occurrences(to_numpy(pairs["dst"]), to_numpy(pairs["src"]))
    name = job.graph.name_of(job.graph.relations[relation])
    keys = edge_keys(to_numpy(pairs["dst_key"]), to_numpy(pairs["src_key"]), number, relation=name)
    pairs = pairs.append_column("key", pa.array(keys))
    return take_rows(pairs, np.flatnonzero(number == 0)) if job.targets.are_pairs else pairs


def _tasks(table: int, job: IngestJob) -> range:
    """Return the tasks of one table in a round over (partition, edge table)."""
    num_tables = len(job.tables.edges)
    return range(table, job.partitions * num_tables, num_tables)


def _counts(pairs: pa.Table, job: IngestJob) -> dict[str, Any]:
    counts: dict[str, Any] = {"splits": np.bincount(to_numpy(pairs["split"]) + 1, minlength=1 + len(SPLITS)).tolist()}
    schema = job.tables.labelled.schema
    if schema.has_labels:
        counts["labelled"] = int(to_numpy(pairs["labelled"]).sum())
        counts |= label_counts(pairs, schema.label_kind)
    return counts


def _pair(table: pa.Table, book: PartitionBook) -> IntArray:
    """Return each edge's two ends as one integer that orders by (dst, src) [E]."""
    pair: IntArray = to_numpy(table["dst"]) * book.num_nodes + to_numpy(table["src"])
    return pair


def _latest(table: pa.Table, book: PartitionBook) -> tuple[IntArray, Array]:
    """Return the distinct held-out pairs, ascending [H], and the latest split that each is in."""
    pair, split = _pair(table, book), to_numpy(table["split"])
    # ascending pairs, and for one pair ascending splits
    order = np.lexsort((split, pair))
    pair, split = pair[order], split[order]
    # whether each row is the last of its pair
    last = np.ones(len(pair), bool)
    last[:-1] = pair[1:] != pair[:-1]
    return pair[last], split[last]


def _split_of(pairs: IntArray, held: IntArray, split: Array) -> Array:
    """Return the split code that each pair is held out for, -1 for none."""
    # each pair's position among the held-out ones, -1 where it is none of them
    place = find_places(held, pairs)
    found, is_held = np.full(len(pairs), -1, np.int8), place >= 0
    found[is_held] = split[place[is_held]]
    return found
