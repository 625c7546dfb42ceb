"""Draws new walks in memory: a different view of the same selection for each epoch.

A view's draws are hashes of (seed, view, root, walk, step), so an epoch's walks do not depend on earlier ones. View 0
is the selection of stage `select`. Walks follow the in-edges of the store.

Shapes: N nodes, E instances of one relation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Degrees
from gnnflow.graph.edges import InEdges, join_relations
from gnnflow.native.walks import Visited, occurrences
from gnnflow.neighbors.keyed import node_keys
from gnnflow.neighbors.selection import Selection, target_types
from gnnflow.neighbors.walk_steps import Steps, WalkJob, job_of, keyed_steps, number_of, walks_from
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import read_manifest

if TYPE_CHECKING:
    from gnnflow.config.neighbors_section import WalkNeighbors
    from gnnflow.graph.arrays import Array, KeyArray
    from gnnflow.neighbors.selected import Neighbors
    from gnnflow.neighbors.whole import GraphInMemory


@dataclass(frozen=True)
class WalkViews:
    """The in-edges that a selection's walks follow, in memory. keys [N]: decide the draws of each root.

    threads: number of threads that walk.
    """

    job: WalkJob
    steps: Steps
    keys: KeyArray
    threads: int = 1

    @staticmethod
    def of(neighbors: Neighbors, section: WalkNeighbors, *, seed: int, threads: int = 1) -> WalkViews:
        """Read the graph of a selection of neighbours."""
        store = GraphStore.of(neighbors.store.artifact, read_manifest(neighbors.store.artifact))
        job, parts = job_of(Selection("", store, (), seed), section), range(store.num_partitions)
        held = [keyed_steps(job, part) for part in parts]
        offsets = offsets_of(np.concatenate([np.diff(each.offsets) for each in held]))
        sources = np.concatenate([each.sources for each in held])
        begins = np.concatenate([each.begins for each in held if each.begins is not None]) if job.by_weight else None
        keys = np.concatenate([node_keys(store, part) for part in parts])
        return WalkViews(job, Steps(offsets, sources, begins), keys, threads)

    @cached_property
    def _types(self) -> Array | None:
        book = self.job.store.book
        return None if book.num_types == 1 else book.type_of(np.arange(book.num_nodes)).astype(np.uint8)

    def view(self, graph: GraphInMemory, view: int) -> GraphInMemory:
        """Return a graph in memory with the walks of a view instead of the selected ones."""
        schema = self.job.schema
        found = {number_of(self.job, kind): self._visited(kind, view) for kind in target_types(self.job.store.schema)}
        each = [found[number] for number in range(schema.num_relations)]
        edges = join_relations([InEdges(offsets_of(it.kept), it.nodes, weight=it.weight) for it in each])
        types = graph.neighborhood.degrees.types
        # in-degree, out-degree and in-weight of all nodes in each relation [N]
        held = [(it.kept.astype(np.int64), occurrences(it.nodes, len(it.kept)), it.total) for it in each]
        # the same in all relations: [N], or [N, R] of a typed graph
        columns = zip(*held, strict=True)
        in_degree, out_degree, in_weight = (of[0] if types is None else np.stack(of, 1) for of in columns)
        degrees = Degrees(in_degree, out_degree, in_weight, types)
        return replace(graph, neighborhood=replace(graph.neighborhood, edges=edges, degrees=degrees))

    def _visited(self, node_type: int, view: int) -> Visited:
        """Return the most visited nodes of all nodes of a type; nodes of other types have none."""
        job, book = self.job, self.job.store.book
        parts = []
        for partition in range(book.num_partitions):
            start, size, rows = book.start(partition), book.size(partition), book.rows(partition, node_type)
            begin = start + rows.start
            keys, word, types = self.keys[begin : start + rows.stop], job.word(view), self._types
            found = walks_from(begin, keys, self.steps, word=word, types=types, job=job, threads=self.threads)
            around = rows.start, size - rows.stop
            parts.append(found._replace(kept=np.pad(found.kept, around), total=np.pad(found.total, around)))
        joined = [column[0] if len(parts) == 1 else np.concatenate(column) for column in zip(*parts, strict=True)]
        return Visited(*joined)


def memory_of_walks(neighbors: Neighbors, section: WalkNeighbors) -> int:
    """Return the bytes for reading the in-edges of walks, about; see `whole.memory_needed`."""
    store = GraphStore.of(neighbors.store.artifact, read_manifest(neighbors.store.artifact))
    per_edge = 8 if section.by == "weight" else 4
    return 2 * (per_edge * store.facts.num_edges + 16 * store.facts.num_nodes)
