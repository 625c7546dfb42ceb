"""Tests on a graphics card. Without one they are skipped; a machine that has one runs `python -m pytest tests/cuda`.

Those of the kernels also run without one, on Triton's interpreter, and all programs are compiled: `make test-card`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gnnflow.kernels import table
from gnnflow.kernels.cuda import launch
from tests.cuda.card import CARD, INTERPRETED, IS_INTERPRETED, IS_THERE, NEED_NONE

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        path = Path(item.fspath)
        runs = IS_THERE or path in NEED_NONE or (IS_INTERPRETED and path in INTERPRETED)
        if HERE in path.parents and not runs:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Let the card's kernels take tensors of the processor where they are interpreted."""
    if not IS_INTERPRETED:
        return
    kinds = {torch.float32, torch.bfloat16, torch.float16}
    kernels = [
        replace(kernel, accepts=lambda _, rows: rows.dtype in kinds) if kernel.name == "cuda" else kernel
        for kernel in table.TABLE
    ]
    monkeypatch.setattr(table, "TABLE", tuple(kernels))
    # it runs a thousand or so tiles per second: hubs are what has more edges than a tile has targets
    monkeypatch.setattr(launch, "_LONGEST", launch._MOST_TARGETS)


@pytest.fixture(scope="session", autouse=True)
def opened():
    """Open the card before any test: a process keeps what that takes (descriptors, threads) to its end."""
    if IS_THERE:
        rows = torch.ones(8, 8, device=CARD)
        (rows @ rows).sum().item()


@pytest.fixture(autouse=True)
def deterministic(monkeypatch):
    """Refuse what has other bits every time, as training does."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)
