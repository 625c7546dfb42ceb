"""A model over one mini-batch: one pruned block per layer, each layer's rows a prefix of the one before.

Where nothing before the first layer's weights depends on them (`aggregates_ahead`), whoever prepares a batch
aggregates that layer's inputs too, and reads them where they lie. The features of the last hop, by far the most rows of
a batch, are then neither copied nor mapped nor given a gradient.

Shapes: B targets of the batch, T nodes the first layer computes, C outputs, W width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnflow.executions.base import first_rows, takes_relu, updated_rows
from gnnflow.executions.propagate import finished, partial_state, sort_edges, takes_self, whole_rows
from gnnflow.executions.relations import run_layer
from gnnflow.executions.tensors import (
    BatchTensors,
    FirstRows,
    batch_tensors,
    block_tensors,
    layer_tensors,
    node_context,
    numbers_of,
    shared_tensor,
    tensor,
    types_of,
)
from gnnflow.graph.batch import Degrees, Features, InPlaceBatch, MiniBatch, NodeFeatures
from gnnflow.graph.errors import LayerError
from gnnflow.layers import Model, Terms


def forward(model: Model, batch: MiniBatch | BatchTensors) -> Tensor:
    """Return the logits of the batch's targets [B, C], in their order.

    In training mode dropout reads torch's global generator; seed it to repeat a step. Raises LayerError where the batch
    was built for another number of layers.
    """
    return model.predict(layer_outputs(model, batch))


def layer_outputs(model: Model, batch: MiniBatch | BatchTensors) -> list[Tensor]:
    """Return the batch's targets' rows [B, W] after each layer, in layer order."""
    tensors = batch if isinstance(batch, BatchTensors) else batch_tensors(batch, model.inputs.schema)
    num_layers = len(tensors.blocks) + (tensors.first is not None)
    if num_layers != model.num_layers:
        raise LayerError(
            f"the model has {model.num_layers} layers and the batch {num_layers} blocks",
            where="mini-batch",
            fix="Build the batch for as many layers as the model has.",
        )
    # rows that every layer has computed so far, the first layer's if it was aggregated already
    rows = []
    if tensors.first is None:
        assert tensors.features is not None
        h = model.encode(tensors.features, tensors.nodes)
    else:
        first = tensors.first
        shortcut = None if first.h is None else model.shortcut(0, first.h)
        relu = takes_relu(model, 0, is_mapped=False)
        layer = model.relations(0).layer(0)
        out = updated_rows(layer, target=first.target, aggregated=first.aggregated, is_mapped=False, relu=relu)
        h = model.post(0, out, shortcut, is_activated=relu)
        rows.append(h)
    for index, block in enumerate(tensors.blocks, len(rows)):
        # The sources of a block are the targets of the one before [S, W].
        assert len(h) == block.num_sources
        h = run_layer(model, index, h=h, nodes=tensors.nodes.prefix(len(h)), block=block)
        rows.append(h)
    return [first_rows(each, len(h)) for each in rows]


def sort_for_backward(model: Model, batch: BatchTensors) -> None:
    """Compute, and keep in the batch, the orders of edges that the backward pass of a model reads."""
    for index, held in enumerate(batch.blocks, model.num_layers - len(batch.blocks)):
        for layer, part in zip(model.relations(index).layers, held.relations, strict=True):
            sort_edges(layer, part.block.with_self if takes_self(layer, part.block) else part.block)


def aggregates_ahead(model: Model, *, training: bool) -> bool:
    """Return whether what the first layer aggregates is the same in every step, so that it may be prepared."""
    layer = model.relations(0).only
    if layer is None or model.encoder is not None:
        return False
    draws = training and (model.config.dropout > 0.0 or layer.coefficient_dropout > 0.0)
    return layer.fixed_terms and layer.uses_coefficients and not draws


@torch.no_grad()
def first_terms(model: Model, features: NodeFeatures, nodes: Degrees) -> Terms:
    """Return the first layer's terms of all nodes of a neighbourhood: once for all batches that are cut from it.

    features: dense, and never written into. For models that `aggregates_ahead` accepts.
    """
    assert isinstance(features, Features)
    rows = numbers_of(features)
    assert rows is not None
    return model.relations(0).layer(0).transform(shared_tensor(rows), node_context(nodes))


@torch.no_grad()
def prepared(model: Model, terms: Terms, batch: InPlaceBatch, *, features: NodeFeatures) -> BatchTensors:
    """Return a batch whose first layer is aggregated.

    features: of its neighbourhood. terms: as `first_terms` gave them for the same.
    """
    layer, block, rows = model.relations(0).layer(0), block_tensors(batch.first), tensor(batch.rows)
    # terms of the T targets
    target = {name: term.index_select(0, rows) for name, term in terms.target.items()}
    if takes_self(layer, block):
        joined = block.joined_by(rows)
        aggregated = whole_rows(layer, source=terms.source, target=target, block=joined)
    elif not layer.include_self:
        aggregated = whole_rows(layer, source=terms.source, target=target, block=block)
    else:
        own = {name: term.index_select(0, rows) for name, term in terms.source.items()}
        state = partial_state(layer, source=terms.source, target=target, block=block)
        aggregated = finished(layer, state, source=own, target=target, edge=block.edge)
    assert isinstance(features, Features)
    h = tensor(numbers_of(features.take(batch.rows))) if model.config.residual else None
    types, schema = types_of(batch.nodes), model.inputs.schema
    return BatchTensors(
        tuple(layer_tensors(each, types[: each.num_sources], schema) for each in batch.blocks),
        node_context(batch.nodes),
        features=None,
        labels=None,
        first=FirstRows(target, aggregated, h),
    )
