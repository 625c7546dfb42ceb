"""Walks taken anew in memory: another view of the same selection for each epoch.

A view's draws are hashes of (seed, view, root, walk, step), so an epoch's walks are the same whatever was walked
before. View 0 is what stage `select` wrote. The in-edges that walks go along are the store's own, held beside the
selection.

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
from gnnflow.neighbors.walk_job import WalkJob, job_of, number_of
from gnnflow.neighbors.walk_steps import Steps, keyed_steps, walks_from
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import read_manifest

if TYPE_CHECKING:
    from gnnflow.config.neighbors_section import WalkNeighbors
    from gnnflow.graph.arrays import Array, KeyArray
    from gnnflow.neighbors.selected import Neighbors
    from gnnflow.neighbors.whole import GraphInMemory


@dataclass(frozen=True)
class WalkViews:
    """What the walks of a selection go along, in memory. keys [N]: of each root, from which its draws follow.

    threads: how many walk at once.
    """

    job: WalkJob
    steps: Steps
    keys: KeyArray
    threads: int = 1

    @staticmethod
    def of(neighbors: Neighbors, section: WalkNeighbors, *, seed: int, threads: int = 1) -> WalkViews:
        """Read the graph that the neighbours were selected on. section: how."""
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
        """Return a graph in memory with the walks of a view in the place of those that were selected once."""
        schema = self.job.schema
        found = {number_of(self.job, kind): self._visited(kind, view) for kind in target_types(self.job.store.schema)}
        each = [found[number] for number in range(schema.num_relations)]
        edges = join_relations([InEdges(offsets_of(it.kept), it.nodes, weight=it.weight) for it in each])
        columns = zip(*map(_degrees, each), strict=True)
        in_degree, out_degree, in_weight = (np.stack(of, 1) if schema.is_typed else of[0] for of in columns)
        degrees = Degrees(in_degree, out_degree, in_weight, graph.neighborhood.degrees.types)
        return replace(graph, neighborhood=replace(graph.neighborhood, edges=edges, degrees=degrees))

    def _visited(self, node_type: int, view: int) -> Visited:
        """Return whom walks visit from all nodes of a type; nodes of other types have no walks."""
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
    """Return about how many bytes it takes to read what walks go along; see `whole.memory_needed`."""
    store = GraphStore.of(neighbors.store.artifact, read_manifest(neighbors.store.artifact))
    per_edge = 8 if section.by == "weight" else 4
    return 2 * (per_edge * store.facts.num_edges + 16 * store.facts.num_nodes)


def _degrees(visited: Visited) -> tuple[Array, Array, Array]:
    """Return in-degree, out-degree and in-weight of all nodes in one relation [N]."""
    return visited.kept.astype(np.int64), occurrences(visited.nodes, len(visited.kept)), visited.total
