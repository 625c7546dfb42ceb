"""A model over one mini-batch: one pruned block per layer, each layer's rows a prefix of the one before.

Shapes: B targets of the batch, C outputs, W width.
"""

from __future__ import annotations

from torch import Tensor

from gnnflow.executions.base import OneBlock, run_layer
from gnnflow.executions.tensors import BatchTensors, batch_tensors
from gnnflow.graph.batch import MiniBatch
from gnnflow.graph.errors import LayerError
from gnnflow.layers import Model


def forward(model: Model, batch: MiniBatch | BatchTensors) -> Tensor:
    """Return the logits of the batch's targets [B, C], in their order.

    In training mode dropout reads torch's global generator; seed it to repeat a step. Raises LayerError where the batch
    was built for another number of layers.
    """
    return model.predict(layer_outputs(model, batch))


def layer_outputs(model: Model, batch: MiniBatch | BatchTensors) -> list[Tensor]:
    """Return the batch's targets' rows [B, W] after each layer, in layer order."""
    tensors = batch if isinstance(batch, BatchTensors) else batch_tensors(batch)
    if len(tensors.blocks) != model.num_layers:
        raise LayerError(
            f"the model has {model.num_layers} layers and the batch {len(tensors.blocks)} blocks",
            where="mini-batch",
            fix="Build the batch for as many layers as the model has.",
        )
    num_targets = tensors.blocks[-1].num_targets
    h = model.encode(tensors.features)
    outputs = []
    for index, block in enumerate(tensors.blocks):
        # The sources of a block are the targets of the one before [S, W].
        assert len(h) == block.csr.num_sources
        h = run_layer(model, index, h=h, nodes=tensors.nodes.prefix(len(h)), delivery=OneBlock(block))
        outputs.append(h[:num_targets])
    return outputs
