from __future__ import annotations

import numpy as np
import pytest

from gnnflow.graph.errors import TrainingError
from gnnflow.graph.hashing import hash_integers
from gnnflow.sampling.pairs import (
    EVALUATION,
    draw_negatives,
    pair_keys,
    pool_draws,
    pool_owner,
    pool_rows,
    random_splits,
)


def keys_of(number: int) -> np.ndarray:
    return hash_integers(np.arange(number))


def draw(keys: np.ndarray, *, candidates: np.ndarray, epoch: int = 0, seed: int = 0, count: int = 3) -> np.ndarray:
    ends = np.full(len(keys), -1)
    return draw_negatives(keys, ends, ends, candidates=candidates, count=count, seed=seed, epoch=epoch)


def test_both_directions_of_an_edge_are_in_one_split() -> None:
    left, right = keys_of(1000), hash_integers(np.arange(1000) + 5000)
    there = random_splits(pair_keys(left, right), seed=3, valid=0.2, test=0.3)
    back = random_splits(pair_keys(right, left), seed=3, valid=0.2, test=0.3)
    np.testing.assert_array_equal(there, back)


def test_splits_have_the_shares_asked_for() -> None:
    pairs = pair_keys(keys_of(100_000), hash_integers(np.arange(100_000) + 10**6))
    shares = np.bincount(random_splits(pairs, seed=0, valid=0.05, test=0.1), minlength=3) / 100_000
    np.testing.assert_allclose(shares, [0.85, 0.05, 0.1], atol=0.005)
    assert np.all(random_splits(pairs, seed=0, valid=0.0, test=0.0) == 0)


def test_another_seed_gives_another_split() -> None:
    pairs = keys_of(1000)
    one, other = (random_splits(pairs, seed=seed, valid=0.3, test=0.3) for seed in (0, 1))
    assert (one != other).any()


def test_negatives_of_an_edge_do_not_depend_on_the_others_of_its_batch() -> None:
    candidates, keys = np.arange(500) * 7, keys_of(64)
    together = draw(keys, candidates=candidates)
    alone = np.concatenate([draw(keys[i : i + 1], candidates=candidates) for i in range(64)])
    np.testing.assert_array_equal(together, alone)


def test_negatives_change_with_the_epoch_and_those_of_scoring_do_not() -> None:
    candidates, keys = np.arange(500), keys_of(64)
    first, second = (draw(keys, candidates=candidates, epoch=epoch) for epoch in (0, 1))
    assert (first != second).mean() > 0.9
    again = [draw(keys, candidates=candidates, epoch=EVALUATION) for _ in range(2)]
    np.testing.assert_array_equal(*again)


def test_every_candidate_is_as_likely() -> None:
    drawn = draw(keys_of(20_000), candidates=np.arange(10), count=5)
    np.testing.assert_allclose(np.bincount(drawn.ravel(), minlength=10) / drawn.size, 0.1, atol=0.005)


def test_an_end_of_the_edge_is_never_its_negative() -> None:
    sources, targets = np.arange(200) % 4, (np.arange(200) + 1) % 4
    drawn = draw_negatives(keys_of(200), sources, targets, candidates=np.arange(4), count=3, seed=0, epoch=0)
    assert not (drawn == sources[:, None]).any()
    assert not (drawn == targets[:, None]).any()


@pytest.mark.parametrize("candidates", [[], [0, 1], [1, 1, 1]])
def test_a_pool_of_the_ends_alone_is_refused(candidates: list[int]) -> None:
    held = len(set(candidates))
    with pytest.raises(TrainingError, match=rf"of {held} node.*ends of the edge itself.*task.negatives.pool"):
        draw_negatives(
            keys_of(1),
            np.array([0]),
            np.array([1]),
            candidates=np.array(candidates, np.int64),
            count=1,
            seed=0,
            epoch=0,
        )


def test_a_pair_that_is_an_edge_is_no_negative_and_other_draws_stay() -> None:
    sources, targets = np.arange(200) % 7, (np.arange(200) + 1) % 7
    keys = {"candidates": np.arange(20), "count": 5, "seed": 0, "epoch": 0}
    plain = draw_negatives(keys_of(200), sources, targets, **keys)
    filtered = draw_negatives(keys_of(200), sources, targets, **keys, are_edges=lambda _, node: node % 3 == 0)
    assert (filtered % 3 != 0).all()
    np.testing.assert_array_equal(filtered[plain % 3 != 0], plain[plain % 3 != 0])


def test_a_pair_whose_candidates_are_all_edges_is_refused() -> None:
    ends = {"candidates": np.array([2, 3]), "count": 1, "seed": 0, "epoch": 0}
    with pytest.raises(TrainingError, match=r"no candidate is left.*2 draws.*edge of the same source.*filtered to fal"):
        draw_negatives(keys_of(1), np.array([0]), np.array([1]), **ends, are_edges=lambda _, node: node > 1)


def pools(nodes: list[np.ndarray], *, size: int, shards: int = 3) -> np.ndarray:
    """The pools as (partition, row) numbers, each found by the partition that owns it."""
    weights = np.array([part.sum() for part in nodes])
    points = pool_draws(np.arange(shards), size, seed=0, weights=weights)
    owner = pool_owner(points, weights)
    first = np.cumsum([0, *(len(part) for part in nodes)])
    found = np.full(points.shape, -1)
    for partition, part in enumerate(nodes):
        mine = owner == partition
        if mine.any():
            found[mine] = first[partition] + pool_rows(points[mine], partition, weights=weights, nodes=part)
    return found


def test_a_pool_draws_nodes_by_their_weight() -> None:
    nodes = [np.array([1.0, 0.0, 3.0]), np.zeros(2), np.array([2.0, 4.0])]
    shares = np.bincount(pools(nodes, size=30_000).ravel(), minlength=7) / 90_000
    np.testing.assert_allclose(shares, [0.1, 0, 0.3, 0, 0, 0.2, 0.4], atol=0.01)


def test_a_pool_does_not_depend_on_where_partitions_are_cut() -> None:
    whole = np.arange(1, 41, dtype=float)
    cut = [whole[:7], whole[7:7], whole[7:30], whole[30:]]
    np.testing.assert_array_equal(pools([whole], size=50), pools(cut, size=50))
