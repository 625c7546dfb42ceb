"""From stored NumPy arrays to tensors, sharing memory where the array may be written to."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
import torch
from torch import Tensor

from gnnflow.graph.arrays import Array
from gnnflow.graph.batch import Block, Degrees, Features, MiniBatch
from gnnflow.kernels import Csr
from gnnflow.layers import EdgeContext, FeatureTensors, NodeContext


@dataclass(frozen=True, eq=False)
class BlockTensors:
    """A block ready to compute on. The scales of a sample, sample_scale [T] and edge_scale [E], are as in `Block`."""

    csr: Csr
    edge: EdgeContext
    sample_scale: Tensor | None
    edge_scale: Tensor | None = None

    @property
    def num_targets(self) -> int:
        """Number of targets T."""
        return self.csr.num_targets

    @cached_property
    def with_self(self) -> BlockTensors:
        """The block with an edge from each target to itself, where source t is target t."""
        return self.joined_by(torch.arange(self.num_targets, device=self.csr.sources.device))

    def joined_by(self, rows: Tensor) -> BlockTensors:
        """Return the block with one more in-edge per target, its last, from source rows [T].

        Its weight is one and its attributes are zero, as `EdgeContext.self_edges` says. sample_scale is left as it is.
        """
        csr, targets = self.csr, torch.arange(self.num_targets + 1, device=self.csr.sources.device)
        # where each target's new edge comes to lie [T], and where the edges it has do [E]
        last = csr.offsets[1:] + targets[:-1]
        others = torch.arange(csr.num_edges, device=last.device) + csr.targets
        size = csr.num_edges + self.num_targets

        def joined(column: Tensor, new: Tensor) -> Tensor:
            out = column.new_empty(size, *column.shape[1:])
            return out.index_copy_(0, others, column).index_copy_(0, last, new)

        own, edge = self.edge.self_edges(self.num_targets), self.edge
        weight = None if edge.weight is None or own.weight is None else joined(edge.weight, own.weight)
        attributes = (
            None if edge.attributes is None or own.attributes is None else joined(edge.attributes, own.attributes)
        )
        scale = self.edge_scale
        return BlockTensors(
            Csr(csr.offsets + targets, joined(csr.sources, rows), csr.num_sources),
            EdgeContext(size, weight, attributes),
            self.sample_scale,
            None if scale is None else joined(scale, scale.new_ones(self.num_targets)),
        )


@dataclass(frozen=True)
class FirstRows:
    """The first layer up to its weights: its T targets' terms, and the rows [T, H, D (+ A)] that they aggregated.

    h: the targets' own input rows, where the model adds them to what the layer gives.
    """

    target: Mapping[str, Tensor]
    aggregated: Tensor
    h: Tensor | None


@dataclass(frozen=True)
class BatchTensors:
    """A batch ready to compute on; labels None where it has none.

    It has either features, and a block for every layer, or first: the first layer was aggregated already, and blocks
    and nodes belong to the later layers.
    """

    blocks: tuple[BlockTensors, ...]
    nodes: NodeContext
    features: FeatureTensors | None
    labels: Tensor | None
    first: FirstRows | None = None


@overload
def tensor(array: Array) -> Tensor: ...
@overload
def tensor(array: Array | None) -> Tensor | None: ...
def tensor(array: Array | None) -> Tensor | None:
    """Return a tensor over the array's own memory, or over a copy where the array is read-only; None for None."""
    if array is None:
        return None
    # torch has no read-only tensors: sharing such memory would let an in-place operation write through the lock.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def shared_tensor(array: Array) -> Tensor:
    """Return a tensor over the array's own memory, read-only or not: for code known to write nothing into it."""
    return torch.from_numpy(array)


def block_tensors(block: Block) -> BlockTensors:
    """Return the block's adjacency, edge context and sample scales as tensors."""
    attributes = tensor(block.edges.attributes)
    if attributes is not None and attributes.shape[1] == 0:
        attributes = None
    return BlockTensors(
        Csr(tensor(block.edges.offsets), tensor(block.edges.sources), block.num_sources),
        EdgeContext(block.num_edges, tensor(block.edges.weight), attributes),
        tensor(block.sample_scale),
        tensor(block.edge_scale),
    )


def node_context(nodes: Degrees) -> NodeContext:
    """Return degrees and in-weights as float32 tensors [N]."""
    return NodeContext(
        tensor(nodes.in_degree).float(), tensor(nodes.out_degree).float(), tensor(nodes.in_weight).float()
    )


def feature_tensors(features: Features) -> FeatureTensors:
    """Return the input features as tensors, in the form they are stored in."""
    return FeatureTensors(
        features.width,
        dense=tensor(features.dense),
        offsets=tensor(features.offsets),
        index=tensor(features.index),
        value=tensor(features.value),
    )


def batch_tensors(batch: MiniBatch) -> BatchTensors:
    """Return the whole batch as tensors. Meant for the loading side of a pipeline: it computes nothing.

    Layers that have one block in common share its tensors too, and what is derived of them.
    """
    assert isinstance(batch.features, Features), "models read nodes of one type"
    made = {id(block): block_tensors(block) for block in batch.blocks}
    return BatchTensors(
        tuple(made[id(block)] for block in batch.blocks),
        node_context(batch.nodes),
        feature_tensors(batch.features),
        tensor(batch.labels),
    )


# torch says once per process that it has no read-only tensors; `shared_tensor` knows.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    shared_tensor(np.frombuffer(bytes(8)))
