"""The numerator of a softmax over each target's in-edges, kept apart from its denominator so that parts can be merged.

A softmax over edges split in any way is (maximum, sum of shifted exponentials, weighted sum); see `layers.aggregation`.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from gnnflow.kernels.csr import Csr
from gnnflow.kernels.table import gather_targets, segment_max


class ShiftedExponentials(NamedTuple):
    """maximum: largest logit per target [T, H], -inf without in-edges. weight: exp(logit - maximum) per edge [E, H]."""

    maximum: Tensor
    weight: Tensor


def shifted_exponentials(csr: Csr, logit: Tensor) -> ShiftedExponentials:
    """Return exp(logit [E, H] - the target's maximum), which lies in (0, 1] whatever the logits are.

    The maximum carries no gradient: it cancels between numerator and denominator.
    """
    maximum = segment_max(csr.edges, None, logit.detach()[:, None])[:, 0]
    return ShiftedExponentials(maximum, (logit - gather_targets(csr, maximum)).exp())
