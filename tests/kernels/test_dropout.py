"""Dropout: the rate, the scale, the gradient and the seed."""

from __future__ import annotations

import importlib
import math

import pytest
import torch

from gnnflow.kernels import dropout
from gnnflow.kernels.device import compute_threads

dropping = importlib.import_module("gnnflow.kernels.dropout")  # of whose name the package has a function


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.6])
def test_dropout_keeps_the_share_it_should_and_the_mean(rate):
    torch.manual_seed(0)
    out = dropout(torch.ones(1_000_003), rate)
    kept = out != 0
    assert float(kept.float().mean()) == pytest.approx(1 - rate, abs=3e-3)
    torch.testing.assert_close(out[kept], torch.full((int(kept.sum()),), 1 / (1 - rate)), rtol=1e-4, atol=0)
    assert float(out.mean()) == pytest.approx(1.0, abs=6e-3)


def test_elements_of_one_random_word_are_dropped_independently():
    torch.manual_seed(1)
    kept = (dropout(torch.ones(400_000), 0.5) != 0).float().view(-1, 4)
    together = torch.corrcoef(kept.T)
    torch.testing.assert_close(together, torch.eye(4), rtol=0, atol=0.02)


def test_gradient_flows_through_what_was_kept_only():
    rows = torch.ones(7, 3, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(2)
    out = dropout(rows, 0.5)
    (gradient,) = torch.autograd.grad(out.sum(), rows)
    assert torch.equal(gradient, out.detach())


def test_the_seed_decides_the_draw():
    rows = torch.rand(33, 5)
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(dropout(rows, 0.4))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_a_rate_of_zero_draws_nothing():
    rows = torch.rand(4, 2)
    before = torch.get_rng_state()
    assert dropout(rows, 0.0) is rows
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_a_rate_that_leaves_nothing_is_refused(rate):
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        dropout(torch.ones(2), rate)


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 3), (70_000, 5)])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_core_drops_what_torchs_operations_drop_to_the_bit(shape, threads, monkeypatch):
    rows, blame, made = torch.randn(shape), torch.randn(shape), []
    rows.view(-1)[::97] = math.inf
    for native in (True, False):
        if not native:
            monkeypatch.setattr(dropping, "kernels", lambda: None)
        given = rows.clone().requires_grad_()
        torch.manual_seed(5)
        with compute_threads(threads):
            out = dropout(given, 0.6)
            (gradient,) = torch.autograd.grad(out, given, blame)
        made.append([each.detach().view(torch.int32) for each in (out, gradient, torch.rand(1))])
    assert all(torch.equal(one, other) for one, other in zip(*made, strict=True))


def test_the_core_keeps_a_byte_per_number_for_the_gradient_and_none_where_none_is_asked_for():
    out = dropout(torch.ones(50, 3, requires_grad=True), 0.5)
    (kept,) = out.grad_fn.saved_tensors
    assert kept.nbytes < 50 * 3 + 4
    assert torch.equal(kept[:150].bool().view(50, 3), out != 0)
    assert dropout(torch.ones(50, 3), 0.5).grad_fn is None
