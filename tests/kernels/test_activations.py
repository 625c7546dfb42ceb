"""An activation equals torch's, and keeps one tensor of a layer's rows for its gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from gnnflow.kernels import elu
from gnnflow.kernels.device import compute_threads


def test_elu_and_its_gradient_equal_torchs_and_the_input_is_not_kept():
    rows = torch.randn(50, 7, dtype=torch.float64, requires_grad=True)
    rows.data[:3] = 0.0
    blame = torch.randn_like(rows)
    expected, found = functional.elu(rows), elu(rows)
    assert torch.equal(found, expected)
    (wanted,), (made,) = (torch.autograd.grad(out, rows, blame, retain_graph=True) for out in (expected, found))
    torch.testing.assert_close(made, wanted)
    (kept,) = found.grad_fn.saved_tensors
    assert kept.data_ptr() == found.data_ptr()


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5, 7), (1, 16), (3000, 17)])
def test_elu_of_float32_and_its_gradient_equal_those_in_float64_to_rounding(shape):
    rows = torch.randn(shape) * torch.logspace(-8, 2, max(shape[0], 1))[: shape[0], None]
    blame = torch.randn(shape)
    found, expected = rows.clone().requires_grad_(), rows.double().requires_grad_()
    out, wanted = elu(found), functional.elu(expected)
    torch.testing.assert_close(out.double(), wanted, rtol=3e-7, atol=0.0)
    out.backward(blame)
    wanted.backward(blame.double())
    torch.testing.assert_close(found.grad.double(), expected.grad, rtol=3e-7, atol=1e-6)


def test_elu_keeps_what_is_no_number_and_its_bits_on_any_number_of_threads():
    rows = torch.randn(60_000)
    rows[::1000] = torch.tensor([math.nan, math.inf, -math.inf]).repeat(20)
    rows.requires_grad_()
    made = []
    for threads in (1, 2, 3):
        with compute_threads(threads):
            out = elu(rows)
            made.append((out, *torch.autograd.grad(out.sum(), rows)))
    assert torch.equal(out.isnan(), rows.isnan())
    assert (out[rows == -math.inf] == -1.0).all()
    assert all(
        torch.equal(a.view(torch.int32), b.view(torch.int32))
        for each in made
        for a, b in zip(each, made[0], strict=True)
    )
