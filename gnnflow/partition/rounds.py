"""The rounds of `partition`: what a task does to one partition of the old store, or of the new one.

A node's row moves unchanged, with degrees and key; it gets a new dense id, in the order of the user's ids within its
partition and type, as ingest numbers nodes. So the new store equals the one that ingest would write with these
partitions, and samples stay the same, since they depend on keys.

An old partition knows the new ids of its nodes once they are numbered. It asks other owners for the new ids of its
edges' other ends, each once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.arrays import IntArray, distinct
from gnnflow.graph.book import edge_partitions
from gnnflow.graph.schema import Placement
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.native import stable_order
from gnnflow.partition.planning import crossing, loads_of, present_owner
from gnnflow.storage.columns import take_rows, to_numpy
from gnnflow.storage.graph_store import ENDS, edges_file, nodes_file, pairs_file, placed_file
from gnnflow.storage.tables import commit_table, read_artifact_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.graph.book import PartitionBook
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.partition.planning import PartitionJob

CLUSTER = "cluster"
"""The column of a node's cluster, between rounds."""

_EDGE_ROWS = 1 << 20
"""Rows of a group in a file of edges, as ingest writes them."""


def plan(index: int, inbox: Inbox, *, job: PartitionJob) -> TaskOutput:
    """Choose a partition and a cluster for every node, and send each old partition the choices of its nodes."""
    owner = present_owner(job.store)
    found = job.planner.plan(job.store, seed=job.seed)
    columns = {"home": found.owner} | ({} if found.cluster is None else {CLUSTER: found.cluster})
    figures = {**found.figures, "moved": int(np.count_nonzero(found.owner != owner))}
    counts = {"figures": figures, "settings": dict(found.settings)}
    return TaskOutput(emits=(Emit("homes", pa.table(columns), owner),), counts=counts)


def move_nodes(index: int, inbox: Inbox, *, job: PartitionJob) -> TaskOutput:
    """Send each node's row to its new partition, and ask the owners of edges' sources for new ids."""
    store, schema, parts = job.store, job.store.schema, job.store.num_partitions
    homes = inbox.read("homes")
    # new partition and new cluster of each node here [N]
    home = to_numpy(homes["home"])
    cluster = to_numpy(homes[CLUSTER]) if CLUSTER in homes.column_names else np.zeros_like(home)
    places = max(job.planner.clusters, 1)
    # nodes of each type for each cluster of each partition [P, T, C]
    emits, sizes = [], np.zeros((parts, schema.num_types, places), np.int64)
    for number in range(schema.num_types):
        rows = read_artifact_table(store.artifact, nodes_file(index, schema, node_type=number))
        own = store.book.rows(index, number)
        # nodes of the type by new partition and cluster [P C]
        counted = np.bincount(home[own] * places + cluster[own], minlength=parts * places)
        sizes[:, number] = counted.reshape(parts, places)
        emits.append(Emit(f"nodes_{number}", rows.append_column(CLUSTER, pa.array(cluster[own])), home[own]))
    # sources of the in-edges in each relation, and all nodes whose new ids are needed
    sources = [to_numpy(store.edges(index, ["src"], relation=each)["src"]) for each in range(schema.num_relations)]
    needed = [*sources, *([to_numpy(store.pairs(index, ["src"])["src"])] if store.facts.targets == "edges" else [])]
    # the sources of edges and pairs, each once
    nodes = distinct(np.concatenate(needed))
    loads = loads_of(store, index)
    counts = {
        "sizes": sizes.tolist(),
        "before": crossing(sources, store.book, partition=index),
        "loads_before": loads.sum(0).tolist(),
        # each load of each new partition from here [P, 3]
        "loads": np.stack([np.bincount(home, each, minlength=parts) for each in loads.T], axis=1).tolist(),
    }
    asked = Emit("asked", pa.table({"node": nodes}), store.book.owner(nodes))
    return TaskOutput(emits=(*emits, asked), counts=counts)


def number_nodes(index: int, inbox: Inbox, *, job: PartitionJob, book: PartitionBook) -> TaskOutput:
    """Write a new partition's nodes by cluster and id, and send the dense ids to old owners."""
    files, emits, start = [], [], book.start(index)
    for number in range(book.num_types):
        rows = inbox.read(f"nodes_{number}").combine_chunks()
        rows = take_rows(rows, to_numpy(pc.sort_indices(rows, [(CLUSTER, "ascending"), ("id", "ascending")])))
        # old and new dense ids of the type's nodes [n]
        old, place = to_numpy(rows["node"]), book.rows(index, number)
        new = np.arange(start + place.start, start + place.stop)
        written = rows.drop_columns([CLUSTER]).set_column(rows.column_names.index("node"), "node", pa.array(new))
        files.append(commit_table(job.artifact, nodes_file(index, job.store.schema, node_type=number), written))
        emits.append(pa.table({"old": old, "new": new}))
    numbered = pa.concat_tables(emits)
    # the old partition of each node, which is told the new id
    owner = job.store.book.owner(to_numpy(numbered["old"]))
    return TaskOutput(emits=(Emit("numbered", numbered, owner),), files=tuple(files))


