"""What is added to sums, and to gradients, is what the differentiated kernels give."""

from __future__ import annotations

import pytest
import torch

from gnnflow.kernels import (
    Attended,
    Csr,
    Gates,
    Halves,
    Scales,
    add_gated_gradient,
    add_gated_sum,
    add_softmax_gradient,
    add_softmax_sums,
    add_value_gradient,
    add_weighted_sum,
    gated_sum,
    identity,
    softmax_sums,
    weighted_sum,
)
from gnnflow.kernels.device import compute_threads
from tests.kernels.test_half_precision import needs_native

TARGETS, SOURCES = 30, 20
WIDTHS = [1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 40, 64, 65, 100]


def graph(targets=TARGETS, sources=SOURCES):
    """Some targets without in-edges, one with many."""
    degree = torch.randint(0, 5, (targets,))
    degree[3], degree[7] = 0, 60
    offsets = torch.cat([torch.zeros(1).long(), degree.cumsum(0)])
    return Csr(offsets, torch.randint(sources, (int(offsets[-1]),)), sources)


def scales_of(csr):
    return Scales(torch.rand(csr.num_sources), torch.rand(csr.num_targets))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_sums_and_gradients_are_added_to_what_is_there(width, weighted, dtype):
    torch.manual_seed(width)
    csr, heads = graph(), 3 if weighted else 1
    coefficient = torch.rand(csr.num_edges, heads).to(torch.promote_types(dtype, torch.float32)) if weighted else None
    value = torch.randn(SOURCES, heads, width).to(dtype).requires_grad_()
    scales = scales_of(csr) if dtype == torch.float32 else Scales(None, None)
    expected = weighted_sum(csr, coefficient, value, scales)
    tolerance = {"rtol": 2e-2, "atol": 0.2} if dtype == torch.bfloat16 else {}
    begun = torch.randn(TARGETS, heads, width).to(torch.promote_types(dtype, torch.float32))
    sums = begun.clone()
    add_weighted_sum(sums, csr, coefficient, value.detach(), scales)
    torch.testing.assert_close(sums, begun + expected.detach(), **tolerance)
    blame = torch.randn_like(expected)
    (want,) = torch.autograd.grad(expected, value, blame)
    begun = torch.randn(SOURCES, heads, width).to(sums)
    gradient = begun.clone()
    add_value_gradient(gradient, csr, coefficient, blame, scales)
    torch.testing.assert_close(gradient, begun + want, **tolerance)


def test_a_value_that_serves_every_head_collects_the_gradients_of_all():
    torch.manual_seed(0)
    csr = graph()
    coefficient, value = torch.rand(csr.num_edges, 3), torch.randn(SOURCES, 1, 10, requires_grad=True)
    expected = weighted_sum(csr, coefficient, value)
    blame = torch.randn_like(expected)
    gradient = torch.ones(SOURCES, 1, 10)
    add_value_gradient(gradient, csr, coefficient, blame)
    torch.testing.assert_close(gradient, 1 + torch.autograd.grad(expected, value, blame)[0])


def test_messages_to_oneself_are_added_with_both_scales():
    torch.manual_seed(0)
    csr = identity(TARGETS)
    value, scales, sums = torch.randn(TARGETS, 2, 5), scales_of(csr), torch.ones(TARGETS, 2, 5)
    weight = torch.rand(TARGETS, 2)
    factor = (scales.source * scales.target)[:, None, None] * weight[:, :, None]
    add_weighted_sum(sums, csr, weight, value, scales)
    torch.testing.assert_close(sums, 1 + factor * value)
    add_value_gradient(sums, csr, weight, value, scales)
    torch.testing.assert_close(sums, 1 + 2 * factor * value)


