"""Curves of several numbers of ranks are compared where they end, and a run of n ranks takes the batch of one."""

from __future__ import annotations

from argparse import Namespace

import pytest
from convergence import config_of, table, widest_gap


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_ranks_together_take_the_same_batch(tmp_path, ranks):
    choice = {"data": "data", "ranks": [1, 2, 4], "epochs": 3, "lr": 0.001, "batch_size": 512, "dropout": 0.0}
    chosen = Namespace(**choice, servers=0, mode="synchronous", seed=0)
    train = config_of(chosen, str(tmp_path), ranks=ranks).train
    assert train.batch_size * train.workers == 512


def test_the_gap_is_that_of_the_last_epochs():
    assert widest_gap({1: [0.1, 0.8, 0.9], 2: [0.5, 0.8, 0.92]}, last=2) == pytest.approx(0.02)
    assert widest_gap({1: [0.1]}, last=1) == 0.0


def test_the_table_ends_with_the_last_epoch():
    head, _, row = table({2: [0.1, 0.2, 0.3, 0.4]}, every=2).splitlines()
    assert head == "| epoch | 0 | 2 | 3 |"
    assert row == "| 2 ranks | 0.1000 | 0.3000 | 0.4000 |"
