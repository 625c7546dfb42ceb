"""Sums over the leaves of instances, and their gradient where one row of a leaf serves many heads.

The gradient of such a row is a sum over its instances of coefficients x their target's row of H heads. Read source by
source that is H times the leaf's own width for each leaf; here each instance's part is made once, target by target, in
the leaf's width, and then added up.

Shapes: T targets, E instances, S sources, H heads, D width of a head.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels import native
from gnnflow.kernels.csr import Instances


def serves(instances: Instances, coefficient: Tensor | None, value: Tensor) -> bool:
    """Return whether a sum's gradient is computed so: rows of one head in float32, several heads, on the core."""
    if coefficient is None or value.shape[1] != 1 or coefficient.shape[1] == 1:
        return False
    plain = value.dtype == coefficient.dtype == torch.float32
    return plain and native.accepts(instances.leaves, value)


def one_head_sum(instances: Instances, coefficient: Tensor, value: Tensor) -> Tensor:
    """Return the sum over each target's instances of coefficient [E, H] x the sum of their leaves' value [S, 1, D]."""
    return cast("Tensor", _OneHeadSum.apply(instances, coefficient, value))  # type: ignore[no-untyped-call]


class _OneHeadSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, instances: Instances, coefficient: Tensor, value: Tensor) -> Tensor:
        ctx.instances = instances
        ctx.save_for_backward(coefficient, value)
        return native.sums(instances.flat, coefficient.index_select(0, instances.leaves.targets), value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        coefficient, value = ctx.saved_tensors
        instances: Instances = ctx.instances
        by_coefficient = by_value = None
        if ctx.needs_input_grad[1]:
            rows = native.sums(instances.leaves, None, value)  # of each instance [E, 1, D]
            by_coefficient = native.products(instances.roots, grad.contiguous(), rows)
        if ctx.needs_input_grad[2]:
            heads = coefficient.shape[1]
            of_heads = grad.reshape(-1, 1, grad.shape[2])
            # what each instance hands on to its leaves [E, 1, D]
            rows = native.sums(instances.heads(heads), coefficient.reshape(-1, 1), of_heads)
            by_value = native.sums(instances.leaves.transposed, None, rows)
        return None, by_coefficient, by_value
