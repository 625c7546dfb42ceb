"""A power-law graph of any size for benchmarks: hubs, features of a given width, a tenth of the nodes as targets.

Node of popularity rank k receives edges in proportion to k^(-2/3), so in-degrees follow a power law with exponent 2.5
(Newman, "Power laws, Pareto distributions and Zipf's law", 2005) and the largest is about E / N^(1/3). The rank comes
from a closed form, N u^3 for uniform u, and ids are a random permutation of ranks: hubs lie anywhere.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.datasets.pieces import Pieces, SyntheticGraph, collect, require, write_pieces
from gnnflow.storage.columns import from_matrix

if TYPE_CHECKING:
    from gnnflow.graph.arrays import IntArray

_TARGET_SHARE = 0.1
_VALID_SHARE = 0.1  # of the targets: training needs a few
_NODE_STREAM, _EDGE_STREAM = 3, 4


def power_law(
    *,
    num_nodes: int = 1_000_000,
    num_edges: int = 10_000_000,
    feature_width: int = 64,
    num_classes: int = 16,
    seed: int = 0,
) -> SyntheticGraph:
    """Return a power-law graph: the same arguments give the same rows.

    Nodes: id (int64, 0..N-1), x (fixed-size list of feature_width float32), label (int64, the largest of the first
    num_classes features; null but for a tenth of the nodes), split (train for nine tenths of those, valid for the rest,
    else null). Edges: src, dst.
    Raises ConfigError where a size is too small or num_classes exceeds feature_width.
    """
    return collect(_power_law(num_nodes, num_edges, feature_width, num_classes, seed))


def write_power_law(
    out: str,
    *,
    num_nodes: int = 1_000_000,
    num_edges: int = 10_000_000,
    feature_width: int = 64,
    num_classes: int = 16,
    seed: int = 0,
) -> list[str]:
    """Write the graph `power_law` returns, a piece at a time; returns [node table URI, edge folder URI]."""
    return write_pieces(out, _power_law(num_nodes, num_edges, feature_width, num_classes, seed))


def _power_law(num_nodes: int, num_edges: int, feature_width: int, num_classes: int, seed: int) -> Pieces:
    require("num_nodes", num_nodes, 20)
    require("num_edges", num_edges, 1)
    require("num_classes", num_classes, 2)
    require("feature_width", feature_width, num_classes)
    rng = np.random.default_rng([seed, _NODE_STREAM])
    nodes = _nodes(num_nodes, feature_width, num_classes, rng)
    ranked = rng.permutation(num_nodes)
    return Pieces(nodes, num_edges, partial(_edges, ranked=ranked, seed=seed))


def _nodes(num_nodes: int, feature_width: int, num_classes: int, rng: np.random.Generator) -> pa.Table:
    x = rng.standard_normal((num_nodes, feature_width), np.float32)
    targets = rng.choice(num_nodes, int(num_nodes * _TARGET_SHARE), replace=False)
    others = np.ones(num_nodes, bool)
    others[targets] = False
    label = x[:, :num_classes].argmax(1)
    part = np.zeros(num_nodes, np.int64)
    part[targets[: max(1, int(len(targets) * _VALID_SHARE))]] = 1
    split = pa.array(["train", "valid"]).take(pa.array(part, mask=others))
    return pa.table(
        {"id": np.arange(num_nodes), "x": from_matrix(x), "label": pa.array(label, mask=others), "split": split}
    )


def _edges(number: int, edges: range, *, ranked: IntArray, seed: int) -> pa.Table:
    rng = np.random.default_rng([seed, _EDGE_STREAM, number])
    num_nodes, rows = len(ranked), len(edges)
    # popularity rank of each edge's target [E], then both ends [E]
    rank = (num_nodes * rng.random(rows) ** 3).astype(np.int64)
    src = rng.integers(0, num_nodes, rows)
    dst = ranked[np.minimum(rank, num_nodes - 1)]
    return pa.table({"src": np.where(src == dst, (src + 1) % num_nodes, src), "dst": dst})
