"""Values and halves of logits, and their gradients, equal the products they are written as."""

from __future__ import annotations

import pytest
import torch

from gnnflow.layers.terms import attention_terms, heads_joined

HEADS, WIDTH, INPUTS, ROWS = 3, 4, 5, 7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("h_learns", [True, False])
def test_attention_terms_and_their_gradients_equal_plain_products(dtype, h_learns):
    h = torch.randn(ROWS, INPUTS, dtype=dtype, requires_grad=h_learns)
    linear = torch.randn(HEADS * WIDTH, INPUTS, dtype=dtype, requires_grad=True)
    attend = [torch.randn(HEADS, WIDTH, dtype=dtype, requires_grad=True) for _ in range(2)]
    found = attention_terms(h, linear, *attend)
    value = (h @ linear.T).view(ROWS, HEADS, WIDTH)
    expected = (value, *((value * each).sum(2) for each in attend))
    torch.testing.assert_close(found, expected)
    learned = [each for each in (h, linear, *attend) if each.requires_grad]
    blame = [torch.randn_like(each) for each in expected]
    made, wanted = (torch.autograd.grad(each, learned, blame) for each in (found, expected))
    torch.testing.assert_close(made, wanted)


def test_attention_terms_under_autocast_are_in_its_type():
    h, linear, attend = torch.randn(ROWS, INPUTS), torch.randn(HEADS * WIDTH, INPUTS), torch.randn(HEADS, WIDTH)
    with torch.autocast("cpu", torch.bfloat16):
        value, half = attention_terms(h, linear.requires_grad_(), attend)
    assert (value.dtype, half.dtype) == (torch.bfloat16, torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("concat", [True, False])
def test_joined_heads_and_their_gradients_equal_a_plain_sum_with_the_bias(dtype, concat):
    aggregated = torch.randn(ROWS, HEADS, WIDTH, dtype=dtype, requires_grad=True)
    bias = torch.randn(HEADS * WIDTH if concat else WIDTH, dtype=dtype, requires_grad=True)
    found = heads_joined(aggregated, bias, concat=concat)
    expected = (aggregated.flatten(1) if concat else aggregated.mean(1)) + bias
    assert torch.equal(found, expected)
    blame = torch.randn_like(expected)
    made, wanted = (torch.autograd.grad(each, (aggregated, bias), blame) for each in (found, expected))
    torch.testing.assert_close(made, wanted)
