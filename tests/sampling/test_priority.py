from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gnnflow.graph.arrays import Array, FloatArray, IntArray, KeyArray, offsets_of
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.hashing import hash_integers
from gnnflow.sampling import SamplingKind, edge_keys, priorities, top_k, top_k_ungrouped

DRAWS = 20_000


def keys_of(dst: Array, src: Array) -> KeyArray:
    none = np.zeros(len(dst), np.int64)
    return edge_keys(hash_integers(dst), hash_integers(src), none)


def many_targets(degree: int) -> tuple[IntArray, KeyArray]:
    """DRAWS targets that share the sources 0 .. degree - 1: as many independent draws."""
    dst = np.repeat(np.arange(DRAWS), degree)
    return offsets_of(np.full(DRAWS, degree)), keys_of(dst, np.tile(np.arange(degree), DRAWS))


def counts(degree: int, limit: int, kind: SamplingKind, weight: FloatArray | None = None) -> IntArray:
    """How often each source is kept."""
    offsets, keys = many_targets(degree)
    tiled = None if weight is None else np.tile(weight, DRAWS)
    picked = top_k(offsets, priorities(keys, kind=kind, seed=7, weight=tiled), tie=keys, limit=limit)
    return np.bincount(picked.edges % degree, minlength=degree)


def test_uniform_keeps_every_source_equally_often():
    kept = counts(10, 3, "uniform")
    assert stats.chisquare(kept).pvalue > 0.01


def test_uniform_keeps_every_pair_equally_often():
    offsets, keys = many_targets(5)
    rank = priorities(keys, kind="uniform", seed=7)
    picked = top_k(offsets, rank, tie=keys, limit=2).edges.reshape(-1, 2) % 5
    pairs = np.bincount(picked[:, 0] * 5 + picked[:, 1], minlength=25)[~np.eye(5, dtype=bool).ravel()]
    assert stats.chisquare(pairs).pvalue > 0.01


def test_one_weighted_draw_is_proportional_to_weight():
    weight = np.array([1, 2, 3, 4, 0.5], np.float32)
    expected = weight.astype(np.float64) / weight.sum() * DRAWS
    assert stats.chisquare(counts(5, 1, "weighted", weight), expected).pvalue > 0.01


def test_the_second_weighted_draw_is_proportional_among_what_is_left():
    weight = np.array([5, 3, 2], np.float32)
    # P(excluded last) = sum over the orders that end in it of w_first / 10 * w_second / (10 - w_first).
    last = np.array([0.3 * 2 / 7 + 0.2 * 3 / 8, 0.5 * 2 / 5 + 0.2 * 5 / 8, 0.5 * 3 / 5 + 0.3 * 5 / 7])
    left_out = DRAWS - counts(3, 2, "weighted", weight)
    assert stats.chisquare(left_out, last * DRAWS).pvalue > 0.01


def test_zero_weight_comes_after_every_positive_weight():
    weight = np.array([0, 1e-38, 0, 3e38], np.float32)
    assert counts(4, 2, "weighted", weight).tolist() == [0, DRAWS, 0, DRAWS]
    zeros = counts(4, 3, "weighted", weight)[[0, 2]]
    assert stats.chisquare(zeros).pvalue > 0.01


def test_top_k_keeps_the_heaviest_and_draws_among_equals():
    weight = np.array([1, 0, 2, 1, 1, -0.0], np.float32)
    kept = counts(6, 2, "top_k", weight)
    assert kept[[1, 2, 5]].tolist() == [0, DRAWS, 0]
    assert stats.chisquare(kept[[0, 3, 4]]).pvalue > 0.01


def test_top_k_tells_weights_apart_that_are_far_below_one():
    assert counts(3, 1, "top_k", np.array([1e-30, 2e-30, 0], np.float32)).tolist() == [0, DRAWS, 0]


def test_none_is_input_order():
    keys = keys_of(np.zeros(5, np.int64), np.arange(5))
    assert priorities(keys, kind="none", seed=1).tolist() == [0, 1, 2, 3, 4]


