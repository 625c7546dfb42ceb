"""Checkpoints: one object, everything in it comes back equal."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gnnflow.graph.errors import StorageError
from gnnflow.layers.saved import encode_weights
from gnnflow.train.checkpoint import (
    Checkpoint,
    optimizer_tensors,
    read_checkpoint,
    restore_optimizer,
    write_checkpoint,
)
from gnnflow.train.state import FitState


def stepped(kind: type[torch.optim.Optimizer]) -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = kind(model.parameters(), lr=0.1)
    step(model, optimizer)
    return model, optimizer


def step(model: torch.nn.Linear, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.arange(6.0).reshape(2, 3)).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_a_restored_optimiser_takes_the_same_next_step(kind: type[torch.optim.Optimizer], tmp_path: Path) -> None:
    uri = str(tmp_path / "deep" / "c.safetensors")
    model, optimizer = stepped(kind)
    moment = Checkpoint("r", {"epoch": 1}, model.state_dict(), {}, optimizer_tensors(optimizer))
    write_checkpoint(uri, moment)
    step(model, optimizer)

    found = read_checkpoint(uri)
    assert found is not None
    again = torch.nn.Linear(3, 2)
    again.load_state_dict(found.model)
    fresh = kind(again.parameters(), lr=0.1)
    restore_optimizer(fresh, found.optimizer)
    step(again, fresh)
    assert encode_weights(again.state_dict()) == encode_weights(model.state_dict())


def test_the_state_comes_back_digit_for_digit() -> None:
    state = FitState().after_step(loss=0.1 + 0.2, num_targets=3, seconds=1e-17).after_epoch({"epoch": 0, "x": 1 / 3})
    state = state.with_best(value=-1 / 3, loss=1 / 3).after_step(loss=1 / 7, num_targets=7, seconds=0.1)
    uri = "memory://train/state.safetensors"
    write_checkpoint(uri, Checkpoint("r", state.to_json(), {}, {}, {}))
    found = read_checkpoint(uri)
    assert found is not None
    assert FitState.from_json(found.state) == state


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert read_checkpoint(str(tmp_path / "none.safetensors")) is None


@pytest.mark.parametrize("keep", [0, 5, 40, -3])
def test_a_damaged_checkpoint_says_so(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "c.safetensors"
    write_checkpoint(str(path), Checkpoint("r", {}, {"w": torch.ones(4)}, {}, {}))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(StorageError, match="damaged: delete it"):
        read_checkpoint(str(path))
