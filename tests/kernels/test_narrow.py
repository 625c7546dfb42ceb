"""Numbers of edges in four bytes, as files have them, give the bits of those in eight."""

from __future__ import annotations

from functools import cached_property

import pytest
import torch

from gnnflow import kernels
from gnnflow.kernels import Csr
from gnnflow.native import core

pytestmark = pytest.mark.skipif(core() is None, reason="the native core is not built here")


class Narrow(Csr):
    """An adjacency whose numbers have four bytes each."""

    @cached_property
    def numbers(self):
        """The sources in four bytes each."""
        return self.sources.to(torch.int32)

    @cached_property
    def by_source(self):
        """The order by source, in four bytes each."""
        return narrow(super().by_source)

    @cached_property
    def transposed(self):
        """The reversed adjacency, in four bytes each."""
        return narrow(super().transposed)


def narrow(csr):
    return Narrow(csr.offsets, csr.sources, csr.num_sources)


def weighted(csr, value, half, weight):
    return kernels.weighted_sum(csr, weight, value)


def largest(csr, value, half, weight):
    return kernels.segment_max(csr, weight.detach(), value)


def gated(csr, value, half, weight):
    return kernels.gated_sum(csr, half.flatten(1), value.flatten(1) * 0.5, value.flatten(1), None)


@pytest.mark.parametrize("summed", [weighted, largest, gated])
def test_four_bytes_a_number_give_the_same_bits(summed):
    generator = torch.Generator().manual_seed(3)
    offsets = torch.tensor([0, 4, 4, 37, 60])
    csr = Csr(offsets, torch.randint(0, 9, (60,), generator=generator), 9)
    found = []
    for each in (csr, narrow(csr)):
        generator.manual_seed(5)
        shapes = (9, 2, 24), (4, 2, 24), (60, 2)
        leaves = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
        out = summed(each, *leaves)
        (out * torch.randn(out.shape, generator=generator)).sum().backward()
        found.append([out, *(leaf.grad for leaf in leaves if leaf.grad is not None)])
    assert len(found[0]) > 1
    assert all(torch.equal(wide, four) for wide, four in zip(*found, strict=True))
