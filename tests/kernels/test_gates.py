"""A sum through gates, and its gradients, are those of its definition."""

from __future__ import annotations

import pytest
import torch

from gnnflow.kernels import Csr, fuses_gates, gated_sum
from gnnflow.kernels.device import compute_threads
from tests.kernels.test_half_precision import needs_native

TARGETS, SOURCES = 30, 20


def graph():
    """Some targets without in-edges, one with many, some edges twice."""
    degree = torch.randint(0, 5, (TARGETS,))
    degree[3], degree[7] = 0, 60
    offsets = torch.cat([torch.zeros(1).long(), degree.cumsum(0)])
    return Csr(offsets, torch.randint(SOURCES, (int(offsets[-1]),)), SOURCES)


def operands(width, dtype=torch.float32):
    return [(3.0 * torch.randn(rows, width, dtype=dtype)).requires_grad_() for rows in (TARGETS, SOURCES, SOURCES)]


def defined(csr, own, other, rows, weight):
    gates = torch.sigmoid(own[csr.targets] + other[csr.sources])
    passed = gates * rows[csr.sources] * (1.0 if weight is None else weight[:, None])
    return passed.new_zeros(TARGETS, rows.shape[1]).index_add(0, csr.targets, passed)


@needs_native
@pytest.mark.parametrize("width", [1, 16, 21, 64, 100])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_core_gives_the_sums_and_gradients_of_the_definition(width, weighted):
    torch.manual_seed(width)
    csr, given = graph(), operands(width)
    weight = torch.rand(csr.num_edges) if weighted else None
    assert fuses_gates(csr, given[2])
    found, expected = gated_sum(csr, *given, weight), defined(csr, *given, weight)
    torch.testing.assert_close(found, expected)
    blame = torch.randn_like(expected)
    pairs = zip(torch.autograd.grad(found, given, blame), torch.autograd.grad(expected, given, blame), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_without_the_core_they_are_too():
    torch.manual_seed(0)
    csr, given = graph(), operands(5, torch.float64)
    assert not fuses_gates(csr, given[2])
    weight = torch.rand(csr.num_edges, dtype=torch.float64)
    torch.testing.assert_close(gated_sum(csr, *given, weight), defined(csr, *given, weight))
    assert torch.autograd.gradcheck(lambda *each: gated_sum(csr, *each, weight), given)


@needs_native
def test_halves_in_half_precision_are_widened():
    torch.manual_seed(2)
    csr, (own, other, rows) = graph(), operands(16)
    narrow = [each.detach().bfloat16().requires_grad_() for each in (own, other)]
    found = gated_sum(csr, *narrow, rows)
    torch.testing.assert_close(found, defined(csr, *(each.float() for each in narrow), rows, None))
    assert [each.dtype for each in torch.autograd.grad(found.sum(), narrow)] == [torch.bfloat16] * 2


@needs_native
def test_gates_far_open_or_shut_have_no_odd_values():
    csr = Csr(torch.tensor([0, 4]), torch.arange(4), 4)
    other = torch.tensor([[200.0], [-200.0], [torch.inf], [-torch.inf]], requires_grad=True)
    own, rows = (
        torch.zeros(1, 1, requires_grad=True),
        torch.tensor([[1.0], [10.0], [100.0], [1000.0]], requires_grad=True),
    )
    found = gated_sum(csr, own, other, rows)
    assert found.item() == 101.0
    found.backward()
    assert rows.grad.flatten().tolist() == [1.0, 0.0, 1.0, 0.0]
    assert other.grad.flatten().tolist() == [0.0, 0.0, 0.0, 0.0]


@needs_native
def test_threads_give_the_same_bits():
    torch.manual_seed(1)
    offsets = torch.cat([torch.zeros(1).long(), torch.randint(0, 9, (4000,)).cumsum(0)])
    csr = Csr(offsets, torch.randint(4000, (int(offsets[-1]),)), 4000)
    given = [torch.randn(4000, 70, requires_grad=True) for _ in range(3)]
    found = []
    for threads in (1, 3):
        with compute_threads(threads):
            found.append(torch.autograd.grad(gated_sum(csr, *given).square().sum(), given))
    assert all(map(torch.equal, *found))
