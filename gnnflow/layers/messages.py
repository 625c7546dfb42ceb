"""Messages along the in-edges of some targets, before aggregation: coefficients of edges, values of sources.

Shapes: T targets, S sources, E edges, H heads, D width of a head, A edge attributes, W = D (+ A).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnflow.kernels import (
    UNSCALED,
    Csr,
    Halves,
    Instances,
    Scales,
    added_sum,
    coefficient_dtype,
    dropout,
    gather_sources,
    leaf_sum,
    segment_max,
    weighted_sum,
)


@dataclass(frozen=True)
class Messages:
    """Messages over one adjacency, not yet materialised: coefficient [E, H] x [value [S, H, D] | attributes [E, A]].

    A missing coefficient is one; a logit may be given as its halves. dropout applies to normalised coefficients. scale
    [E], only for weighted samples: the number of edges of the whole graph that each edge stands for. A sum of scale x f
    over the sample is an unbiased estimate of the sum of f over all in-edges, and a mean or a softmax is a ratio of two
    such sums. scales: factors of the sources' values and of the targets' sums, for aggregations with `takes_scales`.
    instances: if edges have leaves. The value is then of leaves, and an edge has their mean, or their sum unless
    leaf_mean is set; only for aggregations that are `linear`.
    """

    csr: Csr
    value: Tensor
    coefficient: Tensor | None = None
    attributes: Tensor | None = None
    dropout: float = 0.0
    scale: Tensor | None = None
    halves: Halves | None = None
    scales: Scales = UNSCALED
    instances: Instances | None = None
    leaf_mean: bool = True

    def scaled(self, coefficient: Tensor) -> Tensor:
        """Return scale x coefficient [E, H]: the factor of an edge in a sum."""
        return coefficient if self.scale is None else self.scale[:, None].to(coefficient) * coefficient

    @property
    def counted(self) -> Tensor | None:
        """The scaled coefficients [E, H]; None if all are one."""
        if self.scale is None:
            return self.coefficient
        return self.scaled(self.ones() if self.coefficient is None else self.coefficient)

    def summed(self, coefficient: Tensor | None, scales: Scales = UNSCALED) -> Tensor:
        """Return the sum per target of coefficient x [value | attributes], after dropout and scaled: [T, H, W]."""
        if coefficient is None and (self.dropout or self.attributes is not None):
            coefficient = self.ones()
        if coefficient is not None:
            coefficient = dropout(coefficient, self.dropout)
        # sums of source values [T, H, D]; attributes have a row per edge and one head, and are appended [T, H, A]
        if self.instances is None:
            sums = weighted_sum(self.csr, coefficient, self.value, scales)
        else:
            sums = leaf_sum(self.instances, coefficient, self.value, scales, mean=self.leaf_mean)
        if self.attributes is None:
            return sums
        # instances have no scale: the scales of their leaves are in the sum
        is_scaled = scales.source is not None and self.instances is None
        by_source = gather_sources(self.csr, scales.source) if is_scaled and scales.source is not None else None
        beside = weighted_sum(self.csr.edges, coefficient, self.attributes[:, None], Scales(by_source, scales.target))
        return torch.cat([sums, beside], 2)

    def added_to(self, sums: Tensor, coefficient: Tensor | None, scales: Scales = UNSCALED) -> Tensor:
        """Return sums [T, H, W] plus the result of `summed`; the sums may be changed in place."""
        if self.dropout or self.attributes is not None or self.instances is not None:
            more = self.summed(coefficient, scales)
            return sums + more if torch.is_grad_enabled() else sums.add_(more)
        return added_sum(sums, self.csr, coefficient, self.value, scales)

    @property
    def only_value_learns(self) -> bool:
        """True if only the value of `summed` has a gradient, which needs no message."""
        fixed = self.coefficient is None or not self.coefficient.requires_grad
        return fixed and self.instances is None and self.attributes is None and not self.dropout

    def largest(self) -> Tensor:
        """Return the maximum per target and channel of coefficient x [value | attributes]: [T, H, W], -inf if none."""
        top = segment_max(self.csr, self.coefficient, self.value)
        if self.attributes is None:
            return top
        coefficient = self.ones() if self.coefficient is None else self.coefficient
        return torch.cat([top, segment_max(self.csr.edges, coefficient, self.attributes[:, None])], 2)

    def ones(self) -> Tensor:
        """Return a coefficient of one per edge and head [E, H]."""
        return self.value.new_ones(self.csr.num_edges, self.value.shape[1], dtype=coefficient_dtype(self.value))

    def per_edge(self) -> Tensor:
        """Return the materialised messages [E, H, W], for aggregations without a kernel."""
        # the value of each edge's source [E, H, D], then the attributes appended, the same for every head
        rows = gather_sources(self.csr, self.value)
        if self.attributes is not None:
            rows = torch.cat([rows, self.attributes[:, None].expand(-1, rows.shape[1], -1)], 2)
        return rows if self.coefficient is None else self.coefficient[:, :, None] * rows
