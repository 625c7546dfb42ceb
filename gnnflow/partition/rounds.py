"""What each round of `partition` does to one partition of the old store, or of the new one.

A node's row moves as it is, degrees and key included; it gets a new dense id, in the order of the users' ids within its
partition and type, as ingest numbers nodes. So the new store is the one that ingest would have written, had it dealt
the nodes to these partitions, and what is sampled stays the same: samples are keyed by keys.

An old partition knows the new ids of its own nodes once they are numbered. Those of its edges' other ends it asks their
owners for, each once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.arrays import distinct
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.partition.balance import InducedGraph, balance, balance_factor
from gnnflow.storage.columns import combine, take_rows, to_numpy
from gnnflow.storage.filesystem import join, write_json
from gnnflow.storage.graph_store import edges_file, nodes_file
from gnnflow.storage.tables import commit_table, read_artifact_table

if TYPE_CHECKING:
    from gnnflow.graph.arrays import IntArray, KeyArray
    from gnnflow.graph.book import PartitionBook
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.partition.instances import Ends
    from gnnflow.partition.job import PartitionJob
    from gnnflow.storage.graph_store import GraphStore

BALANCE = "balance.json"
"""The figures of the plan, below the artifact."""

_EDGE_ROWS = 1 << 20
"""Rows of a group in a file of edges, as ingest writes them."""


def plan(index: int, inbox: Inbox, *, job: PartitionJob) -> TaskOutput:
    """Choose a partition for every node and tell each old partition those of its own."""
    book, parts, schema = job.store.book, job.store.num_partitions, job.store.schema
    ends = [_ends(job.store, relation) for relation in range(schema.num_relations)]
    cost = job.costs.seconds(*job.instances.counts(ends, schema=schema, num_nodes=book.num_nodes))
    dst, src = (np.concatenate(each) for each in zip(*ends, strict=True))
    graph = InducedGraph.of(dst, src, num_nodes=book.num_nodes)
    owner = np.repeat(np.arange(parts), [book.size(number) for number in range(parts)])
    keys = _keys(job.store)
    found = balance(graph, cost, owner, num_partitions=parts, keys=keys, threshold=job.threshold, seed=job.seed)
    figures = {
        "factor_before": balance_factor(cost, owner, num_partitions=parts),
        "factor": balance_factor(cost, found.owner, num_partitions=parts),
        "cut_before": graph.cut(owner),
        "cut": graph.cut(found.owner),
        "moves": len(found.moves),
        "moved": int(np.count_nonzero(found.owner != owner)),
    }
    told = {**figures, "threshold": job.threshold, "costs": job.costs.as_document()}
    file = write_json(join(job.artifact, BALANCE), told)
    return TaskOutput(emits=(Emit("homes", pa.table({"home": found.owner}), owner),), files=(file,), counts=figures)


def _ends(store: GraphStore, relation: int) -> Ends:
    """Return targets and sources of all edges of a relation."""
    parts = range(store.num_partitions)
    tables = [store.edges(partition, ["dst", "src"], relation=relation) for partition in parts]
    dst, src = (np.concatenate([to_numpy(each[name]) for each in tables]) for name in ("dst", "src"))
    return dst, src


def _keys(store: GraphStore) -> KeyArray:
    """Return the key of each node, in the order of dense ids [N]."""
    places = [
        (partition, number) for partition in range(store.num_partitions) for number in range(store.schema.num_types)
    ]
    return np.concatenate([to_numpy(store.nodes(part, ["key"], node_type=number)["key"]) for part, number in places])


def move_nodes(index: int, inbox: Inbox, *, job: PartitionJob) -> TaskOutput:
    """Send each node's row to its new partition, and ask the owners of the edges' sources for their new ids."""
    store, schema, parts = job.store, job.store.schema, job.store.num_partitions
    homes = to_numpy(inbox.read("homes")["home"])
    emits, sizes = [], np.zeros((parts, schema.num_types), np.int64)
    for number in range(schema.num_types):
        rows = read_artifact_table(store.artifact, nodes_file(index, schema, node_type=number))
        home = homes[store.book.rows(index, number)]
        sizes[:, number] = np.bincount(home, minlength=parts)
        emits.append(Emit(f"nodes_{number}", rows, home))
    edges = [store.edges(index, ["src"], relation=relation) for relation in range(schema.num_relations)]
    sources = distinct(np.concatenate([to_numpy(each["src"]) for each in edges]))
    asked = Emit("asked", pa.table({"node": sources}), store.book.owner(sources))
    return TaskOutput(emits=(*emits, asked), counts={"sizes": sizes.tolist()})


def number_nodes(index: int, inbox: Inbox, *, job: PartitionJob, book: PartitionBook) -> TaskOutput:
    """Write a new partition's nodes, in the order of their ids, and tell their old owners the new dense ids."""
    files, emits, start = [], [], book.start(index)
    for number in range(book.num_types):
        rows = inbox.read(f"nodes_{number}").combine_chunks()
        ids = combine(rows["id"])
        rows = take_rows(rows, to_numpy(pc.sort_indices(ids)).astype(np.int64))
        old, place = to_numpy(rows["node"]), book.rows(index, number)
        new = np.arange(start + place.start, start + place.stop)
        written = rows.set_column(rows.column_names.index("node"), "node", pa.array(new))
        files.append(commit_table(job.artifact, nodes_file(index, job.store.schema, node_type=number), written))
        emits.append(pa.table({"old": old, "new": new}))
    numbered = pa.concat_tables(emits)
    owner = job.store.book.owner(to_numpy(numbered["old"]))
    return TaskOutput(emits=(Emit("numbered", numbered, owner),), files=tuple(files))


