"""An activation equals torch's, and keeps one tensor of a layer's rows for its gradient."""

from __future__ import annotations

import torch
from torch.nn import functional

from gnnflow.layers.activations import elu


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
