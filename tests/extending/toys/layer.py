"""A layer: the sum of the neighbours, mapped."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from gnnflow.layers.aggregation import Sum
from gnnflow.layers.base import Layer
from gnnflow.layers.terms import EdgeContext, NodeContext, Terms


class Toy(Layer):
    """W times the weighted sum of the in-neighbours' rows."""

    aggregation = Sum()

    def __init__(self, in_width: int, out_width: int) -> None:
        super().__init__(in_width, out_width)
        self.map = nn.Linear(in_width, out_width)

    def transform(self, h: Tensor, node: NodeContext) -> Terms:
        """Return the rows as they are: value [N, 1, in_width]."""
        return Terms({"value": h[:, None]}, {})

    def coefficient(
        self, source: Mapping[str, Tensor], target: Mapping[str, Tensor], edge: EdgeContext
    ) -> Tensor | None:
        """Return the edge's weight [E, 1]."""
        return edge.weight_column(self.map.bias)

    def update(self, own: Mapping[str, Tensor], aggregated: Tensor) -> Tensor:
        """Return the mapped sum [N, out_width]."""
        rows: Tensor = self.map(aggregated[:, 0])
        return rows
