"""From stored NumPy arrays to tensors, sharing memory where the array may be written to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

from gnnflow.graph.arrays import Array
from gnnflow.graph.batch import Block, Degrees, Features, MiniBatch
from gnnflow.kernels import Csr
from gnnflow.layers import EdgeContext, FeatureTensors, NodeContext


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class BatchTensors:
    """A `MiniBatch` ready to compute on; labels None where it has none."""

    blocks: tuple[BlockTensors, ...]
    nodes: NodeContext
    features: FeatureTensors
    labels: Tensor | None


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
    """Return the whole batch as tensors. Meant for the loading side of a pipeline: it computes nothing."""
    return BatchTensors(
        tuple(block_tensors(block) for block in batch.blocks),
        node_context(batch.nodes),
        feature_tensors(batch.features),
        tensor(batch.labels),
    )
