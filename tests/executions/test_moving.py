"""What moves to a device arrives whole, and on the CPU nothing is copied."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from gnnflow.executions.moving import Mover, mapped, tensors_of
from gnnflow.executions.tensors import BatchTensors, BlockTensors, LayerTensors, RelationTensors
from gnnflow.kernels import Csr
from gnnflow.layers import EdgeContext, FeatureTensors, NodeContext
from gnnflow.layers.terms import TypeRows


def batch() -> BatchTensors:
    csr = Csr(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]), 2)
    block = BlockTensors(csr, EdgeContext(3, torch.ones(3), None), None, torch.ones(3))
    nodes = NodeContext(*(torch.ones(2) for _ in range(3)))
    layer = LayerTensors((RelationTensors(block),), TypeRows(2), 2)
    return BatchTensors((layer,), nodes, FeatureTensors(4, dense=torch.randn(2, 4)), None)


def test_on_the_cpu_a_batch_is_handed_over_as_it_is():
    mover, given, sorted_ = Mover(), batch(), []
    assert not mover.leaves_the_cpu
    assert mover.pinned(given) is given
    assert mover.arrived(mover.begin(given, then=sorted_.append)) is given
    assert sorted_ == [given]


def test_every_tensor_of_a_batch_is_moved_and_what_is_derived_stays_behind():
    given = batch()
    _ = given.blocks[0].relations[0].block.csr.transposed
    held = len(list(tensors_of(given)))
    moved = mapped(given, torch.clone)
    assert isinstance(moved.blocks[0].relations[0].block.csr, Csr)
    assert moved.blocks[0].relations[0].block.csr.num_sources == 2
    assert moved.labels is None
    assert "transposed" not in vars(moved.blocks[0].relations[0].block.csr)
    found = list(tensors_of(moved))
    assert len(found) == 8 < held
    assert not {each.data_ptr() for each in found} & {each.data_ptr() for each in tensors_of(given)}
    for one, other in zip(found, list(tensors_of(mapped(given, lambda tensor: tensor))), strict=True):
        assert torch.equal(one, other)


def test_tuples_and_mappings_are_moved_in_their_order():
    @dataclass(frozen=True)
    class Held:
        rows: dict[str, torch.Tensor]
        pair: tuple[torch.Tensor, int]

    moved = mapped(Held({"a": torch.ones(1), "b": torch.zeros(2)}, (torch.ones(3), 7)), torch.Tensor.double)
    assert list(moved.rows) == ["a", "b"]
    assert [each.dtype for each in tensors_of(moved)] == [torch.float64] * 3
    assert moved.pair[1] == 7


def test_an_edge_that_leads_nowhere_is_refused_before_a_card_reads_it():
    broken = Csr(torch.tensor([0, 1]), torch.tensor([5]), 2)
    with pytest.raises(IndexError, match="outside of its rows"):
        Mover(torch.device("cuda", 0)).pinned(broken)
