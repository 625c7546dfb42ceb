"""The streamed execution as one step of training: logits, and a backward pass that reads the graph again.

Shapes: T targets, C outputs.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gnnflow.executions.streamed.backward import gradients
from gnnflow.executions.streamed.graph import StreamedGraph
from gnnflow.executions.streamed.run import StreamedRun
from gnnflow.graph.arrays import IntArray
from gnnflow.layers import Model


def forward(model: Model, graph: StreamedGraph, targets: IntArray) -> Tensor:
    """Return the logits [T, C] of some nodes, given by their rows, ascending.

    The backward pass of what it gives reads the graph again. In training mode dropout reads torch's global generator;
    seed it to repeat a step.
    """
    learned = [each for each in model.parameters() if each.requires_grad]
    if torch.is_grad_enabled() and learned:
        return cast("Tensor", _Streamed.apply(model, graph, targets, *learned))  # type: ignore[no-untyped-call]
    run = StreamedRun(model, graph, targets, keeps=False)
    try:
        return run.logits()
    finally:
        run.release()


class _Streamed(Function):
    """Logits [T, C], whose backward pass gives the gradients of the model's parameters."""

    @staticmethod
    def forward(ctx: Any, model: Model, graph: StreamedGraph, targets: IntArray, *_: Tensor) -> Tensor:
        ctx.run = StreamedRun(model, graph, targets, keeps=True)
        return cast("Tensor", ctx.run.logits())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        try:
            return (None, None, None, *gradients(ctx.run, gradient))
        finally:
            ctx.run.release()