def answer(index: int, inbox: Inbox, *, job: PartitionJob) -> TaskOutput:
    """Send each old partition the new ids that it asked for."""
    new, start = _numbered(index, inbox, job), job.store.book.start(index)
    pieces = [to_numpy(piece["node"]) for piece in inbox.pieces("asked")]
    asked = np.concatenate(pieces)
    # the new id of each node asked for, piece by piece
    known = pa.table({"old": asked, "new": new[asked - start]})
    return TaskOutput(emits=(Emit("known", known, np.repeat(np.arange(len(pieces)), [len(each) for each in pieces])),))


def _numbered(index: int, inbox: Inbox, job: PartitionJob) -> IntArray:
    """Return the new dense ids of an old partition's nodes [N]."""
    book, rows = job.store.book, inbox.read("numbered")
    new = np.zeros(book.size(index), np.int64)
    new[to_numpy(rows["old"]) - book.start(index)] = to_numpy(rows["new"])
    return new


def move_edges(index: int, inbox: Inbox, *, job: PartitionJob, book: PartitionBook) -> TaskOutput:
    """Send an old partition's in-edges to the new owners of their targets, with the new ids of both ends."""
    new, start = _numbered(index, inbox, job), job.store.book.start(index)
    known = inbox.read("known")
    # sorted by owner and ascending within each, so ascending as a whole
    old_sources, new_sources = to_numpy(known["old"]), to_numpy(known["new"])
    emits = []
    for number, listed in enumerate(lists_of(job)):
        rows = read_artifact_table(job.store.artifact, listed.read(index))
        dst = new[to_numpy(rows["dst"]) - start]
        src = new_sources[np.searchsorted(old_sources, to_numpy(rows["src"]))]
        for column, ends in {"dst": dst, "src": src}.items():
            rows = rows.set_column(rows.column_names.index(column), column, pa.array(ends))
        # the partition that each edge goes to [E]
        home = edge_partitions(
            listed.placement, target=book.owner(dst), source=book.owner(src), partitions=book.num_partitions
        )
        emits.append(Emit(f"edges_{number}", rows, home))
    return TaskOutput(emits=tuple(emits))


@dataclass(frozen=True)
class EdgeList:
    """A list of edges of each partition: the names of its old and new file, and its placement.

    are_edges: it holds a relation's edges, not pairs to predict.
    """

    read: Callable[[int], str]
    written: Callable[[int], str]
    placement: Placement = ""
    are_edges: bool = True


def lists_of(job: PartitionJob) -> list[EdgeList]:
    """Return the lists of a store: its relations, the pairs to predict, and the placed relations."""
    schema = job.store.schema
    names = [partial(edges_file, schema=schema, relation=number) for number in range(schema.num_relations)]
    found = [EdgeList(name, name) for name in names]
    if job.store.facts.targets == "edges":
        found.append(EdgeList(pairs_file, pairs_file, are_edges=False))
    if job.placement:
        placed = [partial(placed_file, schema=schema, relation=number) for number in range(schema.num_relations)]
        found += [EdgeList(*each, job.placement) for each in zip(names, placed, strict=True)]
    return found


def sort_edges(index: int, inbox: Inbox, *, job: PartitionJob, book: PartitionBook) -> TaskOutput:
    """Write the edges of a new partition, sorted by (destination, source), parallel edges in their old order."""
    files, sources, computed = [], list[IntArray](), list[IntArray]()
    for number, listed in enumerate(lists_of(job)):
        rows = inbox.read(f"edges_{number}").combine_chunks()
        dst, src = to_numpy(rows["dst"]), to_numpy(rows["src"])
        # a pair as one integer; all edges of a pair came from one partition, in their order
        order = stable_order(dst * book.num_nodes + src)
        name = listed.written(index)
        placed = take_rows(rows, order)
        files.append(commit_table(job.artifact, name, placed, row_group_size=_EDGE_ROWS, ascending=ENDS))
        if listed.placement:
            computed += [dst, src]
        elif listed.are_edges:
            sources.append(src)
    after = crossing(sources, book, partition=index)
    if job.placement:
        after["mirrors"] = crossing(computed, book, partition=index)["mirrors"]
        after["computed"] = sum(map(len, computed)) // 2
    return TaskOutput(files=tuple(files), counts={"after": after})
