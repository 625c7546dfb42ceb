"""The core's sums of linear maps are torch's, whatever the number of rows, maps and threads."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.nn import functional

from gnnflow.kernels import Map, affine
from gnnflow.kernels.device import compute_threads
from gnnflow.kernels.native.dense import lends_products

HAS_CORE = pytest.mark.skipif(not lends_products(), reason="no core, or no matrix product to lend it")


def operands(rows, widths, out_width, *, dtype=torch.float32, bias=True):
    generator = torch.Generator().manual_seed(rows)

    def drawn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    maps = [Map(drawn(rows, width), drawn(out_width, width)) for width in widths]
    return maps, drawn(out_width) if bias else None, drawn(rows, out_width).detach()


def plain(maps, bias, *, relu):
    total = sum(functional.linear(each.rows, each.weight) for each in maps)
    total = total if bias is None else total + bias
    return functional.relu(total) if relu else total


def with_gradients(function, maps, bias, grad, *, relu):
    leaves = [tensor for each in maps for tensor in each] + ([] if bias is None else [bias])
    result = function(maps, bias, relu=relu)
    return [result, *torch.autograd.grad(result, leaves, grad)]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("rows", "widths", "out_width"),
    [
        (0, (3,), 2),
        (1, (1,), 1),
        (513, (5, 7), 3),
        (2049, (50, 64), 64),
        (4500, (64,), 121),
        (300, (4, 9), 700),
        (1031, (64, 16), 112),
        (1500, (112, 128), 48),
    ],
)
def test_sums_of_maps_and_their_gradients_are_those_of_torch(rows, widths, out_width, bias, relu):
    maps, shift, grad = operands(rows, widths, out_width, bias=bias)
    found = with_gradients(affine, maps, shift, grad, relu=relu)
    wanted = with_gradients(plain, maps, shift, grad, relu=relu)
    for mine, theirs in zip(found, wanted, strict=True):
        # sums over the rows are rounded in another order
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5 * max(rows, 1) ** 0.5)


@HAS_CORE
def test_the_number_of_threads_changes_no_bit():
    maps, bias, grad = operands(9000, (64, 50), 64)
    found = []
    for threads in (1, 2, 3):
        with compute_threads(threads):
            found.append(with_gradients(affine, maps, bias, grad, relu=True))
    for other in found[1:]:
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(other, found[0], strict=True))


@pytest.mark.parametrize("needed", [(0,), (1,), (2,), (3,), (4,), (1, 3, 4)])
def test_only_gradients_that_are_asked_for_are_given(needed):
    maps, bias, grad = operands(700, (6, 8), 5)
    leaves = [*maps[0], *maps[1], bias]
    for number, leaf in enumerate(leaves):
        leaf.requires_grad_(number in needed)
    affine(maps, bias, relu=True).backward(grad)
    assert [number for number, leaf in enumerate(leaves) if leaf.grad is not None] == list(needed)


@pytest.mark.parametrize("relu", [False, True])
def test_rows_of_unit_length_and_their_gradients_are_those_of_torch(relu):
    maps, shift, grad = operands(700, (16, 5), 32)
    with torch.no_grad():
        shift.zero_()
        maps[0].rows[:2], maps[1].rows[:2] = 0, 0
        maps[0].rows[2] *= 1e-20
        maps[1].rows[2] *= 1e-20
    found = with_gradients(partial(affine, unit=True), maps, shift, grad, relu=relu)
    # what is shorter than 1e-12 has a gradient of 1e12 times its own
    own = [grad.index_fill(0, torch.arange(3), 0.0)]
    wanted = with_gradients(
        lambda *given, **kind: functional.normalize(plain(*given, **kind)), maps, shift, *own, relu=relu
    )
    long = with_gradients(partial(affine, unit=True), maps, shift, *own, relu=relu)
    torch.testing.assert_close(found[0], wanted[0])
    for mine, theirs in zip(long, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    # row 2, too short: the gradient goes on as it is, times 1e12
    short = with_gradients(
        lambda *given, **kind: functional.normalize(plain(*given, **kind)), maps, shift, grad, relu=relu
    )
    torch.testing.assert_close(found[1][2], short[1][2], rtol=1e-4, atol=0)


def test_what_is_not_a_number_stays_so():
    maps, bias, _ = operands(600, (4,), 3)
    with torch.no_grad():
        maps[0].rows[17, 1] = torch.nan
    result = affine(maps, bias, relu=True)
    assert result[17].isnan().all()
    assert not result[torch.arange(600) != 17].isnan().any()


def test_gradients_of_doubles_are_right():
    maps, bias, _ = operands(4, (3, 2), 2, dtype=torch.float64)
    leaves = [*maps[0], *maps[1], bias]

    def function(x, x_weight, y, y_weight, shift):
        return affine([Map(x, x_weight), Map(y, y_weight)], shift, relu=True)

    assert torch.autograd.gradcheck(function, leaves)


def test_rows_under_autocast_are_mapped_in_half_precision():
    maps, bias, _ = operands(8, (4,), 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert affine(maps, bias).dtype == torch.bfloat16


def test_rows_that_do_not_fit_the_weight_are_refused():
    maps, bias, _ = operands(8, (4,), 3)
    with pytest.raises((RuntimeError, IndexError)):
        affine([Map(maps[0].rows[:, :3], maps[0].weight)], bias)
    with pytest.raises((RuntimeError, IndexError)):
        affine([maps[0], Map(maps[0].rows[:5], maps[0].weight)], bias)
