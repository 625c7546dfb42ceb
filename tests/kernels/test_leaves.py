"""A sum over the leaves of instances, and its gradient, are those of its definition."""

from __future__ import annotations

import pytest
import torch

from gnnflow.kernels import UNSCALED, Csr, Instances, Scales, gather_sources, leaf_sum
from gnnflow.kernels.native import accepts_leaves
from tests.kernels.test_half_precision import needs_native

TARGETS, SOURCES, WIDTH = 5, 6, 3


def instances_of(counts, sizes):
    edges = int(counts.sum())
    roots = Csr(torch.cat([torch.zeros(1).long(), counts.cumsum(0)]), torch.arange(edges), edges, is_edgewise=True)
    offsets = torch.cat([torch.zeros(1).long(), sizes.cumsum(0)])
    return Instances(roots, Csr(offsets, torch.randint(SOURCES, (int(sizes.sum()),)), SOURCES))


def varying():
    counts = torch.tensor([3, 0, 1, 4, 2])
    return instances_of(counts, torch.randint(0, 4, (int(counts.sum()),)))


def of_two():
    counts = torch.tensor([3, 0, 1, 4, 2])
    return instances_of(counts, torch.full((int(counts.sum()),), 2))


def defined(instances, coefficient, value, *, mean):
    """Every leaf's row written out, added up per instance, then per target."""
    edges = instances.roots.num_edges
    rows = value[instances.leaves.sources]
    of_edges = rows.new_zeros(edges, *rows.shape[1:]).index_add(0, instances.leaves.targets, rows)
    if mean:
        of_edges = of_edges / instances.leaves.degree.clamp(min=1)[:, None, None]
    messages = of_edges if coefficient is None else coefficient[:, :, None] * of_edges
    return messages.new_zeros(TARGETS, *messages.shape[1:]).index_add(0, instances.roots.targets, messages)


@pytest.mark.parametrize("made", [varying, of_two])
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize(("heads", "value_heads"), [(0, 1), (0, 2), (1, 1), (4, 1), (4, 4)])
def test_the_sum_and_its_gradient_are_those_of_every_leaf_written_out(made, mean, heads, value_heads):
    torch.manual_seed(1)
    instances = made()
    value = torch.randn(SOURCES, value_heads, WIDTH, requires_grad=True)
    coefficient = torch.randn(instances.roots.num_edges, heads, requires_grad=True) if heads else None
    inputs = [each for each in (coefficient, value) if each is not None]
    found, expected = (
        leaf_sum(instances, coefficient, value, mean=mean),
        defined(instances, coefficient, value, mean=mean),
    )
    torch.testing.assert_close(found, expected)
    blame = torch.randn_like(expected)
    pairs = zip(torch.autograd.grad(found, inputs, blame), torch.autograd.grad(expected, inputs, blame), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other)


def test_factors_of_leaves_and_targets_are_multiplied_on_the_way():
    instances, value = of_two(), torch.randn(SOURCES, 1, WIDTH)
    by_source, by_target = torch.rand(SOURCES), torch.rand(TARGETS)
    found = leaf_sum(instances, None, value, Scales(by_source, by_target), mean=True)
    expected = defined(instances, None, value * by_source[:, None, None], mean=True) * by_target[:, None, None]
    torch.testing.assert_close(found, expected)


@needs_native
def test_rows_of_one_head_under_many_have_a_gradient_of_their_own_width():
    instances, value = of_two(), torch.randn(SOURCES, 1, WIDTH)
    many = torch.randn(instances.roots.num_edges, 4)
    assert accepts_leaves(instances, many, value)
    assert not accepts_leaves(instances, many[:, :1], value)
    assert not accepts_leaves(instances, many, value.expand(-1, 4, -1))
    assert not accepts_leaves(instances, many, value.double())


def test_a_part_of_the_instances_gives_that_part_of_the_sum():
    instances, value = varying(), torch.randn(SOURCES, 1, WIDTH)
    edges = instances.roots.num_edges
    halves = [instances.part(slice(0, TARGETS), run) for run in (slice(0, 4), slice(4, edges))]
    parts = [leaf_sum(half, None, value, UNSCALED, mean=True) for half in halves]
    torch.testing.assert_close(parts[0] + parts[1], leaf_sum(instances, None, value, mean=True))


def test_edges_that_are_their_own_sources_are_gathered_without_a_copy():
    rows = torch.randn(7, 2)
    assert gather_sources(Csr(torch.tensor([0, 7]), torch.arange(7), 7, is_edgewise=True), rows) is rows
