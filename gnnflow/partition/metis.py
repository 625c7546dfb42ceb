"""Partitions, and clusters inside them, by METIS: few edges between them, and several loads even at once.

Karypis and Kumar, "Multilevel algorithms for multi-constraint graph partitioning", SC 1998. What is even: nodes, their
in-edges and training targets, each of those that not all nodes have alike. First the graph is cut into partitions, then
each partition's own subgraph into its clusters.

PyMetis has METIS whole, but its Python function takes one weight a node. So the C function beneath it is called, which
takes several (METIS manual, section 5.7). One process holds the graph: 16 bytes for each joined pair of nodes, about
four times that while they are sorted, and what METIS needs itself, some four times the graph again.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from operator import methodcaller
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.libraries import load_library
from gnnflow.partition.balance import InducedGraph
from gnnflow.partition.planning import Plan, loads_of, read_ends

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.storage.graph_store import GraphStore

_NUM_OPTIONS = 40
_OK = 1
_LARGEST_SEED = 2**31


@dataclass(frozen=True)
class Metis:
    """Partitions by METIS. imbalance: the largest load of a partition over the mean, for each load."""

    clusters: int
    imbalance: float

    def plan(self, store: GraphStore, *, seed: int) -> Plan:
        """Return the owner and the cluster of each node."""
        num_nodes, parts = store.facts.num_nodes, store.num_partitions
        graph = joined_nodes(store)
        loads = np.concatenate([loads_of(store, number) for number in range(parts)])
        # a load that every node has alike, or none has, is even with the nodes
        uneven = [0, *(number for number in (1, 2) if np.any(loads[:, number] != loads[:1, number]))]
        loads = loads[:, uneven]
        owner = cut(graph, loads, parts=parts, imbalance=self.imbalance, seed=seed)
        if not self.clusters:
            return Plan(owner)
        cluster = np.zeros(num_nodes, np.int64)
        for partition in range(parts):
            nodes = np.flatnonzero(owner == partition)
            inner = subgraph(graph, nodes)
            cluster[nodes] = cut(inner, loads[nodes], parts=self.clusters, imbalance=self.imbalance, seed=seed)
        return Plan(owner, cluster)


def joined_nodes(store: GraphStore) -> InducedGraph:
    """Return the nodes of a store joined by its edges, in both directions and each pair once."""
    dst, src = (np.concatenate(each) for each in zip(*read_ends(store), strict=True))
    return InducedGraph.of(dst, src, num_nodes=store.facts.num_nodes)


def subgraph(graph: InducedGraph, nodes: IntArray) -> InducedGraph:
    """Return the graph of some nodes, ascending, and the pairs that join two of them."""
    # the number of each node among them [N], and the row of each of their pairs
    place = np.full(graph.num_nodes, -1, np.int64)
    place[nodes] = np.arange(len(nodes))
    neighbors = place[graph.neighbors_of(nodes)]
    row = np.repeat(np.arange(len(nodes)), graph.offsets[nodes + 1] - graph.offsets[nodes])
    inner = neighbors >= 0
    return InducedGraph(offsets_of(np.bincount(row[inner], minlength=len(nodes))), neighbors[inner])


def cut(graph: InducedGraph, loads: IntArray, *, parts: int, imbalance: float, seed: int) -> IntArray:
    """Return the part of each node [N]. loads: [N, K]. Raises ConfigError where METIS is not there."""
    pymetis = load_library("pymetis", extra="metis")
    if parts == 1 or graph.num_nodes <= parts or not len(graph.neighbors):
        # nothing to cut: nodes in turn
        return np.arange(graph.num_nodes) % parts
    library = ctypes.CDLL(load_library("pymetis._internal", extra="metis").__file__)
    integer = _integer_of(library)
    options = pymetis.Options(seed=seed % _LARGEST_SEED, ufactor=max(round((imbalance - 1) * 1000), 1), numbering=0)
    # METIS's settings [40]; then offsets, neighbours and loads in its integer type
    settings = np.array([methodcaller("_get", index)(options) for index in range(_NUM_OPTIONS)], integer)
    arrays = [np.ascontiguousarray(each, integer) for each in (graph.offsets, graph.neighbors, loads)]
    part, edge_cut = np.zeros(graph.num_nodes, integer), np.zeros(1, integer)
    sizes = [np.array([each], integer) for each in (graph.num_nodes, loads.shape[1], parts)]
    offsets, neighbors, weights = map(_pointer, arrays)
    nodes, constraints, wanted = map(_pointer, sizes)
    status = library.METIS_PartGraphKway(
        nodes, constraints, offsets, neighbors, weights, None, None, wanted, None, None,
        _pointer(settings), _pointer(edge_cut), _pointer(part),
    )  # fmt: skip
    if status != _OK:
        raise ConfigError(
            f"METIS stopped with status {status} on {graph.num_nodes:,} nodes and {len(graph.neighbors) // 2:,} pairs",
            where="partition.kind",
            fix="Its own message is in the log of the task. Set it to louvain, or to ldg, which needs less memory.",
        )
    return part.astype(np.int64)


def _integer_of(library: ctypes.CDLL) -> type[np.signedinteger]:
    """Return METIS's integer type, 4 or 8 bytes by its build: the defaults that it fills in are all -1."""
    filled = np.zeros(_NUM_OPTIONS * 2, np.int32)
    try:
        library.METIS_SetDefaultOptions(_pointer(filled))
    except AttributeError as error:
        raise ConfigError(
            "this build of pymetis hides the functions of METIS",
            where="partition.kind",
            fix="Install the wheel from PyPI: pip install --only-binary pymetis 'gnnflow[metis]'.",
        ) from error
    return np.int64 if filled[-1] else np.int32


def _pointer(array: Array) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)
