"""The kernels of an identity adjacency, where every edge leads from a node to itself: no gather, no reduction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from gnnflow.kernels.csr import Csr


def weighted_sum(_: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return coefficient [T, H] x value [T, H or 1, D]: [T, H, D]."""
    return value if coefficient is None else (coefficient[:, :, None] * value).to(value.dtype)


segment_max = weighted_sum  # the only message of a target is its sum and its maximum


def gather_sources(_: Csr, term: Tensor) -> Tensor:
    """Return the term [T, ...] itself."""
    return term


gather_targets = gather_sources
