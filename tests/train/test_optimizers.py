"""Optimisers without torch's compiler: torch's own results, and nothing of the compiler imported."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gnnflow.train.optimizers import eager

KINDS = [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD]
TRAINS = """
import sys
import torch
from gnnflow.train.optimizers import eager
from gnnflow.train.reproducible import compute_settings

rows = torch.nn.Linear(4, 2)
optimizer = eager(torch.optim.Adam)(rows.parameters(), fused=True)
with compute_settings(1):
    rows(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
print(sorted({"torch._dynamo", "torch._inductor", "sympy"} & set(sys.modules)))
"""


def trained(kind: Any) -> tuple[list[Tensor], dict[str, object]]:
    """Return weights and the optimiser's state after three steps, the last behind a state that was saved and loaded."""
    torch.manual_seed(0)
    model, rows = nn.Linear(5, 3), torch.randn(7, 5)
    optimizer = kind(model.parameters(), lr=0.1, weight_decay=0.01)
    for _ in range(3):
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.zero_grad()
        model(rows).square().sum().backward()
        optimizer.step()
    return [each.detach() for each in model.parameters()], optimizer.state_dict()


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_those_of_the_optimiser_it_is_made_from(kind: type[torch.optim.Optimizer]) -> None:
    (weights, state), (expected, expected_state) = trained(eager(kind)), trained(kind)
    assert all(torch.equal(*pair) for pair in zip(weights, expected, strict=True))
    assert str(state) == str(expected_state)


def test_what_a_step_computes_has_no_graph_of_gradients() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = eager(torch.optim.SGD)([weight], lr=0.5)
    weight.sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert weight.tolist() == [0.5, 0.5]
    assert weight.is_leaf


@pytest.mark.slow
def test_training_does_not_import_the_compiler() -> None:
    found = subprocess.run([sys.executable, "-c", TRAINS], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
