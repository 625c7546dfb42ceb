"""The cost of roots: what tasks' seconds teach of it."""

from __future__ import annotations

import numpy as np
import pytest

from gnnflow.partition.costs import CostModel, learn, non_negative_least_squares, terms_of

RNG = np.random.default_rng(0)
TRUE = CostModel(2e-6, {"a": (3e-6, 1e-6, 0.0), "b": (0.0, 5e-7, 1e-8)})


def roots(number):
    """Return instances and leaves of roots in two relations: of varied sizes, most of them few."""
    instances = (RNG.pareto(1.5, (number, 2)) * 5).astype(np.int64)
    return instances, instances * RNG.integers(1, 5, (number, 2))


def test_costs_are_learned_from_the_seconds_of_tasks_alone():
    instances, leaves = roots(4000)
    terms = terms_of(instances, leaves)
    tasks = np.stack([each.sum(0) for each in np.split(terms, 40)])
    learned = learn(tasks, tasks @ np.array([2e-6, 3e-6, 1e-6, 0, 0, 5e-7, 1e-8]), relations=["a", "b"])
    np.testing.assert_allclose(learned.seconds(instances, leaves), TRUE.seconds(instances, leaves), rtol=1e-6)


def test_a_tasks_seconds_are_those_of_its_roots_added_up():
    instances, leaves = roots(50)
    terms = terms_of(instances, leaves)
    assert TRUE.of_terms(terms.sum(0)[None])[0] == pytest.approx(TRUE.seconds(instances, leaves).sum())


def test_noise_makes_no_cost_negative_and_predictions_stay_close():
    terms = terms_of(*roots(6400))
    tasks = np.stack([each.sum(0) for each in np.split(terms, 64)])
    seconds = TRUE.of_terms(tasks)
    learned = learn(tasks, seconds * RNG.uniform(0.9, 1.1, len(seconds)), relations=["a", "b"])
    assert all(each >= 0 for row in learned.relations.values() for each in row)
    assert np.abs(learned.of_terms(tasks) / seconds - 1).mean() < 0.1


def test_the_least_squares_are_scipys():
    optimize = pytest.importorskip("scipy.optimize")
    for _ in range(20):
        matrix = RNG.random((30, 7)) * 10.0 ** RNG.integers(0, 6, 7)
        wanted = matrix @ RNG.standard_normal(7) + RNG.random(30)
        expected, residual = optimize.nnls(matrix, wanted)
        found = non_negative_least_squares(matrix, wanted)
        assert np.linalg.norm(matrix @ found - wanted) == pytest.approx(residual, rel=1e-9)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9 * expected.max(initial=1))


def test_a_relation_without_instances_costs_nothing():
    instances = np.stack([np.arange(1, 21), np.zeros(20, np.int64)], axis=1)
    learned = learn(terms_of(instances, instances), np.arange(1, 21) * 1e-3, relations=["a", "none"])
    assert learned.relations["none"] == (0, 0, 0)
