"""Which kernel runs when. Callers ask for an operation; the first row of `TABLE` that accepts the operands does it.

| kernel      | when                                                              |
|-------------|-------------------------------------------------------------------|
| elementwise | every target's one in-edge is itself (a layer's self message)     |
| cuda        | float32 or half precision on a CUDA card, where Triton is there   |
| native      | float32 or half precision on the CPU, where the core was compiled |
| fused       | float32 or float64 on the CPU                                     |
| widened     | half precision on the CPU: fused, on rows copied to float32       |
| reference   | anything else: torch's bag and CSR kernels are partial elsewhere  |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gnnflow.kernels import cuda, elementwise, fused, native, reference, widened
from gnnflow.kernels import leaves as leaves_kernel
from gnnflow.kernels.csr import Csr, Instances
from gnnflow.kernels.halves import Halves
from gnnflow.kernels.scales import UNSCALED, Scales

Reduce = Callable[[Csr, Tensor | None, Tensor], Tensor]
Gather = Callable[[Csr, Tensor], Tensor]
GatedSum = Callable[[Csr, Tensor, Tensor, Tensor, Tensor | None], Tensor]


class SoftmaxSums(Protocol):
    """A softmax over in-edges and the mean it weighs, at once: maximum, denominator and mean of `kernels.softmax`."""

    def __call__(
        self,
        csr: Csr,
        logit: Tensor | Halves,
        value: Tensor,
        *,
        attributes: Tensor | None,
        factor: Tensor | None,
        drop: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return them; the logits, or their halves, are float32."""


@dataclass(frozen=True)
class Kernel:
    """One implementation of the four operations, and when it applies."""

    name: str
    accepts: Callable[[Csr, Tensor], bool]
    weighted_sum: Reduce
    segment_max: Reduce
    gather_sources: Gather
    gather_targets: Gather
    softmax_sums: SoftmaxSums | None = None
    """A softmax and the mean it weighs at once, where the kernel has that."""
    scaled_sum: Callable[[Csr, Tensor | None, Tensor, Scales], Tensor] | None = None
    """A weighted sum that takes scales, where the kernel has that."""
    gated_sum: GatedSum | None = None
    """A sum of float32 rows through gates per edge and column, where the kernel has that: `kernels.gated_sum`."""


def _is_identity(csr: Csr, _: Tensor) -> bool:
    return csr.is_identity


def _is_plain_cpu(_: Csr, rows: Tensor) -> bool:
    return rows.device.type == "cpu" and rows.dtype in {torch.float32, torch.float64}


def _is_half_cpu(_: Csr, rows: Tensor) -> bool:
    return rows.device.type == "cpu" and rows.dtype in {torch.bfloat16, torch.float16}


TABLE = (
    Kernel(
        "elementwise",
        _is_identity,
        elementwise.weighted_sum,
        elementwise.segment_max,
        elementwise.gather_sources,
        elementwise.gather_targets,
    ),
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
        _is_plain_cpu,
        fused.weighted_sum,
        fused.segment_max,
        fused.gather_sources,
        fused.gather_targets,
    ),
    Kernel(
        "widened",
        _is_half_cpu,
        widened.weighted_sum,
        widened.segment_max,
        widened.gather_sources,
        widened.gather_targets,
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
    """Return the type for what rows are weighed with: float32 where they are in half precision, else their own."""
    return torch.promote_types(rows.dtype, torch.float32)


def weighted_sum(csr: Csr, coefficient: Tensor | None, value: Tensor, scales: Scales = UNSCALED) -> Tensor:
    """Return the sum over each target's in-edges of coefficient [E, H] x value [S, H or 1, D]: [T, H, D].

    A missing coefficient is one; a value with a single head serves every head. Targets without in-edges give zero. Rows
    in half precision are added up in float32, and the sums rounded to their type. scales: factors of whole rows.
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
    """Return the sum over each target's instances of coefficient [E, H] x what their leaves add up to: [T, H, D].

    value [S, H or 1, D]: of leaves; mean: each instance's are averaged. One weighted sum over all leaves of a target:
    there is no row per instance. scales: factors of leaves' values and of the targets' sums, as for `weighted_sum`.
    """
    leaves, size = instances.leaves, instances.size
    if mean and size is None:
        share = leaves.share.to(coefficient_dtype(value))[:, None]
        coefficient = share.expand(-1, value.shape[1]) if coefficient is None else coefficient * share.to(coefficient)
    elif mean and size is not None and size > 1:
        if coefficient is None:
            target = value.new_ones(instances.flat.num_targets) if scales.target is None else scales.target
            scales = Scales(scales.source, target / size)
        else:
            coefficient = coefficient / size
    if coefficient is not None and scales.are_one and leaves_kernel.serves(instances, coefficient, value):
        return leaves_kernel.one_head_sum(instances, coefficient, value)
    # what each leaf's value is multiplied with [L, H]
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
