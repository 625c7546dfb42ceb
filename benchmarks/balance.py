"""Partitions balanced by learned costs, compared with hash and METIS: time to aggregate skewed instances of metapaths.

    python benchmarks/balance.py [--partitions 8] [--skew 0.9] [--cap 0]

The graph: authors and papers joined by links whose ends are drawn by popularity, rank^-skew and rank^-paper_skew, and
citations between papers. Roots are authors; instances are author-paper-author (two leaves) and
author-paper-paper-author (three), at most `cap` of each per root, chosen by hash (0: all). Aggregation: the mean of an
instance's leaves, attention over a root's instances of each metapath, both by the kernels that layers use.

A partition's task aggregates its own roots in one thread; every task is timed alone, the smallest of several runs in
turns, and the aggregation time of a partitioning is the time of its slowest task. Costs are learned from 64 tasks of
other roots than those partitions have: hash shards, timed beforehand. METIS (PyMetis) partitions the graph by its
edges.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from harness import Benchmark, Chosen, Option, run, tell

from gnnflow.graph.arrays import IntArray, distinct, offsets_of, ragged_ranges
from gnnflow.graph.hashing import combine, hash_integers, seed_word
from gnnflow.kernels.attention_inputs import Halves
from gnnflow.kernels.csr import Csr
from gnnflow.kernels.softmax import softmax_sums
from gnnflow.kernels.table import weighted_sum
from gnnflow.partition.balance import InducedGraph, balance, balance_factor
from gnnflow.partition.costs import CostModel, learn, terms_of

WIDTH, HEADS = 8, 4
SHARDS = 64


@dataclass(frozen=True)
class Instances:
    """Instances of one metapath: root v has offsets[v] .. offsets[v + 1]; leaves [E, m]."""

    offsets: IntArray
    leaves: IntArray


@dataclass(frozen=True)
class Graph:
    """Nodes of all types in one range of ids, authors first; edges in both directions; instances by metapath."""

    num_authors: int
    num_nodes: int
    edges: IntArray
    instances: dict[str, Instances]


def build(
    *, authors: int, papers: int, links: int, cites: int, skew: float, paper_skew: float, cap: int, seed: int
) -> Graph:
    """Return the graph and its instances."""
    rng = np.random.default_rng(seed)
    # the same author may not be on a paper twice
    pairs = distinct(_popular(rng, authors, links, skew) * papers + _popular(rng, papers, links, paper_skew))
    writes = np.stack([pairs // papers, authors + pairs % papers])
    cited = authors + np.stack([rng.integers(0, papers, cites), _popular(rng, papers, cites, paper_skew)])
    num_nodes = authors + papers
    of_author, of_paper = _csr(writes[0], writes[1], num_nodes), _csr(writes[1], writes[0], num_nodes)
    citing = _csr(cited[0], cited[1], num_nodes)
    paths = {"author-paper-author": (of_author, of_paper), "author-paper-paper-author": (of_author, citing, of_paper)}
    instances = {name: _walk(steps, authors, cap, name) for name, steps in paths.items()}
    edges = np.concatenate([writes, writes[::-1], cited, cited[::-1]], axis=1)
    return Graph(authors, num_nodes, edges, instances)


def _popular(rng: np.random.Generator, number: int, draws: int, skew: float) -> IntArray:
    weight = np.arange(1, number + 1) ** -skew
    ranked = np.searchsorted(np.cumsum(weight) / weight.sum(), rng.random(draws))
    return rng.permutation(number)[np.minimum(ranked, number - 1)]


def _csr(first: IntArray, second: IntArray, num_nodes: int) -> tuple[IntArray, IntArray]:
    order = np.argsort(first, kind="stable")
    return offsets_of(np.bincount(first, minlength=num_nodes)), second[order]


def _walk(steps: tuple[Any, ...], num_roots: int, cap: int, name: str) -> Instances:
    """Return all walks from the roots along the steps, at most cap of a root."""
    roots, leaves = np.arange(num_roots), np.zeros((num_roots, 0), np.int64)
    last = roots
    for offsets, neighbors in steps:
        lengths = offsets[last + 1] - offsets[last]
        reached = neighbors[ragged_ranges(offsets[last], lengths)]
        leaves = np.concatenate([np.repeat(leaves, lengths, axis=0), reached[:, None]], axis=1)
        roots = np.repeat(roots, lengths)
        last = reached
    if cap:
        priority = combine(hash_integers(np.arange(len(roots))), seed_word(name))
        order = np.lexsort((priority, roots))
        starts = offsets_of(np.bincount(roots, minlength=num_roots))
        kept = np.sort(order[np.arange(len(roots)) - starts[roots[order]] < cap])
        roots, leaves = roots[kept], leaves[kept]
    return Instances(offsets_of(np.bincount(roots, minlength=num_roots)), leaves)


class Task:
    """The aggregation of some roots, with the rows of their leaves."""

    def __init__(self, graph: Graph, roots: IntArray, x: torch.Tensor) -> None:
        self.parts = []
        for path in graph.instances.values():
            lengths = path.offsets[roots + 1] - path.offsets[roots]
            leaves = path.leaves[ragged_ranges(path.offsets[roots], lengths)]
            needed, rows = np.unique(leaves, return_inverse=True)
            bounds = np.arange(len(leaves) + 1) * leaves.shape[1]
            leaf_level = Csr(torch.from_numpy(bounds), torch.from_numpy(rows.ravel()), len(needed))
            root_level = Csr(torch.from_numpy(offsets_of(lengths)), torch.arange(len(leaves)), len(leaves)).edges
            own = x[torch.from_numpy(roots)]
            self.parts.append((leaf_level, root_level, x[torch.from_numpy(needed)], own, leaves.shape[1]))
        generator = torch.Generator().manual_seed(0)
        self.attention = torch.randn(2, HEADS, WIDTH, generator=generator)

    def run(self) -> float:
        """Aggregate and return the seconds that took."""
        begin = time.perf_counter()
        for leaf_level, root_level, leaf_rows, own, size in self.parts:
            encoded = weighted_sum(leaf_level, None, leaf_rows) / size
            halves = Halves((encoded * self.attention[0]).sum(2), (own * self.attention[1]).sum(2), 0.2)
            softmax_sums(root_level, halves, encoded)
        return time.perf_counter() - begin


def counts_of(graph: Graph, roots: IntArray) -> tuple[IntArray, IntArray]:
    """Return instances and leaves of roots per metapath [V, R], in the order of names."""
    paths = [graph.instances[name] for name in sorted(graph.instances)]
    instances = np.stack([path.offsets[roots + 1] - path.offsets[roots] for path in paths], axis=1)
    return instances, instances * np.array([path.leaves.shape[1] for path in paths])


def timed(tasks: list[Task], repeats: int) -> np.ndarray[Any, Any]:
    """Return each task's smallest time over rounds in which every task runs once."""
    return np.array([[task.run() for task in tasks] for _ in range(repeats)]).min(0)  # type: ignore[no-any-return]


