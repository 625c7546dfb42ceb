"""A softmax over each target's in-edges and the sum it weighs, kept as parts that merge.

A softmax over edges split in any way is (maximum, sum of shifted exponentials, weighted sum); see `layers.aggregation`.

Shapes: T targets, S sources, E edges, A edge attributes, H heads, D width of a head, W = D (+ A).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gnnflow.kernels.csr import Csr
from gnnflow.kernels.dropout import dropout
from gnnflow.kernels.table import choose, coefficient_dtype, gather_targets, segment_max, segment_sum, weighted_sum


class SoftmaxSums(NamedTuple):
    """maximum [T, H]: the largest logit, -inf without in-edges; denominator [T, H], weighted [T, H, W] relate to it."""

    maximum: Tensor
    denominator: Tensor
    weighted: Tensor


def softmax_sums(
    csr: Csr,
    logit: Tensor,
    value: Tensor,
    *,
    attributes: Tensor | None = None,
    factor: Tensor | None = None,
    drop: float = 0.0,
) -> SoftmaxSums:
    """Return the sums per target of w and of w x [value | attributes], with w = factor x exp(logit - maximum).

    logit: [E, H]; factor: [E], one where it is missing. Dropout at rate `drop` acts on w in the weighted sum alone, as
    on normalised weights. The maximum carries no gradient: it cancels between numerator and denominator. So do factor
    and attributes. Of operands in half precision, only the weighted sums are rounded, to the type of value.
    """
    logit = logit.to(coefficient_dtype(logit))
    kernel = choose(csr, value)
    plain = (attributes is not None and attributes.requires_grad) or choose(csr, logit) is not kernel
    at_once = kernel.softmax_sums
    if at_once is not None and not plain:
        return SoftmaxSums(*at_once(csr, logit, value, attributes=attributes, factor=factor, drop=drop))
    # largest logit of each target [T, H], and exp(logit - that), which lies in (0, 1] whatever the logits are [E, H]
    maximum = segment_max(csr.edges, None, logit.detach()[:, None])[:, 0]
    exponential = (logit - gather_targets(csr, maximum)).exp()
    weight = exponential if factor is None else factor[:, None].to(exponential) * exponential
    # over source values [T, H, D]; attributes have a row per edge and one head, and go beside them [T, H, A]
    used = dropout(weight, drop)
    weighted = weighted_sum(csr, used, value)
    if attributes is not None:
        weighted = torch.cat([weighted, weighted_sum(csr.edges, used, attributes[:, None]).to(weighted)], 2)
    return SoftmaxSums(maximum, segment_sum(csr, weight), weighted)
