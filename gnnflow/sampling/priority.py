"""Edge keys and priorities: randomness as a function of the edge, never a stream.

A priority is a uint64 and the smallest are kept, whatever the kind of sampling: the rules below map their own
notion of "first" onto integers whose order is that notion's order, so selection sorts one type and knows no
kinds.

- uniform: the hash itself. Any subset of size k of a target's in-edges is equally likely.
- weighted: -log(u) / w with u in (0, 1) from the hash, the exponential form of sampling without replacement
  with probability proportional to weight (Efraimidis and Spirakis, "Weighted random sampling with a
  reservoir", 2006, algorithm A-ES). Non-negative floats order as their bits. Weight 0 comes after every
  positive one, in hash order.
- top_k: largest float32 weight first, ties in hash order.
- none: input order, for a caller that treats "no sampling" as one more kind. The only kind that depends on
  order.

Arrays are worked through in slices that stay in cache: on ten million edges that is an order of magnitude
faster than whole-array temporaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

import numpy as np

from gnnflow.graph.arrays import Array, FloatArray, KeyArray
from gnnflow.graph.edges import TimeArray
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.hashing import combine, seed_word
from gnnflow.graph.sampling import SamplingKind
from gnnflow.native import hash_edges

_SLICE = 1 << 15
_LAST = np.uint64(1 << 63)


def edge_keys(dst_keys: KeyArray, src_keys: KeyArray, occurrence: Array, *, relation: str = "") -> KeyArray:
    """Return the 64-bit key of each edge, from the hash keys of its ends.

    occurrence [E] counts equal (dst, src) pairs from 0, so that parallel edges are told apart. The keys must
    come from the user's ids (`graph/hashing.py`), not from dense ids: those change with the partition count.
    relation: the relation as a config writes it, where there are several; else empty.
    """
    word = seed_word(relation)
    native = hash_edges(dst_keys, src_keys, occurrence, word)
    if native is not None:
        return native
    keys = np.empty(len(dst_keys), np.uint64)
    for rows in _slices(len(keys)):
        # a hash of each (destination, source), then of this hash and the number among equal pairs
        pair = combine(dst_keys[rows], src_keys[rows])
        keys[rows] = combine(pair, occurrence[rows].astype(np.uint64) ^ word)
    return keys


def priorities(
    edge_key: KeyArray,
    *,
    kind: SamplingKind,
    seed: int,
    weight: FloatArray | None = None,
    view: int = 0,
) -> KeyArray:
    """Return one uint64 per edge; the smallest are kept first.

    weight [E] is non-negative and needed by `weighted` and `top_k`. view: 0 is the sample that a run selects once and
    scores with; each other number gives an independent sample, such as one per epoch. Raises ConfigError for
    an unknown kind, and where weights are needed and missing.
    """
    if kind == "none":
        return np.arange(len(edge_key), dtype=np.uint64)
    if kind not in _RULES:
        allowed = ", ".join(get_args(SamplingKind))
        raise ConfigError(f"unknown sampling kind {kind!r}", fix=f"Use one of {allowed}.")
    if kind != "uniform" and weight is None:
        raise ConfigError(
            f"{kind} sampling needs edge weights, and the graph has none",
            where="neighbors.sampling.kind",
            fix="Add a weight column to the edge table, or sample uniform.",
        )
    rule, word = _RULES[kind], seed_word(seed, view)
    out = np.empty(len(edge_key), np.uint64)
    for rows in _slices(len(out)):
        # the hash of each edge of the slice, by seed and view, then its priority by the rule
        hashed = combine(edge_key[rows], word)
        out[rows] = hashed if weight is None else rule(hashed, weight[rows])
    return out


def arrivals(priority: KeyArray) -> TimeArray:
    """Return the arrival of each edge [E] from priorities of kind `weighted`; infinity for an edge of weight 0."""
    return np.where(priority < _LAST, priority.view(np.float64), np.inf)


def _uniform(hashed: KeyArray, _weight: FloatArray) -> KeyArray:
    return hashed


def _weighted(hashed: KeyArray, weight: FloatArray) -> KeyArray:
    # The upper 52 bits and a half: exact in float64 and strictly inside (0, 1), so that the logarithm is finite.
    u = ((hashed >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    positive = weight > 0
    # -log(u) / w of each edge, 0 where its weight is 0; as bits these order like the numbers
    arrival = np.divide(-np.log(u), weight, out=np.zeros_like(u), where=positive, dtype=np.float64)
    return np.where(positive, arrival.view(np.uint64), _LAST | (hashed >> np.uint64(1)))


def _top_k(hashed: KeyArray, weight: FloatArray) -> KeyArray:
    # Adding 0 turns -0 into 0, whose bits then order like the other non-negative floats: 31 bits, then 33 of
    # the hash.
    bits = (weight.astype(np.float32) + np.float32(0)).view(np.uint32).astype(np.uint64)
    return ((np.uint64(0x7FFFFFFF) - bits) << np.uint64(33)) | (hashed >> np.uint64(31))


_RULES: dict[str, Callable[[KeyArray, FloatArray], KeyArray]] = {
    "uniform": _uniform,
    "weighted": _weighted,
    "top_k": _top_k,
}


def _slices(length: int) -> Iterator[slice]:
    return (slice(start, start + _SLICE) for start in range(0, length, _SLICE))
