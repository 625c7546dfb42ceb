"""HAN: Wang, Ji, Shi, Wang, Cui, Yu and Ye, "Heterogeneous graph attention network", WWW 2019.

Equations 2-6 are graph attention over the neighbours of one relation and the node itself, which is `GAT` per relation;
equations 7-9 join what the relations give by an attention over them, which is here. Metapaths are relations.
Deviations: the paper averages q . tanh(W z + b) over all nodes of the graph before the softmax, which no execution that
sees a part of the graph can, so each node has weights of its own; the activation follows the join, not each relation.

Shapes: T targets, R relations into their type, W width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

ATTENTION_WIDTH = 128
"""Width of the semantic attention's hidden rows, as in section 5.3 of the paper on HAN."""


@final
class SemanticAttention(nn.Module):
    """A weighted mean of a node's rows, the weights being a softmax over its relations of q . tanh(W z + b).

    Equations 7-9, with weights of each node's own.
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
        # the rows of each relation beside each other [T, R, W], and a score of each [T, R, 1]
        stacked = torch.stack(list(rows), 1)
        scores = self.query(torch.tanh(self.linear(stacked)))
        return (torch.softmax(scores, 1) * stacked).sum(1)
