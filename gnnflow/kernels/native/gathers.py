"""Rows of sources and of targets per edge, and their gradients: sums over each row's edges.

Shapes: T targets, S sources, E edges.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels.csr import Csr
from gnnflow.kernels.native.sums import sums


def gather_sources(csr: Csr, term: Tensor) -> Tensor:
    """Return term [S, ...] of each edge's source: [E, ...]."""
    return cast("Tensor", _Gather.apply(term, csr, csr.sources))  # type: ignore[no-untyped-call]


def gather_targets(csr: Csr, term: Tensor) -> Tensor:
    """Return term [T, ...] of each edge's target: [E, ...]."""
    return cast("Tensor", _Gather.apply(term, csr, csr.targets))  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, term: Tensor, csr: Csr, rows: Tensor) -> Tensor:
        ctx.csr, ctx.by_source = csr, rows is csr.sources
        return term.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        # the edges of each gathered row: of each source, or of each target
        groups = ctx.csr.by_source if ctx.by_source else ctx.csr.edges
        added = sums(groups, None, grad.reshape(len(grad), 1, math.prod(grad.shape[1:])))
        return added.view(len(added), *grad.shape[1:]), None, None