def answer(index: int, inbox: Inbox, *, job: PartitionJob) -> TaskOutput:
    """Tell each old partition the new ids of the nodes that it asked for."""
    new, start = _numbered(index, inbox, job), job.store.book.start(index)
    pieces = [to_numpy(piece["node"]) for piece in inbox.pieces("asked")]
    asked = np.concatenate(pieces)
    known = pa.table({"old": asked, "new": new[asked - start]})
    return TaskOutput(emits=(Emit("known", known, np.repeat(np.arange(len(pieces)), [len(each) for each in pieces])),))


def _numbered(index: int, inbox: Inbox, job: PartitionJob) -> IntArray:
    """Return the new dense ids of an old partition's nodes [N]."""
    book, rows = job.store.book, inbox.read("numbered")
    new = np.zeros(book.size(index), np.int64)
    new[to_numpy(rows["old"]) - book.start(index)] = to_numpy(rows["new"])
    return new


def move_edges(index: int, inbox: Inbox, *, job: PartitionJob, book: PartitionBook) -> TaskOutput:
    """Send the in-edges of an old partition's nodes to where these are now, with the new ids of both ends."""
    new, start = _numbered(index, inbox, job), job.store.book.start(index)
    known = inbox.read("known")
    # what was asked for, owner by owner and ascending, so ascending as a whole
    old_sources, new_sources = to_numpy(known["old"]), to_numpy(known["new"])
    emits = []
    for relation in range(job.store.schema.num_relations):
        rows = read_artifact_table(job.store.artifact, edges_file(index, job.store.schema, relation=relation))
        dst = new[to_numpy(rows["dst"]) - start]
        src = new_sources[np.searchsorted(old_sources, to_numpy(rows["src"]))]
        for name, ends in {"dst": dst, "src": src}.items():
            rows = rows.set_column(rows.column_names.index(name), name, pa.array(ends))
        emits.append(Emit(f"edges_{relation}", rows, book.owner(dst)))
    return TaskOutput(emits=tuple(emits))


def sort_edges(index: int, inbox: Inbox, *, job: PartitionJob, book: PartitionBook) -> TaskOutput:
    """Write the in-edges of a new partition, sorted by (destination, source) and those of a pair as they were."""
    files = []
    for relation in range(job.store.schema.num_relations):
        rows = inbox.read(f"edges_{relation}").combine_chunks()
        dst, src = to_numpy(rows["dst"]), to_numpy(rows["src"])
        # a pair as one integer; all edges of a pair came from one partition, in their order
        order = np.argsort((dst - book.start(index)) * book.num_nodes + src, kind="stable")
        name = edges_file(index, job.store.schema, relation=relation)
        files.append(commit_table(job.artifact, name, take_rows(rows, order), row_group_size=_EDGE_ROWS))
    return TaskOutput(files=tuple(files))
