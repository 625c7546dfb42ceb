"""How what a node gets from each of its relations becomes one row: the topmost level of aggregation.

Each takes the rows that the relations into one type give its nodes, and no other: a node's row is joined from its own
alone, so no execution changes the result by how it cuts the graph.

Shapes: T targets, R relations into their type, W width.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import final

import torch
from torch import Tensor, nn

from gnnflow.config.model_section import Joins
from gnnflow.kernels import scored_mean

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
        return scored_mean(rows, self.linear.weight, self.linear.bias, self.query.weight[0])


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
