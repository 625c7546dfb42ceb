"""Conservation: the edges that later stages aggregate are exactly the ones that the stored degrees count.

Shapes: N nodes of a partition, R relations, E edges of a piece.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graph.findings import Finding
from gnnflow.storage.columns import combine, to_numpy, to_ragged
from gnnflow.storage.graph_store import edges_file
from gnnflow.storage.tables import iter_artifact_table
from gnnflow.storage.verified import remedy

if TYPE_CHECKING:
    from gnnflow.graph.arrays import IntArray
    from gnnflow.stages.audit_findings import AuditedRun
    from gnnflow.storage.graph_store import GraphStore

NAME = "conservation"


def check_conservation(run: AuditedRun) -> Finding:
    """Compare the in-edges of every node with its in-degree, and all edges with the sums of out-degrees."""
    graphs = {"the store": run.base} | ({} if run.store is run.base else {"the selection": run.store})
    counts, faults = Counter[str](), list[str]()
    for where, graph in graphs.items():
        faults += _faults_of(graph, where, counts)
    if run.sample:
        faults += _faults_of_sample(run, counts)
    told = ", ".join(f"{number:,} edges of {where}" for where, number in counts.items())
    looked = f"{told}, in {run.base.num_partitions:,} partitions"
    if not faults:
        return Finding(NAME, "holds", looked)
    artifact = run.base.artifact if any("the store" in fault for fault in faults) else run.artifacts["select"]
    return Finding(NAME, "broken", looked, "; ".join(faults), remedy(artifact))


def _faults_of(graph: GraphStore, where: str, counts: Counter[str]) -> Iterator[str]:
    """Yield what is wrong with each relation of a graph, and count its edges."""
    relations = range(graph.schema.num_relations)
    # by relation: edges, nodes of another in-degree, edges that lie in another partition than their target's
    edges, wrong, astray = (np.zeros(len(relations), np.int64) for _ in range(3))
    # by relation: the ends that edges start from, and the sums of out-degrees
    ends, out = np.zeros(len(relations), np.int64), np.zeros(len(relations), np.int64)
    for partition in range(graph.num_partitions):
        degrees, size = graph.degrees(partition), graph.book.size(partition)
        in_degree, out_degree = (each.reshape(size, -1) for each in (degrees.in_degree, degrees.out_degree))
        out += out_degree.sum(axis=0, dtype=np.int64)
        for relation in relations:
            found = np.zeros(size, np.int64)
            for piece in graph.iter_edges(partition, ["dst", "src"], relation=relation):
                own = _local(piece, graph, partition)
                found += np.bincount(own, minlength=size)
                astray[relation] += piece.num_rows - len(own)
                ends[relation] += _num_sources(piece)
            edges[relation] += found.sum() + astray[relation]
            wrong[relation] += np.count_nonzero(found != in_degree[:, relation])
    counts[where] += int(edges.sum())
    placed = _count_placed(graph) if graph.facts.placement else edges
    for relation in relations:
        name = str(graph.schema.relations[relation]) if graph.schema.is_typed else "edges"
        if wrong[relation]:
            yield f"in {where}, {wrong[relation]:,} nodes have another number of in-edges than their in_degree ({name})"
        if astray[relation]:
            yield f"in {where}, {astray[relation]:,} edges lie in another partition than their target ({name})"
        if placed[relation] != edges[relation]:
            yield f"in {where}, {placed[relation]:,} of {edges[relation]:,} edges are placed to be computed ({name})"
        if ends[relation] != out[relation]:
            yield f"in {where}, {ends[relation]:,} sources of edges are {out[relation]:,} by out_degree ({name})"


def _count_placed(graph: GraphStore) -> IntArray:
    """Return the number of edges of each relation that partitions compute, wherever their ends lie [R]."""
    counts = np.zeros(graph.schema.num_relations, np.int64)
    for partition in range(graph.num_partitions):
        for relation in range(graph.schema.num_relations):
            counts[relation] += graph.placed_edges(partition, ["dst"], relation=relation).num_rows
    return counts


def _faults_of_sample(run: AuditedRun, counts: Counter[str]) -> Iterator[str]:
    """Yield what is wrong with a sample of in-edges: no node keeps more than it has, and none of the edges is lost."""
    graph, kept, over = run.base, 0, 0
    for partition in range(graph.num_partitions):
        degrees, size = graph.degrees(partition), graph.book.size(partition)
        in_degree = degrees.in_degree.reshape(size, -1)
        for relation in range(graph.schema.num_relations):
            name, found = edges_file(partition, graph.schema, relation=relation), np.zeros(size, np.int64)
            for piece in iter_artifact_table(run.sample, name, ["dst"]):
                found += np.bincount(_local(piece, graph, partition), minlength=size)
            kept += int(found.sum())
            over += int(np.count_nonzero(found > in_degree[:, relation]))
    counts["the sample"] += kept
    if kept != run.selected.num_edges:
        yield f"the sample has {kept:,} edges where their targets are, and {run.selected.num_edges:,} were kept"
    if over:
        yield f"in the sample, {over:,} nodes have more in-edges than their in_degree"


def _local(piece: pa.Table, graph: GraphStore, partition: int) -> IntArray:
    """Return the local rows of the targets of edges that lead to a partition."""
    rows: IntArray = to_numpy(piece["dst"]) - graph.book.start(partition)
    return rows[(rows >= 0) & (rows < graph.book.size(partition))]


def _num_sources(piece: pa.Table) -> int:
    """Return the number of nodes that edges come from: one each, or their leaves."""
    source = combine(piece["src"])
    return len(source) if pa.types.is_integer(source.type) else len(to_ragged(source).values)
