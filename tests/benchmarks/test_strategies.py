"""Strategies are compared with equally many settings to choose from, and on the same seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from strategies import Run, accuracies, config_of
from strategies_settings import CHOICES, GRAPHS, Mini, overrides

from gnnflow.graph.run_facts import TrainFacts


@pytest.mark.parametrize(("name", "targets", "number"), [("amazon_photo", 160, 15), ("facebook_pages", 11_235, 6)])
def test_both_strategies_choose_from_as_many_settings_of_as_many_updates(name, targets, number):
    minis = [each for each in CHOICES[name] if isinstance(each, Mini)]
    clusters = [each for each in CHOICES[name] if not isinstance(each, Mini)]
    updates = [each.epochs * -(-targets // each.batch_size) for each in minis]
    updates += [each.epochs * (each.clusters // each.per_batch) // each.accumulate for each in clusters]
    assert len(set(map(str, minis))) == len(set(map(str, clusters))) == number
    assert max(updates) <= 1.05 * min(updates)
    assert GRAPHS[name].mini in minis
    assert GRAPHS[name].cluster in clusters


def test_clusters_alike_have_the_targets_per_update_the_updates_and_the_rates_of_mini_batch():
    mini, alike = GRAPHS["amazon_photo"].mini, GRAPHS["amazon_photo"].alike
    assert [each.boundary_hops for each in alike] == [2, 1]
    for each in alike:
        assert (each.lr, each.decay, each.epochs) == (mini.lr, mini.decay, mini.epochs)
        assert each.accumulate * each.per_batch == each.clusters  # an update of all targets, as one mini-batch has
    assert mini.batch_size == 160


@pytest.mark.parametrize("strategy", ["shards", "store", "cluster", "global"])
def test_every_strategy_is_a_config_with_the_graphs_rates(tmp_path, strategy):
    graph = GRAPHS["amazon_photo"]
    config = config_of(
        "amazon_photo", overrides(graph, strategy), seed=3, data=str(tmp_path), workspace=str(tmp_path / "work")
    )
    assert (config.train.metric, config.train.schedule.kind, config.seed) == ("loss", "cosine", 3)
    assert config.train.epochs == {"cluster": graph.cluster.epochs, "global": graph.epochs}.get(
        strategy, graph.mini.epochs
    )


def _runs(values):
    return [Run(0.0, TrainFacts({"test.accuracy": value}, 0, (), {})) for value in values]


def test_the_difference_is_that_of_each_seed_with_students_interval():
    first, second = [0.90, 0.91, 0.89, 0.92], [0.91, 0.93, 0.89, 0.925]
    head, row = accuracies("graph", {"mini": _runs(first), "cluster": _runs(second)})
    interval = stats.ttest_rel(second, first).confidence_interval(0.95)
    assert head.endswith("|  |")
    assert f"{np.mean(second) - np.mean(first):+.4f} ({interval.low:+.4f} to {interval.high:+.4f})" in row
