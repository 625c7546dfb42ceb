"""What servers count of pushes is told once, as means over all of them."""

from __future__ import annotations

import numpy as np

from gnnflow.train.ranks.push_counts import Tally
from gnnflow.train.ranks.server_shard import Push
from gnnflow.train.updater import StepLoss


def push(loss, weight, num_targets):
    return Push(0, 0, np.zeros(0, np.float32), np.zeros(0, bool), loss, weight, num_targets)


def test_a_loss_is_the_mean_over_the_weights_of_all_pushes_and_is_told_once():
    tally = Tally()
    for each in (push(1.0, 3.0, 3), push(5.0, 1.0, 2)):
        tally.add(each)
    assert tally.take() == StepLoss(2.0, 5)
    assert tally.take() == StepLoss(0.0, 0)