def learned_costs(graph: Graph, x: torch.Tensor, repeats: int) -> tuple[CostModel, float]:
    """Return the costs learned from tasks of hash shards, and their mean relative error on every other shard."""
    shard = (hash_integers(np.arange(graph.num_authors)) % np.uint64(SHARDS)).astype(np.int64)
    roots = [np.flatnonzero(shard == number) for number in range(SHARDS)]
    seconds = timed([Task(graph, each, x) for each in roots], repeats)
    terms = np.stack([terms_of(*counts_of(graph, each)).sum(0) for each in roots])
    half = learn(terms[::2], seconds[::2], relations=sorted(graph.instances))
    error = float(np.abs(half.of_terms(terms[1::2]) / seconds[1::2] - 1).mean())
    return learn(terms, seconds, relations=sorted(graph.instances)), error


def by_metis(graph: Graph, parts: int, weight: np.ndarray[Any, Any] | None = None) -> IntArray:
    """Return METIS's partition of each node; weight: of each node, None for one."""
    import pymetis

    offsets, neighbors = _csr(graph.edges[0], graph.edges[1], graph.num_nodes)
    scaled = None if weight is None else np.maximum(np.rint(weight / weight.sum() * 1e7), 1).astype(np.int64).tolist()
    adjacency = pymetis.CSRAdjacency(offsets, neighbors)
    _, membership = pymetis.part_graph(parts, adjacency, vweights=scaled, options=pymetis.Options(seed=0))
    return np.array(membership, np.int64)


