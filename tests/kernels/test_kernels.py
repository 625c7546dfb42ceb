"""Every kernel of the table computes what the plain definition computes, and so do its gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.kernels import TABLE, Csr, choose, identity, segment_sum, shifted_exponentials
from gnnflow.kernels import table as kernels

FUSED = next(kernel for kernel in TABLE if kernel.name == "fused")
PLAIN = next(kernel for kernel in TABLE if kernel.name == "reference")


@st.composite
def adjacencies(draw):
    """Multigraphs with empty targets, from none to more edges than there are pairs."""
    num_targets, num_sources = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    edge = st.tuples(st.integers(0, num_targets - 1), st.integers(0, num_sources - 1))
    edges = sorted(draw(st.lists(edge, max_size=30)), key=lambda pair: pair[0])
    targets = torch.tensor([target for target, _ in edges], dtype=torch.int64)
    offsets = torch.searchsorted(targets, torch.arange(num_targets + 1))
    return Csr(offsets, torch.tensor([source for _, source in edges], dtype=torch.int64), num_sources)


def random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


@given(csr=adjacencies(), heads=st.integers(1, 3), shared=st.booleans(), weighted=st.booleans())
def test_weighted_sum_and_its_gradients_equal_the_definition(csr, heads, shared, weighted):
    coefficient = random(csr.num_edges, heads, seed=1) if weighted else None
    value = random(csr.num_sources, 1 if shared and weighted else heads, 4, seed=2)
    inputs = [value] if coefficient is None else [value, coefficient]
    expected, actual = (kernel.weighted_sum(csr, coefficient, value) for kernel in (PLAIN, FUSED))
    torch.testing.assert_close(actual, expected)
    blame = torch.randn_like(expected)
    wanted, found = (torch.autograd.grad((out * blame).sum(), inputs) for out in (expected, actual))
    torch.testing.assert_close(found, wanted)


@given(csr=adjacencies(), heads=st.integers(1, 2), weighted=st.booleans())
def test_segment_max_equals_the_definition_and_is_minus_infinity_without_edges(csr, heads, weighted):
    coefficient = random(csr.num_edges, heads, seed=1).detach() if weighted else None
    value = random(csr.num_sources, heads, 3, seed=2)
    expected, actual = (kernel.segment_max(csr, coefficient, value) for kernel in (PLAIN, FUSED))
    torch.testing.assert_close(actual, expected)
    assert bool((actual[csr.degree == 0] == -torch.inf).all())
    reached = csr.degree > 0
    wanted, found = (torch.autograd.grad(out[reached].sum(), value)[0] for out in (expected, actual))
    torch.testing.assert_close(found, wanted)


@given(csr=adjacencies(), trailing=st.sampled_from([(), (2,), (2, 3)]))
def test_gathers_and_their_gradients_equal_the_definition(csr, trailing):
    for name, rows in (("gather_sources", csr.num_sources), ("gather_targets", csr.num_targets)):
        term = random(rows, *trailing)
        expected, actual = (getattr(kernel, name)(csr, term) for kernel in (PLAIN, FUSED))
        assert torch.equal(actual, expected)
        blame = torch.randn_like(expected)
        wanted, found = (torch.autograd.grad((out * blame).sum(), term)[0] for out in (expected, actual))
        torch.testing.assert_close(found, wanted)


@settings(max_examples=15)
@given(csr=adjacencies())
def test_weighted_sum_gradients_equal_finite_differences(csr):
    coefficient, value = random(csr.num_edges, 2, seed=1), random(csr.num_sources, 2, 2, seed=2)
    assert torch.autograd.gradcheck(lambda c, v: FUSED.weighted_sum(csr, c, v), (coefficient, value))


@given(csr=adjacencies(), magnitude=st.sampled_from([1.0, 1e4]))
def test_exponentials_lie_in_the_unit_interval_and_divide_to_a_softmax(csr, magnitude):
    logit = random(csr.num_edges, 2, seed=3).detach() * magnitude
    maximum, weight = shifted_exponentials(csr, logit)
    assert bool((weight >= 0).all())
    assert bool((weight <= 1).all())
    total = segment_sum(csr, weight)
    for target in range(csr.num_targets):
        edges = csr.targets == target
        if edges.any():
            torch.testing.assert_close(weight[edges] / total[target], logit[edges].softmax(0))
        else:
            assert bool((maximum[target] == -torch.inf).all())


@given(csr=adjacencies(), cut=st.floats(0, 1))
def test_parts_of_an_adjacency_sum_to_the_whole(csr, cut):
    coefficient, value = random(csr.num_edges, 1, seed=1).detach(), random(csr.num_sources, 1, 3, seed=2).detach()
    every, middle = slice(0, csr.num_targets), int(cut * csr.num_edges)
    first, rest = csr.part(every, slice(0, middle)), csr.part(every, slice(middle, csr.num_edges))
    parts = (
        kernels.weighted_sum(first, coefficient[:middle], value),
        kernels.weighted_sum(rest, coefficient[middle:], value),
    )
    torch.testing.assert_close(parts[0] + parts[1], kernels.weighted_sum(csr, coefficient, value))


def test_an_identity_adjacency_needs_no_gather_and_gives_the_same():
    csr = identity(4)
    general = Csr(csr.offsets, csr.sources, 4)
    coefficient, value = random(4, 2, seed=1), random(4, 2, 3, seed=2)
    assert [choose(each, value).name for each in (csr, general)] == ["elementwise", "fused"]
    for operation in (kernels.weighted_sum, kernels.segment_max):
        torch.testing.assert_close(operation(csr, coefficient, value), operation(general, coefficient, value))
    assert torch.equal(kernels.gather_targets(csr, value), value)


def test_half_precision_falls_to_the_plain_definition():
    csr = Csr(torch.tensor([0, 2]), torch.tensor([0, 1]), 2)
    value = torch.ones(2, 1, 1, dtype=torch.bfloat16)
    assert choose(csr, value).name == "reference"
    assert kernels.weighted_sum(csr, None, value).item() == 2.0


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_have_the_same_bits_whatever_the_number_of_threads(threads):
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(50, (5000,), generator=generator).sort().values
    csr = Csr(
        torch.searchsorted(targets, torch.arange(51)), torch.randint(300, (5000,), generator=generator), num_sources=300
    )
    coefficient = torch.randn(5000, 2, generator=generator, requires_grad=True)
    value = torch.randn(300, 2, 16, generator=generator, requires_grad=True)
    before, runs = torch.get_num_threads(), []
    try:
        for count in (1, threads):
            torch.set_num_threads(count)
            sums = kernels.weighted_sum(csr, coefficient, value)
            runs.append((sums, *torch.autograd.grad(sums.square().sum(), (coefficient, value))))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(first, second) for first, second in zip(*runs, strict=True))
