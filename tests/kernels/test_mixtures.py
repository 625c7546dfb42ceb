"""The mean of a node's rows by a softmax of scores, in one pass, equals torch's operations one after the other."""

from __future__ import annotations

import math

import pytest
import torch

from gnnflow.kernels import scored_mean
from gnnflow.kernels.device import compute_threads


def given(relations, number, width, scored, *, large=1.0):
    """Rows of each relation, and the weight, bias and query that score them."""
    torch.manual_seed(0)
    rows = [large * torch.randn(number, width) for _ in range(relations)]
    return [torch.randn(scored, width) / width**0.5, torch.randn(scored), torch.randn(scored), *rows]


def found_of(tensors, blame):
    """The mean and all gradients."""
    tensors = [each.detach().requires_grad_() for each in tensors]
    weight, bias, query, *rows = tensors
    mean = scored_mean(rows, weight, bias, query)
    return [mean.detach(), *torch.autograd.grad(mean, tensors, blame.to(mean))]


@pytest.mark.table(3)
@pytest.mark.parametrize(
    ("relations", "number", "width", "scored"),
    [(1, 5, 3, 2), (2, 0, 4, 3), (3, 2500, 48, 128), (4, 1025, 17, 5), (2, 300, 512, 128), (3, 70, 8, 1024)],
)
@pytest.mark.parametrize("large", [1e-4, 1.0])
def test_mean_and_gradients_equal_those_in_float64(relations, number, width, scored, large):
    tensors = given(relations, number, width, scored, large=large)
    blame = torch.randn(number, width)
    found, expected = (found_of(each, blame) for each in (tensors, [each.double() for each in tensors]))
    for made, wanted in zip(found, expected, strict=True):
        # relative to the largest: a sum over all rows has the rounding of all of them
        size = wanted.abs().max().item() if wanted.numel() else 1.0
        torch.testing.assert_close(made.double(), wanted, rtol=1e-4, atol=2e-6 * size + 1e-6)


def test_bits_are_those_of_any_number_of_threads():
    tensors, blame = given(3, 5000, 64, 128), torch.randn(5000, 64)
    made = []
    for threads in (1, 2, 3):
        with compute_threads(threads):
            made.append(found_of(tensors, blame))
    assert all(torch.equal(one, other) for each in made[1:] for one, other in zip(made[0], each, strict=True))


def test_rows_that_ask_for_no_gradient_get_none():
    weight, bias, query, first, second = given(2, 40, 16, 8)
    second.requires_grad_()
    mean = scored_mean([first, second], weight.requires_grad_(), bias, query)
    by_second, by_weight = torch.autograd.grad(mean.square().sum(), [second, weight])
    wanted = [each.double().detach().requires_grad_() for each in (second, weight)]
    plain = scored_mean([first.double(), wanted[0]], wanted[1], bias.double(), query.double())
    for made, expected in zip((by_second, by_weight), torch.autograd.grad(plain.square().sum(), wanted), strict=True):
        torch.testing.assert_close(made.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_what_is_no_number_stays_in_its_row(odd):
    weight, bias, query, *rows = given(2, 30, 16, 8)
    rows[1][7, 3] = odd
    mean = scored_mean(rows, weight, bias, query)
    assert not mean[7].isfinite().all()
    assert mean[torch.arange(30) != 7].isfinite().all()


def test_half_precision_keeps_to_torchs_operations():
    weight, bias, query, *rows = given(3, 20, 16, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        halves = scored_mean(rows, weight, bias, query)
    torch.testing.assert_close(halves.float(), scored_mean(rows, weight, bias, query), rtol=0.05, atol=0.05)