@needs_native
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("weighted", [True, False])
def test_gated_sums_and_gradients_are_added_to_what_is_there(width, weighted):
    torch.manual_seed(width)
    csr = graph()
    own, other, rows = (torch.randn(size, width, requires_grad=True) for size in (TARGETS, SOURCES, SOURCES))
    weight = torch.rand(csr.num_edges) if weighted else None
    expected = gated_sum(csr, own, other, rows, weight)
    blame = torch.randn_like(expected)
    by_own, *wanted = torch.autograd.grad(expected, (own, other, rows), blame)
    gates = Gates(csr, *(each.detach() for each in (own, other, rows)), weight)
    sums, slopes, by_other, by_rows = (torch.ones(size, width) for size in (TARGETS, TARGETS, SOURCES, SOURCES))
    add_gated_sum(sums, slopes, gates)
    torch.testing.assert_close(sums, 1 + expected.detach())
    torch.testing.assert_close(blame * (slopes - 1), by_own, atol=1e-5, rtol=1e-4)
    add_gated_gradient(by_rows, by_other, gates, blame)
    for found, want in zip((by_other, by_rows), wanted, strict=True):
        torch.testing.assert_close(found, 1 + want, atol=1e-5, rtol=1e-4)


@needs_native
@pytest.mark.parametrize("heads", [1, 3, 8])
@pytest.mark.parametrize("width", [1, 5, 16, 24, 70])
def test_attention_is_added_to_a_state_that_is_there(heads, width):
    """Also for a target with more edges than the core takes at once, and one that had none."""
    torch.manual_seed(width)
    state, whole, seen = None, None, []
    value = torch.randn(SOURCES, heads, width)
    halves = Halves(4 * torch.randn(SOURCES, heads), 4 * torch.randn(TARGETS, heads), 0.2)
    for size in (3, 5000):
        degree = torch.randint(0, 3, (TARGETS,))
        degree[4] = size
        offsets = torch.cat([torch.zeros(1).long(), degree.cumsum(0)])
        csr = Csr(offsets, torch.randint(SOURCES, (int(offsets[-1]),)), SOURCES)
        factor = torch.rand(csr.num_edges)
        seen.append((csr, factor))
        if state is None:
            state = tuple(softmax_sums(csr, halves, value, factor=factor))
        else:
            add_softmax_sums(*state, Attended(csr, halves, value, factor, 0.0))
    targets = torch.cat([csr.targets for csr, _ in seen])
    order = torch.argsort(targets, stable=True)
    sources, factor = (torch.cat(each)[order] for each in zip(*((csr.sources, by) for csr, by in seen), strict=True))
    bounds = torch.searchsorted(targets[order], torch.arange(TARGETS + 1))
    whole = softmax_sums(Csr(bounds, sources, SOURCES), halves, value, factor=factor)
    for made, want in zip(state, whole, strict=True):
        torch.testing.assert_close(made, want)


@needs_native
@pytest.mark.parametrize("width", [24, 70])
def test_threads_give_the_same_bits(width):
    torch.manual_seed(width)
    csr = graph(4000, 4000)
    value, begun, scales = torch.randn(4000, 1, width), torch.randn(4000, 1, width), scales_of(csr)
    gates = Gates(csr, *(torch.randn(4000, width) for _ in range(3)), None)
    halves = Halves(torch.randn(4000, 2), torch.randn(4000, 2), 0.2)
    attended = Attended(csr, halves, value.expand(-1, 2, -1).contiguous(), None, 0.0)
    found = []
    for threads in (1, 2, 3):
        made = [begun.clone() for _ in range(3)] + [begun[:, 0].clone() for _ in range(4)]
        made += [torch.zeros(4000, 2), torch.ones(4000, 2), *(torch.ones(4000, 2, width) for _ in range(2))]
        made += [torch.ones(4000, 2) for _ in range(2)]
        with compute_threads(threads):
            add_weighted_sum(made[0], csr, None, value, scales)
            add_value_gradient(made[1], csr, None, value, scales)
            add_gated_sum(made[3], made[4], gates)
            add_gated_gradient(made[5], made[6], gates, value[:, 0])
            add_softmax_sums(*made[7:10], attended)
            each = {"shift": made[7], "by_each": made[8], "by_mean": made[9]}
            add_softmax_gradient((made[11], made[12], made[10]), attended, **each)
        found.append(made)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))
