"""Checkpoints: one object, everything in it comes back equal."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import torch as safetensors_torch

from gnnflow.train.checkpoint import (
    Checkpoint,
    CheckpointError,
    read_checkpoint,
    write_checkpoint,
)
from gnnflow.train.state import FitState


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
    with pytest.raises(CheckpointError, match="damaged or of another version of gnnflow: training begins again"):
        read_checkpoint(str(path))


@pytest.mark.parametrize("place", [0, 40, 0.2, 0.5, 0.9, -1])
def test_a_changed_bit_of_a_checkpoint_is_found(tmp_path: Path, place: float) -> None:
    path = tmp_path / "c.safetensors"
    write_checkpoint(str(path), Checkpoint("r", {"epoch": 3}, {"w": torch.ones(64)}, {}, {}))
    content = bytearray(path.read_bytes())
    content[int(place * len(content)) if 0 < place < 1 else int(place)] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="training begins again"):
        read_checkpoint(str(path))


def test_a_checkpoint_of_another_version_says_so(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    path.write_bytes(safetensors_torch.save({"optimizer/0/step": torch.ones(1)}, metadata={"state": "{}"}))
    with pytest.raises(CheckpointError, match="of another version of gnnflow: training begins again"):
        read_checkpoint(str(path))
