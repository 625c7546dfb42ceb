"""The local updater: what it stores is all that its next step depends on."""

from __future__ import annotations

import pytest
import torch

from gnnflow.config import TrainConfig
from gnnflow.layers.saved import encode_weights
from gnnflow.train.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from gnnflow.train.updater import LocalUpdater


def loss_of(model: torch.nn.Linear) -> torch.Tensor:
    return model(torch.arange(6.0).reshape(2, 3)).square().sum()


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_restored_updater_takes_the_same_next_step(optimizer: str) -> None:
    uri = f"memory://train/{optimizer}.safetensors"
    config = TrainConfig.model_validate({"optimizer": optimizer, "lr": 0.1})
    model = torch.nn.Linear(3, 2)
    updater = LocalUpdater(model, config)
    updater.step(loss_of(model))
    write_checkpoint(uri, Checkpoint("r", {}, model.state_dict(), {}, updater.state()))
    updater.step(loss_of(model))

    found = read_checkpoint(uri)
    assert found is not None
    again = torch.nn.Linear(3, 2)
    again.load_state_dict(found.model)
    restored = LocalUpdater(again, config)
    restored.restore(found.updater)
    restored.step(loss_of(again))
    assert encode_weights(again.state_dict()) == encode_weights(model.state_dict())


def test_a_step_forgets_the_gradient_of_the_step_before() -> None:
    config = TrainConfig.model_validate({"optimizer": "sgd", "lr": 0.1})
    model = torch.nn.Linear(3, 2)
    updater = LocalUpdater(model, config)
    for _ in range(2):
        before = model.weight.detach().clone()
        loss = loss_of(model)
        (gradient,) = torch.autograd.grad(loss, model.weight, retain_graph=True)
        updater.step(loss)
        torch.testing.assert_close(model.weight.detach(), before - 0.1 * gradient)
