"""Every layer trains under `train.precision: bfloat16` as it does in float32, and repeats its bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from gnnflow.executions import minibatch
from gnnflow.executions.table import EXECUTIONS
from gnnflow.kernels.device import compute_threads
from tests.contracts.in_memory import GraphShape, mini_batch, whole_graph
from tests.contracts.test_executions import LAYER_OBJECTS, model_for

RNG = np.random.default_rng(1)
SHAPE = GraphShape(60, tuple(map(tuple, RNG.integers(0, 60, (400, 2)).tolist())), seed=1, weighted=True)
ARCHITECTURE = {"head": "linear", "encoder": "linear", "layers": 2, "dropout": 0.0, "norm": "layer", "residual": True}
TRAINED = [name for name, layer in LAYER_OBJECTS.items() if EXECUTIONS["minibatch"].supports(layer) is None]
STEPS = 10


def losses_and_gradients(layer, *, half):
    """Train a small model on random labels; return the losses, and the first step's gradients laid end to end."""
    graph = whole_graph(SHAPE)
    targets = np.arange(SHAPE.num_nodes)
    labels = torch.from_numpy(np.random.default_rng(2).integers(0, 3, len(targets)))
    batch = mini_batch(graph, targets, per_layer=[graph.adjacency] * 2)
    model = model_for(layer, ARCHITECTURE, SHAPE).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses, first = [], None
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            logits = minibatch.forward(model, batch).float()
        loss = functional.cross_entropy(logits, labels)
        loss.backward()
        if first is None:
            first = torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])
        optimizer.step()
        losses.append(loss.item())
    return losses, first


@pytest.mark.table(6)
@pytest.mark.parametrize("layer", TRAINED)
def test_a_layer_trains_in_bfloat16_as_in_float32_and_repeats_its_bits(layer):
    with compute_threads(1):  # on a graph this small a second thread only makes the first one wait
        wide, exact = losses_and_gradients(layer, half=False)
        narrow, rounded = losses_and_gradients(layer, half=True)
        again, repeated = losses_and_gradients(layer, half=True)
    assert narrow == again
    assert torch.equal(rounded, repeated)
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    assert narrow[0] == pytest.approx(wide[0], rel=0.02)
    assert narrow[-1] == pytest.approx(wide[-1], rel=0.05)
    assert narrow[-1] < 0.9 * narrow[0]
    # a median takes another message altogether where rounding changes which one is in the middle
    bound = 0.15 if layer == "own-median" else 0.1
    assert float((rounded - exact).norm() / exact.norm()) < bound
