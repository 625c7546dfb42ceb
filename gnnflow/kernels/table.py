"""The choice of a kernel: the first row of `TABLE` that accepts the operands of an operation computes it.

| kernel      | when                                                              |
|-------------|-------------------------------------------------------------------|
| elementwise | the one in-edge of each target is itself (a layer's self message) |
| cuda        | float32 or half precision on a GPU, with Triton                   |
| native      | float32 or half precision on the CPU, with the compiled core      |
| fused       | float32 or float64 on the CPU                                     |
| widened     | half precision on the CPU: fused, on rows copied to float32       |
| reference   | anything else: torch's bag and CSR kernels are partial elsewhere  |

torch's reductions of rows in half precision add up in half precision, where a count of bfloat16 ones ends at 256;
hence "widened".

Shapes: T targets, S sources, E edges, H heads, D width of a head, W columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gnnflow.kernels import cuda, fused, native, reference
from gnnflow.kernels.attention_inputs import Halves, SoftmaxSums
from gnnflow.kernels.csr import UNSCALED, Csr, Instances, Scales

Reduce = Callable[[Csr, Tensor | None, Tensor], Tensor]
Gather = Callable[[Csr, Tensor], Tensor]
GatedSum = Callable[[Csr, Tensor, Tensor, Tensor, Tensor | None], Tensor]


class SoftmaxKernel(Protocol):
    """A fused softmax over in-edges and weighted mean: see `kernels.softmax`."""

    def __call__(
        self,
        csr: Csr,
        logit: Tensor | Halves,
        value: Tensor,
        *,
        attributes: Tensor | None,
        factor: Tensor | None,
        drop: float,
    ) -> SoftmaxSums:
        """Return the sums; the logits, or their halves, are float32."""


@dataclass(frozen=True)
class Kernel:
    """One implementation of the four operations, with a test of the operands that it accepts."""

    name: str
    accepts: Callable[[Csr, Tensor], bool]
    weighted_sum: Reduce
    segment_max: Reduce
    gather_sources: Gather
    gather_targets: Gather
    softmax_sums: SoftmaxKernel | None = None
    """A fused softmax and weighted mean, if the kernel has one."""
    scaled_sum: Callable[[Csr, Tensor | None, Tensor, Scales], Tensor] | None = None
    """A weighted sum that takes scales, if the kernel has one."""
    gated_sum: GatedSum | None = None
    """A fused `gated_sum` of float32 rows, if the kernel has one."""


def _multiply(_: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return coefficient [T, H] x value [T, H or 1, D]: the sum, and the maximum, over an identity adjacency."""
    return value if coefficient is None else (coefficient[:, :, None] * value).to(value.dtype)


def _same(_: Csr, term: Tensor) -> Tensor:
    return term


