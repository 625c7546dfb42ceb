"""The local updater: what it stores is all that its next step depends on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnflow.config import MiniBatchConfig
from gnnflow.layers.saved import encode_weights
from gnnflow.train.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from gnnflow.train.objective import Objective
from gnnflow.train.updater import LocalUpdater


def loss_of(model: torch.nn.Linear) -> torch.Tensor:
    return model(torch.arange(6.0).reshape(2, 3)).square().sum()


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_restored_updater_takes_the_same_next_step(optimizer: str) -> None:
    uri = f"memory://train/{optimizer}.safetensors"
    config = MiniBatchConfig.model_validate({"optimizer": optimizer, "lr": 0.1})
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


def batches(*sizes: int) -> list[tuple[torch.Tensor, np.ndarray]]:
    """Return features and labels of batches of these sizes; a fifth of the targets is unlabelled."""
    rng = np.random.default_rng(1)
    return [
        (torch.from_numpy(rng.normal(size=(size, 3)).astype(np.float32)), rng.integers(0, 3, size) - (place % 2))
        for place, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sizes", [(5, 5, 5), (1, 30, 4), (7,), (3, 0, 9)])
def test_accumulated_gradients_are_those_of_one_large_batch(sizes: tuple[int, ...], weighted: bool) -> None:
    objective = Objective("single", torch.tensor([0.2, 3.0, 1.0]) if weighted else None)
    parts = batches(*sizes)
    whole = torch.cat([rows for rows, _ in parts]), np.concatenate([labels for _, labels in parts])
    config = MiniBatchConfig.model_validate({"optimizer": "sgd", "lr": 1.0})
    small, large = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    large.load_state_dict(small.state_dict())
    updater = LocalUpdater(small, config)
    for place, (rows, labels) in enumerate(parts, start=1):
        take = updater.step if place == len(parts) else updater.hold
        loss, count = objective.loss(small(rows), labels)
        take(loss, num_targets=count, weight=objective.weight(labels))
    LocalUpdater(large, config).step(objective.loss(large(whole[0]), whole[1])[0])
    torch.testing.assert_close(small.weight, large.weight, atol=1e-6, rtol=1e-5)


def test_held_gradients_survive_a_restart() -> None:
    objective, config = Objective("single"), MiniBatchConfig.model_validate({"lr": 0.1, "clip_norm": 0.3})
    first, second, third = batches(4, 9, 5)
    model = torch.nn.Linear(3, 3)
    updater = LocalUpdater(model, config)
    updater.step(objective.loss(model(first[0]), first[1])[0])
    updater.hold(objective.loss(model(second[0]), second[1])[0], num_targets=9, weight=9.0)
    again = torch.nn.Linear(3, 3)
    again.load_state_dict(model.state_dict())
    restored = LocalUpdater(again, config)
    restored.restore({name: tensor.clone() for name, tensor in updater.state().items()})
    for each, taker in ((model, updater), (again, restored)):
        taker.step(objective.loss(each(third[0]), third[1])[0], weight=5.0)
    assert encode_weights(again.state_dict()) == encode_weights(model.state_dict())
    assert not any(name.startswith("held/") for name in updater.state())


@pytest.mark.parametrize("clip_norm", [0.1, 1e6])
def test_long_gradients_are_scaled_down_to_the_norm_and_short_ones_left_alone(clip_norm: float) -> None:
    model = torch.nn.Linear(3, 2)
    before = [weights.detach().clone() for weights in model.parameters()]
    gradients = torch.autograd.grad(loss_of(model), list(model.parameters()))
    norm = torch.linalg.vector_norm(torch.cat([gradient.ravel() for gradient in gradients]))
    assert 0.1 < norm < 1e6
    config = MiniBatchConfig.model_validate({"optimizer": "sgd", "lr": 1.0, "clip_norm": clip_norm})
    LocalUpdater(model, config).step(loss_of(model))
    for held, gradient, weights in zip(before, gradients, model.parameters(), strict=True):
        torch.testing.assert_close(held - weights.detach(), gradient * min(1.0, clip_norm / float(norm)))


def test_a_step_forgets_the_gradient_of_the_step_before() -> None:
    config = MiniBatchConfig.model_validate({"optimizer": "sgd", "lr": 0.1})
    model = torch.nn.Linear(3, 2)
    updater = LocalUpdater(model, config)
    for _ in range(2):
        before = model.weight.detach().clone()
        loss = loss_of(model)
        (gradient,) = torch.autograd.grad(loss, model.weight, retain_graph=True)
        updater.step(loss)
        torch.testing.assert_close(model.weight.detach(), before - 0.1 * gradient)
