"""Who owns the nodes of a graph in memory, by each kind of partitioning: what its plan computes of a store."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from gnnflow.graph.arrays import offsets_of, ragged_ranges
from gnnflow.graph.batch import Block
from gnnflow.graph.hashing import combine, hash_integers, seed_word
from gnnflow.partition import louvain, metis
from gnnflow.partition.balance import InducedGraph, balance
from gnnflow.partition.planning import shares_of
from gnnflow.partition.streaming import Stream, chunk_bounds


def owners_of(block: Block, kind: str, *, parts: int, seed: int) -> np.ndarray:
    """Return the part of each node of a whole graph [N]."""
    edges = block.edges
    into = np.repeat(np.tile(np.arange(edges.num_targets), edges.num_relations), edges.lengths)
    every = np.arange(edges.num_edges)
    return KINDS[kind](edges.per_leaf(every, into), edges.sources_of(every), edges.num_targets, parts, seed)


def _by_chance(dst, src, size, parts, seed):
    """Some parts may get no node."""
    rng = np.random.default_rng(seed)
    bounds = np.concatenate([[0], np.sort(rng.integers(0, size + 1, parts - 1)), [size]])
    owner = np.empty(size, np.int64)
    owner[rng.permutation(size)] = np.repeat(np.arange(parts), np.diff(bounds))
    return owner


def _hashed(dst, src, size, parts, seed):
    return (combine(hash_integers(np.arange(size)), seed_word(seed)) % np.uint64(parts)).astype(np.int64)


def _ranges(dst, src, size, parts, seed):
    return np.arange(size) * parts // max(size, 1)


def _ldg(dst, src, size, parts, seed):
    stream = Stream(size, capacity=np.full((parts, 1), 1.05 / parts))
    order = np.argsort(dst, kind="stable")
    offsets, loads = offsets_of(np.bincount(dst, minlength=size)), np.full((size, 1), 1 / max(size, 1))
    for first, last in pairwise(chunk_bounds(size).tolist()):
        nodes = np.arange(first, last)
        lengths = np.diff(offsets)[nodes]
        stream.deal(nodes, loads[nodes], lengths, src[order][ragged_ranges(offsets[nodes], lengths)])
    return stream.owner


def _metis(dst, src, size, parts, seed):
    graph = InducedGraph.of(dst, src, num_nodes=size)
    return metis.cut(graph, np.ones((size, 1), np.int64), parts=parts, imbalance=1.05, seed=seed)


def _louvain(dst, src, size, parts, seed):
    graph, keys = InducedGraph.of(dst, src, num_nodes=size), hash_integers(np.arange(size))
    loads = shares_of(np.ones((size, 1)))
    found = louvain._communities(graph, keys, resolution=1.0)
    pieces = louvain._cut(graph, keys, found, loads, largest=0.25 / parts, resolution=1.0)
    return louvain._dealt(graph, pieces, loads, parts=parts, imbalance=1.05)


def _balanced(dst, src, size, parts, seed):
    graph, keys = InducedGraph.of(dst, src, num_nodes=size), hash_integers(np.arange(size))
    cost = 1.0 + np.bincount(dst, minlength=size)
    owner = _hashed(dst, src, size, parts, seed)
    return balance(graph, cost, owner, num_partitions=parts, keys=keys, threshold=1.05, seed=seed).owner


KINDS: dict[str, Callable[..., np.ndarray]] = {
    "chance": _by_chance,
    "hash": _hashed,
    "range": _ranges,
    "ldg": _ldg,
    "balanced": _balanced,
}
if importlib.util.find_spec("pymetis") is not None:
    KINDS["metis"] = _metis
if importlib.util.find_spec("networkit") is not None:
    KINDS["louvain"] = _louvain
