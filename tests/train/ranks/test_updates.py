"""Clipping, accumulation and a learning rate that changes mean on several ranks what they mean on one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnflow.config import MiniBatchConfig
from gnnflow.train.objective import Objective
from gnnflow.train.ranks.gradients import AllReduce
from gnnflow.train.ranks.pushing import ServedUpdater
from gnnflow.train.updater import LocalUpdater
from tests.train.ranks.test_gradients import bounds, model_of, rows_and_labels
from tests.train.ranks.test_servers import Actor
from tests.train.ranks.together import together

RATES = (0.2, 0.1, 0.3)
WEIGHT = torch.tensor([0.5, 2.0, 1.0])


def config_of(**keys):
    return MiniBatchConfig.model_validate({"optimizer": "sgd", "lr": 0.05, "clip_norm": 0.1, **keys})


def steps(updater_of, own, *, parts):
    """Return the weights after three steps on some targets, each of so many batches, and the losses."""
    model, objective = model_of(), Objective("single", WEIGHT)
    updater = updater_of(model)
    rows, labels = rows_and_labels()
    losses = []
    for rate in RATES:
        updater.set_rate(rate)
        for place, part in enumerate(np.array_split(np.arange(len(labels))[own], parts), start=1):
            loss, count = objective.loss(model(rows[part]), labels[part])
            figures = {"num_targets": count, "weight": objective.weight(labels[part])}
            if place < parts:
                updater.hold(loss, **figures)
            else:
                taken = updater.step(loss, **figures)
                losses.append((taken.mean, taken.num_targets))
    return {name: value.detach() for name, value in model.state_dict().items()}, losses


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("how", ["all-reduce", "servers"])
def test_ranks_update_as_one_does(how, size, parts):
    expected, expected_losses = steps(lambda model: LocalUpdater(model, config_of()), slice(None), parts=1)
    served = config_of(updater={"kind": "parameter_server", "mode": "synchronous", "servers": 1})
    actors = [Actor(served, size)] if how == "servers" else []

    def on(group):
        def updater_of(model):
            if actors:
                return ServedUpdater(model, group, actors, fit=0)
            return LocalUpdater(model, config_of(), exchange=AllReduce(model, group, bucket_bytes=64))

        return steps(updater_of, bounds(group.rank, size), parts=parts)

    for weights, losses in together(on, size):
        np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
        for name, value in expected.items():
            torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-6)
