"""How what a node gets from each of its relations becomes one row: the topmost level of aggregation.

Each takes the rows that the relations into one type give its nodes, and no other: a node's row is joined from its own
alone, so no execution changes the result by how it cuts the graph.

Shapes: T targets, R relations into their type, W width.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gnnflow.config.model_section import Joins
from gnnflow.kernels import empty_rows

ATTENTION_WIDTH = 128
"""Width of the semantic attention's hidden rows, as in section 5.3 of the paper on HAN."""


@final
class SemanticAttention(nn.Module):
    """A weighted mean of a node's rows, the weights being a softmax over its relations of q . tanh(W z + b).

    Equations 7-9 of HAN (Wang et al. 2019), with weights of each node's own: see `han.py`.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, ATTENTION_WIDTH)
        self.query = nn.Linear(ATTENTION_WIDTH, 1, bias=False)
        for linear in (self.linear, self.query):
            nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, rows: Sequence[Tensor]) -> Tensor:
        """Return the weighted means [T, W]."""
        # a score of each relation's row [T, R], from one relation after the other: their rows stay where they are
        scores = torch.cat([self.query(torch.tanh(self.linear(each))) for each in rows], 1)
        share = torch.softmax(scores, 1)
        if any(each.dtype != torch.float32 for each in (share, *rows)):
            return (share[:, :, None] * torch.stack(list(rows), 1)).sum(1)
        mixed: Tensor = _Mixed.apply(share, *rows)  # type: ignore[no-untyped-call]
        return mixed


class _Mixed(torch.autograd.Function):
    """The sum of rows [T, W] of R relations, each weighed by a column of shares [T, R], without a copy of any."""

    @staticmethod
    def forward(ctx: Any, share: Tensor, *rows: Tensor) -> Tensor:
        ctx.save_for_backward(share, *rows)
        mixed = _times(share[:, :1], rows[0])
        for number, each in enumerate(rows[1:], 1):
            mixed.addcmul_(share[:, number, None], each)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        share, *rows = ctx.saved_tensors
        # the dot product of each row with the gradient of its sum [T, R]
        by_share = torch.cat([torch.linalg.vecdot(grad, each)[:, None] for each in rows], 1)
        return by_share, *(_times(share[:, number, None], grad) for number in range(len(rows)))


def _times(share: Tensor, rows: Tensor) -> Tensor:
    # in memory that is kept, as there are as many results as relations
    return torch.mul(share, rows, out=empty_rows(*rows.shape) if rows.device.type == "cpu" else None)


@final
class Across(nn.Module):
    """The rows [T, W] of one type's nodes from one [T, W] per relation into it, of which there is at least one.

    concat: a linear map of the rows side by side, as JK-Net's rows per distance are joined (FlexGraph, figure 5).

    Of one relation the row is the relation's own, whatever the way to join.
    """

    def __init__(self, join: Joins, width: int, *, relations: int = 1) -> None:
        super().__init__()
        self.join = join
        maps = join == "concat" and relations > 1
        self.linear = nn.Linear(relations * width, width) if maps else None
        if self.linear is not None:
            nn.init.xavier_uniform_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)
        self.attention = SemanticAttention(width) if join == "attention" else None

    def forward(self, rows: Sequence[Tensor]) -> Tensor:
        """Return the joined rows; relations are added in the order given."""
        if self.attention is not None:
            joined: Tensor = self.attention(rows)
            return joined
        if self.linear is not None:
            beside: Tensor = self.linear(torch.cat(list(rows), 1))
            return beside
        if self.join == "max":
            return reduce(torch.maximum, rows)
        total = reduce(torch.add, rows)
        return total / len(rows) if self.join == "mean" else total
