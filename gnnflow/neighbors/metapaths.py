"""Instances of metapaths (MAGNN: Fu et al., WWW 2020, section 4.2): the paths to a node along lists of node types.

[movie, director, movie] gives a movie the movies of its directors: an instance is (movie; director, movie), with leaves
from the root outward. It has only nodes: edges of any relations that join the same two nodes are one step. A path may
return to its root, as in MAGNN's preparation.

A step takes two rounds. The owner of each path's last node adds a node to it, then the owner of its root keeps at most
`max_instances` paths of each root. To bound hubs, a path continues along at most as many in-edges of its last node.
Both choices are hashes of the keys along the path. Each task drops the paths of a root beyond this number before it
sends them, which changes nothing: the first of all are among the first of each part.

Shapes: n roots, P paths, k nodes of a path without its root.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.config.neighbors_section import relation_of
from gnnflow.graph.arrays import AlignedArrays, IntArray, KeyArray
from gnnflow.graph.hashing import combine, seed_word
from gnnflow.graph.schema import Relation
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.neighbors.graph import Instances
from gnnflow.neighbors.keyed import keyed_edges, node_keys
from gnnflow.neighbors.selection import Delivered, Selection, SelectionResult, deliver, finish
from gnnflow.sampling import top_k_ungrouped
from gnnflow.storage.columns import from_matrix, to_matrix, to_numpy

if TYPE_CHECKING:
    from gnnflow.config.neighbors_section import MetapathNeighbors
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner

_PATHS_AT_ONCE = 1 << 21  # longer paths that are made together


@dataclass(frozen=True)
class PathJob(Selection):
    """The job of following one metapath, known to every task. path: types by number, the root's first."""

    path: tuple[int, ...]
    max_instances: int

    @property
    def name(self) -> str:
        """The metapath as text."""
        return "-".join(self.store.schema.types[each] for each in self.path)

    @property
    def relation(self) -> Relation:
        """The relation of the path's instances."""
        return relation_of(tuple(self.store.schema.types[each] for each in self.path))

    @property
    def num_steps(self) -> int:
        """Number of steps of a whole path."""
        return len(self.path) - 1

    def relations_of_step(self, step: int) -> list[int]:
        """Return the relations that step number `step` (from 0) may follow, from target to source."""
        schema = self.store.schema
        ends = enumerate(zip(schema.target_types, schema.source_types, strict=True))
        return [number for number, pair in ends if pair == self.path[step : step + 2]]


@dataclass(frozen=True)
class Paths(AlignedArrays):
    """Unfinished paths: roots [P], the nodes after them [P, k] as dense ids, and the hashes that rank them [P]."""

    roots: IntArray
    nodes: IntArray
    words: KeyArray

    def table(self) -> pa.Table:
        """Return the paths as rows for an exchange."""
        return pa.table({"root": self.roots, "nodes": from_matrix(self.nodes), "word": self.words})

    @staticmethod
    def of(table: pa.Table) -> Paths:
        """Return the paths that rows hold."""
        return Paths(to_numpy(table["root"]), to_matrix(table["nodes"], np.int64), to_numpy(table["word"]))


def run_rounds(job: Selection, section: MetapathNeighbors, runner: RoundRunner) -> SelectionResult:
    """Follow the metapaths, one after the other."""
    job = job.of(section.relations(job.store.schema))
    types, delivered = job.store.schema.types, {}
    for names in section.paths:
        path = tuple(types.index(each) for each in names)
        own = PathJob(job.artifact, job.store, job.relations, job.seed, path, section.max_instances)
        delivered[job.number(own.relation)] = _follow(own, runner)
    return finish(job, runner, delivered)


def _follow(job: PathJob, runner: RoundRunner) -> Delivered:
    """Follow one metapath; return its last round."""
    parts, name, records = job.store.num_partitions, "", []
    for step in range(job.num_steps):
        reads = {"kept": name} if step else {}
        name = f"extend-{job.name}-{step}"
        extend = partial(extend_paths, job=job, step=step)
        runner.run(Round(name, parts, parts, extend, reads, frozenset(reads)))
        reads, name = {"found": name}, f"keep-{job.name}-{step}"
        keep = partial(keep_paths, job=job, last=step == job.num_steps - 1)
        records = runner.run(Round(name, parts, parts, keep, reads, frozenset(reads)))
    return Delivered(name, records)


def extend_paths(index: int, inbox: Inbox, *, job: PathJob, step: int) -> TaskOutput:
    """Extend each path that ends in this partition by its end's in-neighbours, and send it to its root."""
    book = job.store.book
    edges = keyed_edges(job.store, index, relations=job.relations_of_step(step), distinct=True)
    paths = Paths.of(inbox.read("kept").combine_chunks()) if step else _roots(index, job)
    pieces = []
    for some in paths.pieces(max(_PATHS_AT_ONCE // job.max_instances, 1)):
        last = some.nodes[:, -1] if step else some.roots
        # the in-edges that paths follow, path by path [P'], and their number for each path
        positions, counts = edges.pick(last - book.start(index), some.words, limit=job.max_instances)
        # the path that each longer one extends [P']
        before = np.repeat(np.arange(len(counts)), counts)
        nodes = np.concatenate([some.nodes[before], edges.sources[positions, None]], axis=1)
        longer = Paths(some.roots[before], nodes, combine(some.words[before], edges.keys[positions]))
        pieces.append(first_of_roots(longer, limit=job.max_instances))
    found = pieces[0] if len(pieces) == 1 else first_of_roots(Paths.joined(pieces), limit=job.max_instances)
    return TaskOutput(
        emits=(Emit("found", found.table(), book.owner(found.roots)),), counts={"paths": len(found.roots)}
    )


def keep_paths(index: int, inbox: Inbox, *, job: PathJob, last: bool) -> TaskOutput:
    """Keep the first paths of each root in a partition; send them to the owners of their ends, or write them."""
    kept = first_of_roots(Paths.of(inbox.read("found").combine_chunks()), limit=job.max_instances)
    if last:
        # order does not matter now, and adjacent paths that begin alike compress better
        kept = kept.take(np.lexsort((*kept.nodes.T[::-1], kept.roots)))
        return deliver(index, job, {job.number(job.relation): Instances(kept.roots, kept.nodes)})
    owner = job.store.book.owner(kept.nodes[:, -1])
    return TaskOutput(emits=(Emit("kept", kept.table(), owner),), counts={"paths": len(kept.roots)})


def first_of_roots(paths: Paths, *, limit: int) -> Paths:
    """Return each root's first paths by their words, in this order, with roots ascending."""
    # the distinct roots [n], and the number of each path's root among them [P]
    roots, row = np.unique(paths.roots, return_inverse=True)
    return paths.take(top_k_ungrouped(row, paths.words, num_targets=len(roots), limit=limit).edges)


def _roots(index: int, job: PathJob) -> Paths:
    """Return the paths of zero steps from a partition's nodes."""
    rows = job.store.book.rows(index, job.path[0])
    words = combine(node_keys(job.store, index)[rows], seed_word("metapath", job.seed, job.name))
    roots = np.arange(rows.start, rows.stop) + job.store.book.start(index)
    return Paths(roots, np.zeros((len(roots), 0), np.int64), words)