def test_another_seed_is_an_independent_sample():
    keys = keys_of(np.repeat(np.arange(2000), 10), np.tile(np.arange(10), 2000))
    offsets = offsets_of(np.full(2000, 10))
    first = top_k(offsets, priorities(keys, kind="uniform", seed=1), limit=1).edges
    other = top_k(offsets, priorities(keys, kind="uniform", seed=2), limit=1).edges
    assert stats.binomtest(int((first == other).sum()), 2000, 0.1).pvalue > 0.01


def test_keys_tell_direction_and_occurrence_apart():
    dst, src = hash_integers(np.array([1, 2, 1, 1])), hash_integers(np.array([2, 1, 2, 2]))
    keys = edge_keys(dst, src, np.array([0, 0, 0, 1]))
    assert keys[0] == keys[2]
    assert len(set(keys.tolist())) == 3


@pytest.mark.parametrize("kind", ["uniform", "weighted", "top_k"])
@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_sample_ignores_partition_count_and_order(kind: SamplingKind, partitions: int):
    rng = np.random.default_rng(3)
    dst, src = rng.integers(0, 300, 6000), rng.integers(0, 300, 6000)
    edges = np.unique(np.stack([dst, src], axis=1), axis=0)
    weight = (edges.sum(axis=1) % 5).astype(np.float32)
    whole = sampled(edges, weight, kind)

    order = rng.permutation(len(edges))
    pieces = np.array_split(order, partitions)
    kept = np.concatenate([piece[sampled_rows(edges[piece], weight[piece], kind)] for piece in pieces])
    np.testing.assert_array_equal(sampled(edges[kept], weight[kept], kind), whole)


def test_golden_neighbours():
    """The sample is part of the format: artifacts made by one version are continued by another."""
    dst, src = np.repeat(np.array([10, 11]), 8), np.tile(np.arange(8), 2)
    keys = keys_of(dst, src)
    weight = (src + 1).astype(np.float32)
    assert [hex(key) for key in keys[:2].tolist()] == GOLDEN_KEYS
    for kind, expected in GOLDEN_NEIGHBOURS.items():
        rank = priorities(keys, kind=kind, seed=42, weight=weight)
        picked = top_k(np.array([0, 8, 16]), rank, tie=keys, limit=4)
        assert src[picked.edges].reshape(2, 4).tolist() == expected, kind


def test_missing_weights_and_unknown_kinds_are_explained():
    with pytest.raises(ConfigError, match="weighted sampling needs edge weights"):
        priorities(np.zeros(1, np.uint64), kind="weighted", seed=0)
    with pytest.raises(ConfigError, match=r"'random'.*none, uniform, weighted, top_k"):
        priorities(np.zeros(1, np.uint64), kind="random", seed=0)  # type: ignore[arg-type]


def sampled_rows(edges: Array, weight: FloatArray, kind: SamplingKind) -> IntArray:
    keys = keys_of(edges[:, 0], edges[:, 1])
    rank = priorities(keys, kind=kind, seed=1, weight=weight)
    return top_k_ungrouped(edges[:, 0], rank, num_targets=300, tie=keys, limit=4).edges


def sampled(edges: Array, weight: FloatArray, kind: SamplingKind) -> Array:
    return edges[sampled_rows(edges, weight, kind)]


GOLDEN_KEYS = ["0x79bfa431e878a30b", "0xdc30f66a60feaa47"]
GOLDEN_NEIGHBOURS: dict[SamplingKind, list[list[int]]] = {
    "uniform": [[7, 6, 2, 4], [4, 3, 7, 6]],
    "weighted": [[3, 5, 6, 4], [5, 6, 7, 0]],
    "top_k": [[7, 6, 5, 4], [7, 6, 5, 4]],
}


def test_edges_of_another_relation_have_other_keys_and_a_nameless_one_those_of_before():
    ends = hash_integers(np.arange(4)), hash_integers(np.arange(4)), np.zeros(4, np.int64)
    keys = [edge_keys(*ends), edge_keys(*ends, relation=""), edge_keys(*ends, relation="a__to__b")]
    assert np.array_equal(keys[0], keys[1])
    assert not set(keys[0].tolist()) & set(keys[2].tolist())
    assert keys[0][:2].tolist() == [17889601085749379910, 14516012067262063758]
    assert keys[2][:2].tolist() == [10896692095650049041, 4559066607756287820]
