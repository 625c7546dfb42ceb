"""Forms are compared on the same seeds, with batches of the same size over all ranks."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest
from accuracy import CASES, STRATEGIES, config_of, difference
from scipy import stats


def chosen(**given: object) -> Namespace:
    return Namespace(**{"data": "data", "set": "", **given})


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_ranks_together_take_the_same_batch(tmp_path, ranks):
    form = f"{ranks} ranks" if ranks > 1 else "as configured"
    asked, case = chosen(set="train.batch_size=512"), CASES["facebook_pages_sage"]
    train = config_of(asked, case, form, seed=0, workspace=str(tmp_path)).train
    assert train.batch_size * train.workers == 512


@pytest.mark.parametrize("form", ["shards", "store", "cluster-batch", "alike", "global-batch"])
def test_every_strategy_is_a_config_with_the_graphs_rates(tmp_path, form):
    config = config_of(chosen(), CASES["amazon_photo_gcn"], form, seed=3, workspace=str(tmp_path))
    assert (config.train.metric, config.train.schedule.kind, config.seed) == ("loss", "cosine", 3)
    assert config.train.epochs == 200
    assert config.train.weight_decay == (1e-3 if form in {"shards", "store", "alike"} else 5e-4)


def test_alike_has_the_targets_per_update_of_mini_batch(tmp_path):
    settings = STRATEGIES["amazon_photo"]
    config = config_of(chosen(), CASES["amazon_photo_gcn"], "alike", seed=0, workspace=str(tmp_path))
    # an update of all targets, as one mini-batch has
    assert config.train.accumulate * config.train.clusters_per_batch == config.partition.clusters
    assert "batch_size: 160" in settings.mini


def test_the_difference_is_that_of_each_seed_with_students_interval():
    first, second = [0.90, 0.91, 0.89, 0.92], [0.91, 0.93, 0.89, 0.925]
    interval = stats.ttest_rel(second, first).confidence_interval(0.95)
    expected = f"{np.mean(second) - np.mean(first):+.4f} ({interval.low:+.4f} to {interval.high:+.4f})"
    assert difference(second, first) == expected