def _widened(reduce: Reduce) -> Reduce:
    """Return a reduction that copies rows in half precision to float32, and rounds the result."""

    def reduce_wide(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
        return reduce(csr, None if coefficient is None else coefficient.float(), value.float()).to(value.dtype)

    return reduce_wide


TABLE = (
    Kernel("elementwise", lambda csr, _: csr.is_identity, _multiply, _multiply, _same, _same),
    Kernel(
        "cuda",
        cuda.accepts,
        cuda.weighted_sum,
        cuda.segment_max,
        cuda.gather_sources,
        cuda.gather_targets,
        cuda.softmax_sums,
    ),
    Kernel(
        "native",
        native.accepts,
        native.weighted_sum,
        native.segment_max,
        native.gather_sources,
        native.gather_targets,
        native.softmax_sums,
        native.scaled_sum,
        native.gated_sum,
    ),
    Kernel(
        "fused",
        lambda _, rows: rows.device.type == "cpu" and rows.dtype in {torch.float32, torch.float64},
        fused.weighted_sum,
        fused.segment_max,
        fused.gather_sources,
        fused.gather_targets,
    ),
    Kernel(
        "widened",
        lambda _, rows: rows.device.type == "cpu" and rows.dtype in {torch.bfloat16, torch.float16},
        _widened(fused.weighted_sum),
        _widened(fused.segment_max),
        lambda csr, term: fused.gather_sources(csr, term.float()).to(term.dtype),
        lambda csr, term: fused.gather_targets(csr, term.float()).to(term.dtype),
    ),
    Kernel(
        "reference",
        lambda _csr, _rows: True,
        reference.weighted_sum,
        reference.segment_max,
        reference.gather_sources,
        reference.gather_targets,
    ),
)


def choose(csr: Csr, rows: Tensor) -> Kernel:
    """Return the first kernel of `TABLE` that accepts this adjacency and these rows."""
    return next(kernel for kernel in TABLE if kernel.accepts(csr, rows))


def coefficient_dtype(rows: Tensor) -> torch.dtype:
    """Return the type of the rows' coefficients: float32 for rows in half precision, else the rows' type."""
    return torch.promote_types(rows.dtype, torch.float32)


def weighted_sum(csr: Csr, coefficient: Tensor | None, value: Tensor, scales: Scales = UNSCALED) -> Tensor:
    """Return the sum over each target's in-edges of coefficient [E, H] x value [S, H or 1, D]: [T, H, D].

    A missing coefficient is one; a value with a single head serves every head. Targets without in-edges give zero. Rows
    in half precision are added up in float32, and the sums are rounded. scales: factors of whole rows.
    """
    kernel = choose(csr, value)
    if scales.are_one:
        return kernel.weighted_sum(csr, coefficient, value)
    fixed = coefficient is None or not coefficient.requires_grad
    if kernel.scaled_sum is not None and fixed and not csr.is_edgewise:
        return kernel.scaled_sum(csr, coefficient, value, scales)
    sums = kernel.weighted_sum(csr, coefficient, _multiplied(value, scales.source))
    return _multiplied(sums, scales.target)


def _multiplied(rows: Tensor, scale: Tensor | None) -> Tensor:
    return rows if scale is None else rows * scale[:, None, None].to(rows)


def leaf_sum(
    instances: Instances, coefficient: Tensor | None, value: Tensor, scales: Scales = UNSCALED, *, mean: bool
) -> Tensor:
    """Return the sum over each target's instances of coefficient [E, H] x the sum of their leaves: [T, H, D].

    value [S, H or 1, D]: the leaves' rows. mean: use the mean of an instance's leaves, not their sum. This is one
    weighted sum over all leaves of a target, without a row per instance. scales: as for `weighted_sum`.
    """
    leaves, size = instances.leaves, instances.size
    # a mean divides each instance's coefficient [E, H] by its leaves, or with equal counts the target's scale [T]
    if mean and size is None:
        share = leaves.share.to(coefficient_dtype(value))[:, None]
        coefficient = share.expand(-1, value.shape[1]) if coefficient is None else coefficient * share.to(coefficient)
    elif mean and size is not None and size > 1:
        if coefficient is None:
            target = value.new_ones(instances.flat.num_targets) if scales.target is None else scales.target
            scales = Scales(scales.source, target / size)
        else:
            coefficient = coefficient / size
    if coefficient is not None and scales.are_one and native.accepts_leaves(instances, coefficient, value):
        return native.one_head_sum(instances, coefficient, value)
    # the coefficient of each leaf [L, H]
    of_leaves = None if coefficient is None else gather_targets(leaves, coefficient)
    return weighted_sum(instances.flat, of_leaves, value, scales)


def segment_sum(csr: Csr, per_edge: Tensor) -> Tensor:
    """Return the sum of per_edge [E, H] over each target's in-edges: [T, H]."""
    return weighted_sum(csr.edges, None, per_edge[:, None])[:, 0]


def segment_max(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the largest coefficient x value per target and channel: [T, H, D]; -inf where there is no in-edge."""
    return choose(csr, value).segment_max(csr, coefficient, value)


def gather_sources(csr: Csr, term: Tensor) -> Tensor:
    """Return term [S, ...] of each edge's source: [E, ...]; the term itself where source e is edge e."""
    return term if csr.is_edgewise else choose(csr, term).gather_sources(csr, term)


def gather_targets(csr: Csr, term: Tensor) -> Tensor:
    """Return term [T, ...] of each edge's target: [E, ...]."""
    return choose(csr, term).gather_targets(csr, term)


def fuses_gates(csr: Csr, rows: Tensor) -> bool:
    """Return whether a kernel computes gated sums of these rows without keeping anything per edge."""
    return rows.dtype == torch.float32 and choose(csr, rows).gated_sum is not None


def gated_sum(csr: Csr, own: Tensor, other: Tensor, rows: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the sum over each target's in-edges of weight x sigmoid(own + other) x row: [T, W].

    own [T, W] and other [S, W] are the gates' halves at the two ends; rows [S, W] pass the gates; weight [E] has no
    gradient. Without a fused kernel this makes [E, W] numbers.
    """
    own, other = own.to(rows.dtype), other.to(rows.dtype)  # under autocast a map's rows are narrower than its input's
    fused_sum = choose(csr, rows).gated_sum if rows.dtype == torch.float32 else None
    if fused_sum is not None:
        return fused_sum(csr, own, other, rows, weight)
    passed = torch.sigmoid(gather_sources(csr, other) + gather_targets(csr, own)) * gather_sources(csr, rows)
    return segment_sum(csr, passed if weight is None else weight[:, None].to(passed) * passed)
