"""A model over one mini-batch: one pruned block per layer, each layer's rows a prefix of the one before.

Shapes: B targets of the batch, C outputs, W width.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnflow.executions.propagate import propagate
from gnnflow.executions.tensors import BatchTensors, BlockTensors, batch_tensors
from gnnflow.graph.batch import MiniBatch
from gnnflow.graph.errors import LayerError
from gnnflow.layers import Model, NodeContext


@dataclass(frozen=True)
class Scored:
    """logits [B, C] and embedding [B, W] of the batch's targets."""

    logits: Tensor
    embedding: Tensor


def forward(model: Model, batch: MiniBatch | BatchTensors) -> Tensor:
    """Return the logits of the batch's targets [B, C], in their order.

    In training mode dropout reads torch's global generator; seed it to repeat a step. Raises LayerError where the batch
    was built for another number of layers.
    """
    return model.predict(layer_outputs(model, batch))


def score(model: Model, batch: MiniBatch | BatchTensors) -> Scored:
    """Return logits and embeddings of the batch's targets."""
    outputs = layer_outputs(model, batch)
    return Scored(model.predict(outputs), model.embedding(outputs))


def layer_outputs(model: Model, batch: MiniBatch | BatchTensors) -> list[Tensor]:
    """Return the batch's targets' rows [B, W] after each layer, in layer order."""
    tensors = batch if isinstance(batch, BatchTensors) else batch_tensors(batch)
    if len(tensors.blocks) != model.num_layers:
        raise LayerError(
            f"the model has {model.num_layers} layers and the batch {len(tensors.blocks)} blocks",
            where="flat.hops",
            fix="Make flat.hops equal model.layers.",
        )
    num_targets = tensors.blocks[-1].num_targets
    h = model.encode(tensors.features)
    outputs = []
    for index, block in enumerate(tensors.blocks):
        h = _layer_output(model, index, h, tensors.nodes, block)
        outputs.append(h[:num_targets])
    return outputs


def _layer_output(model: Model, index: int, h: Tensor, nodes: NodeContext, block: BlockTensors) -> Tensor:
    assert len(h) == block.csr.num_sources
    layer = model.layer(index)
    source, target = layer.transform(model.pre(index, h), nodes.prefix(block.csr.num_sources))
    own = {name: rows[: block.num_targets] for name, rows in target.items()}
    aggregated = propagate(layer, source=source, target=own, block=block)
    return model.post(index, layer.update(own, aggregated))
