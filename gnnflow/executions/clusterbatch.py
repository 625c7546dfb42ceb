"""A model over a few clusters of the graph: one block of all their rows, which every layer reads.

What a layer computes of a row is what the next one reads of it, whether the row is a target, another node of a cluster
or of the boundary. The mask comes last: the batch's targets are its first rows, and the last layer computes these
alone. In-edges that the batch lacks are made up for by the block's scale (`gnnflow.graphfeature.clusters`).

Shapes: B targets of the batch, n rows, C outputs.
"""

from __future__ import annotations

from torch import Tensor

from gnnflow.executions import minibatch
from gnnflow.executions.tensors import BatchTensors
from gnnflow.graph.arrays import IntArray
from gnnflow.graph.batch import Block, Degrees, MiniBatch, NodeFeatures
from gnnflow.layers import Model


def cluster_batch(
    block: Block, *, nodes: Degrees, features: NodeFeatures, targets: IntArray, num_layers: int
) -> MiniBatch:
    """Return clusters as a mini-batch whose layers have one block in common. nodes and features: of its n rows.

    targets: dense ids of the first rows [B].
    """
    blocks = (block,) * (num_layers - 1) + (block.first(len(targets)),)
    return MiniBatch(blocks, nodes, features, targets)


def forward(model: Model, batch: MiniBatch | BatchTensors) -> Tensor:
    """Return the logits of the batch's targets [B, C], in their order; as `minibatch.forward` does."""
    return minibatch.forward(model, batch)
