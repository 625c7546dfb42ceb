"""Rows in half precision where the native core is missing: copied to float32, reduced, and the result rounded back.

torch's own reductions of them add up in half precision, where a count of bfloat16 ones ends at 256.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.kernels import fused

if TYPE_CHECKING:
    from torch import Tensor

    from gnnflow.kernels.csr import Csr


def weighted_sum(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the sum over each target's in-edges of coefficient x value: [T, H, D]."""
    return fused.weighted_sum(csr, _wide(coefficient), value.float()).to(value.dtype)


def segment_max(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the largest coefficient x value per target and channel: [T, H, D]; -inf where there is no in-edge."""
    return fused.segment_max(csr, _wide(coefficient), value.float()).to(value.dtype)


def gather_sources(csr: Csr, term: Tensor) -> Tensor:
    """Return term [S, ...] of each edge's source: [E, ...]."""
    return fused.gather_sources(csr, term.float()).to(term.dtype)


def gather_targets(csr: Csr, term: Tensor) -> Tensor:
    """Return term [T, ...] of each edge's target: [E, ...]."""
    return fused.gather_targets(csr, term.float()).to(term.dtype)


def _wide(coefficient: Tensor | None) -> Tensor | None:
    return None if coefficient is None else coefficient.float()
