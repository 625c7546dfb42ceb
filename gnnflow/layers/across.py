"""Join of a node's rows from all its relations into one row: the topmost level of aggregation.

The inputs are the rows that the relations into one type give to its nodes. Each node is joined separately, so the way
an execution cuts the graph does not change the result.

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
    """A weighted mean of a node's rows; the weights are a softmax over its relations of q . tanh(W z + b).

    Equations 7-9 of HAN (Wang et al. 2019), with separate weights for each node: see `han.py`.
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
    """The join of rows [T, W], one per relation into a type, to the rows [T, W] of its nodes.

    concat: a linear map of the concatenated rows, as for JK-Net's rows per distance (FlexGraph, figure 5). A single
    relation's rows stay the same under every join.
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
        """Return the joined rows; relations are added in the given order."""
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
