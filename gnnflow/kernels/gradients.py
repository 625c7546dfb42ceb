"""Weighted sums, gathers and maxima with their gradients, made of the few loops over edges of an implementation.

The gradient of a sum's values is the same sum over the reversed edges; the gradient of its coefficients is a product
per edge; the gradient of a gather is the sum over each row's edges. So implementations define no gradients.

Shapes: T targets, S sources, E edges, H heads, D width of a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gnnflow.kernels import reference
from gnnflow.kernels.csr import Csr, rows_of


class Sums(Protocol):
    """Weighted sums without a gradient; of rows in half precision they may come in float32."""

    def __call__(self, csr: Csr, coefficient: Tensor | None, value: Tensor, *, edges: Tensor | None = None) -> Tensor:
        """Return the sum per target of coefficient [E, H] x value [S, H or 1, D]: [T, H, D].

        A missing coefficient is one. edges [E]: the coefficient row of each edge; None where edge e has row e.
        """


@dataclass(frozen=True)
class Loops:
    """The loops over edges of one implementation.

    products(csr, left [T, H, D], right [S, H or 1, D]): per edge and head the dot product of the target's left row and
    the source's right row [E, H].
    """

    sums: Sums
    products: Callable[[Csr, Tensor, Tensor], Tensor]

    def gather_sources(self, csr: Csr, term: Tensor) -> Tensor:
        """Return term [S, ...] of each edge's source: [E, ...]."""
        return cast("Tensor", _Gather.apply(self, csr, csr.sources, term))  # type: ignore[no-untyped-call]

    def gather_targets(self, csr: Csr, term: Tensor) -> Tensor:
        """Return term [T, ...] of each edge's target: [E, ...]."""
        return cast("Tensor", _Gather.apply(self, csr, csr.targets, term))  # type: ignore[no-untyped-call]


class Maxima(NamedTuple):
    """Maxima in float32 [T, H, D], and the edge that each comes from.

    places: the edge's place among the in-edges of its target, int32 [T, H, D].
    """

    largest: Tensor
    places: Tensor


@dataclass(frozen=True)
class Extremes:
    """The loops over edges of one implementation's maxima.

    largest(csr, coefficient [E, H], value [S, H or 1, D]): the maxima.
    gradient(csr, coefficient, places, grad [T, H, D], heads): the gradient in float32 of a value with that many heads.
    """

    largest: Callable[[Csr, Tensor | None, Tensor], Maxima]
    gradient: Callable[[Csr, Tensor | None, Tensor, Tensor, int], Tensor]

    def segment_max(self, csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
        """Return the largest coefficient [E, H] x value [S, H or 1, D] per target: [T, H, D]; -inf without in-edges.

        Of equal maxima the first edge receives the gradient. Coefficients that need a gradient use the plain
        definition; no built-in layer has them.
        """
        if coefficient is not None and coefficient.requires_grad:
            return reference.segment_max(csr, coefficient, value).to(value.dtype)
        coefficient = None if coefficient is None else rows_of(csr.num_edges, coefficient.float())
        return cast("Tensor", _Maxima.apply(self, csr, coefficient, value))  # type: ignore[no-untyped-call]


def weighted_sum(loops: Loops, csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the sum over each target's in-edges of coefficient [E, H] x value [S, H or 1, D]: [T, H, D].

    A missing coefficient is one; a value with a single head serves every head. Targets without in-edges give zero.
    """
    return cast("Tensor", _WeightedSum.apply(loops, csr, coefficient, value))  # type: ignore[no-untyped-call]


def value_gradient(loops: Loops, csr: Csr, coefficient: Tensor | None, value: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient of value [S, H or 1, D], given the gradient of the sums [T, H, D]."""
    if csr.is_edgewise:  # each value belongs to one edge: the target's row times the coefficient [E, H, D]
        gathered = grad.index_select(0, csr.targets)
        gradient = gathered if coefficient is None else coefficient[:, :, None] * gathered
    else:  # over each source's out-edges, the sum of coefficient x the target's row [S, H, D]
        gradient = loops.sums(csr.transposed, coefficient, grad, edges=csr.by_source.numbers)
    # a value that serves every head gets the sum of their gradients
    return (gradient if gradient.shape == value.shape else gradient.sum(1, keepdim=True)).to(value.dtype)


class _WeightedSum(Function):
    @staticmethod
    def forward(ctx: Any, loops: Loops, csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
        ctx.loops, ctx.csr = loops, csr
        ctx.save_for_backward(coefficient, value)
        return loops.sums(csr, coefficient, value).to(value.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor | None, Tensor | None]:
        coefficient, value = ctx.saved_tensors
        loops: Loops = ctx.loops
        needs_coefficient, needs_value = ctx.needs_input_grad[2:]
        by_coefficient = loops.products(ctx.csr, grad, value) if needs_coefficient else None
        by_value = value_gradient(loops, ctx.csr, coefficient, value, grad) if needs_value else None
        return None, None, by_coefficient, by_value


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, loops: Loops, csr: Csr, rows: Tensor, term: Tensor) -> Tensor:
        ctx.loops, ctx.csr, ctx.by_source = loops, csr, rows is csr.sources
        return term.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None, Tensor]:
        # the edges of each gathered row: of each source, or of each target
        groups = ctx.csr.by_source if ctx.by_source else ctx.csr.edges
        # all trailing dimensions as columns of one head [E, 1, K]
        added = ctx.loops.sums(groups, None, grad.reshape(len(grad), 1, math.prod(grad.shape[1:])))
        return None, None, None, added.to(grad.dtype).reshape(len(added), *grad.shape[1:])


class _Maxima(Function):
    @staticmethod
    def forward(ctx: Any, loops: Extremes, csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
        value = rows_of(csr.num_sources, value)
        largest, places = loops.largest(csr, coefficient, value)
        ctx.loops, ctx.csr, ctx.value_heads = loops, csr, value.shape[1]
        ctx.save_for_backward(coefficient, places)
        return largest.to(value.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None, Tensor]:
        coefficient, places = ctx.saved_tensors
        gradient = ctx.loops.gradient(ctx.csr, coefficient, places, grad.float().contiguous(), ctx.value_heads)
        return None, None, None, gradient.to(grad.dtype)