def partitionings(
    graph: Graph, costs: CostModel, parts: int, threshold: float
) -> tuple[dict[str, tuple[IntArray, float, int]], int]:
    """Return each partitioning with its predicted factor and cut, by name, and the number of all edges."""
    per_node = np.zeros(graph.num_nodes)
    per_node[: graph.num_authors] = costs.seconds(*counts_of(graph, np.arange(graph.num_authors)))
    keys = hash_integers(np.arange(graph.num_nodes))
    induced = induced_graph(graph)
    found = {"hash": (keys % np.uint64(parts)).astype(np.int64), "METIS": by_metis(graph, parts)}
    for name in ("hash", "METIS"):
        begin = time.perf_counter()
        moved = balance(induced, per_node, found[name], num_partitions=parts, keys=keys, threshold=threshold)
        took = time.perf_counter() - begin
        tell(f"balanced from {name}: {len(moved.moves)} moves in {took:.2f} s")
        found[f"balanced from {name}"] = moved.owner
    found["METIS, costs as weights"] = by_metis(graph, parts, per_node)
    shown = {
        name: (owner, balance_factor(per_node, owner, num_partitions=parts), induced.cut(owner))
        for name, owner in found.items()
    }
    return shown, len(induced.neighbors) // 2


def induced_graph(graph: Graph) -> InducedGraph:
    """Return the pairs of root and leaf of all metapaths."""
    roots, leaves = [], []
    for path in graph.instances.values():
        roots.append(np.repeat(np.arange(graph.num_authors), np.diff(path.offsets) * path.leaves.shape[1]))
        leaves.append(path.leaves.ravel())
    return InducedGraph.of(np.concatenate(roots), np.concatenate(leaves), num_nodes=graph.num_nodes)


def replayed(tasks: dict[str, list[Task]], repeats: int) -> dict[str, np.ndarray[Any, Any]]:
    """Time every partitioning's tasks one at a time, in turns, and return the least seconds of each task."""
    held = {name: np.full(len(each), np.inf) for name, each in tasks.items()}
    names = list(tasks)
    for each in tasks.values():  # touch memory once before timing
        timed(each, 1)
    for turn in range(repeats):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            held[name] = np.minimum(held[name], timed(tasks[name], 1))
    return held


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the cost of each partitioning."""
    torch.set_num_threads(1)
    names = ("authors", "papers", "links", "cites", "skew", "paper_skew", "cap", "seed")
    graph = build(**{name: getattr(chosen, name) for name in names})
    x = torch.randn(graph.num_nodes, HEADS, WIDTH, generator=torch.Generator().manual_seed(0))
    for name, path in graph.instances.items():
        lengths = np.diff(path.offsets)
        tell(f"{name}: {len(path.leaves):,} instances, most of a root {lengths.max() / max(lengths.sum(), 1):.1%}")
    costs, error = learned_costs(graph, x, chosen.repeats)
    tell(f"learned costs: {error:.1%} off on tasks they were not learned from; {costs.as_document()}")
    found, edges = partitionings(graph, costs, chosen.partitions, chosen.threshold)
    tasks = {
        name: [Task(graph, np.flatnonzero(owner[: graph.num_authors] == each), x) for each in range(chosen.partitions)]
        for name, (owner, _, _) in found.items()
    }
    held = replayed(tasks, chosen.repeats)
    balanced = held["balanced from hash"].max()
    for name, seconds in held.items():
        slowest, (_, predicted, cut) = seconds.max(), found[name]
        shown = (1e3 * float(slowest), 1e3 * float(seconds.mean()), float(slowest / seconds.mean()))
        yield name, *shown, f"{1 - balanced / slowest:.1%}", predicted, cut / edges


BENCH = Benchmark(
    columns=("partitions", "slowest ms", "mean ms", "factor", "balanced takes less by", "predicted factor", "cut"),
    rows=rows,
    options={
        "partitions": 8,
        "authors": 30_000,
        "papers": 30_000,
        "links": 90_000,
        "cites": 60_000,
        "skew": 0.9,
        "paper_skew": 0.5,
        "cap": Option(0, "instances of a metapath per root; 0: all"),
        "threshold": 1.02,
        "repeats": 5,
        "seed": 0,
    },
    small={"authors": 1_000, "papers": 1_000, "links": 3_000, "cites": 2_000, "repeats": 2},
    needs=("pymetis",),
)


if __name__ == "__main__":
    run(BENCH)
