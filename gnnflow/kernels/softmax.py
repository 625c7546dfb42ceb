"""A softmax over each target's in-edges and the mean it weighs, kept as parts that merge.

A softmax over edges split in any way is (maximum, sum of shifted exponentials, mean); see `layers.attention`.

Shapes: T targets, S sources, E edges, A edge attributes, H heads, D width of a head, W = D (+ A).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gnnflow.kernels import native
from gnnflow.kernels.csr import Csr, Instances, identity
from gnnflow.kernels.dropout import dropout
from gnnflow.kernels.halves import Halves
from gnnflow.kernels.native.attention import MOST_HEADS
from gnnflow.kernels.table import (
    choose,
    coefficient_dtype,
    gather_sources,
    gather_targets,
    leaf_sum,
    segment_max,
    segment_sum,
    weighted_sum,
)

_NO_EDGES = identity(0)


class SoftmaxSums(NamedTuple):
    """maximum [T, H]: the largest logit, -inf without in-edges; denominator [T, H] relates to it; mean [T, H, W].

    The mean is zero where the denominator is.
    """

    maximum: Tensor
    denominator: Tensor
    mean: Tensor


def adds_softmax(logit: Halves, value: Tensor) -> bool:
    """Return whether `add_softmax_sums` and `add_softmax_gradient` take logits and rows as these."""
    heads, rows = logit.source.shape[1], (value, logit.source, logit.target)
    alike = value.shape[1] == heads <= MOST_HEADS and all(each.dtype == torch.float32 for each in rows)
    return alike and all(native.accepts(_NO_EDGES, each) for each in rows)


def softmax_sums(
    csr: Csr,
    logit: Tensor | Halves,
    value: Tensor,
    *,
    attributes: Tensor | None = None,
    factor: Tensor | None = None,
    drop: float = 0.0,
    instances: Instances | None = None,
    leaf_mean: bool = True,
) -> SoftmaxSums:
    """Return the sum per target of w = factor x exp(logit - maximum), and the mean of [value | attributes] it weighs.

    logit: [E, H], or the halves it is made of; factor: [E], one where it is missing. Dropout at rate `drop` acts on w
    in the mean's numerator alone, as on normalised weights. The maximum carries no gradient: it cancels between
    numerator and denominator. Factor and attributes have none either. Of operands in half precision, only the mean is
    rounded, to the type of value.
    """
    if isinstance(logit, Halves):
        dtype = coefficient_dtype(logit.source)
        logit = Halves(logit.source.to(dtype), logit.target.to(dtype), logit.slope)
        rows = logit.source
    else:
        rows = logit = logit.to(coefficient_dtype(logit))
    kernel = choose(csr, value)
    plain = instances is not None or (attributes is not None and attributes.requires_grad)
    plain = plain or rows.shape[1] > MOST_HEADS
    at_once = kernel.softmax_sums
    if at_once is not None and not plain and choose(csr, rows) is kernel:
        return SoftmaxSums(*at_once(csr, logit, value, attributes=attributes, factor=factor, drop=drop))
    if isinstance(logit, Halves):
        added = gather_sources(csr, logit.source) + gather_targets(csr, logit.target)
        logit = functional.leaky_relu(added, logit.slope)
    weight, maximum = _shifted(csr, logit, factor)
    denominator = segment_sum(csr, weight)
    empty = denominator == 0
    # one division per target and head, not one per column
    inverse = denominator.masked_fill(empty, 1.0).reciprocal().masked_fill(empty, 0.0)
    # over source values [T, H, D]; attributes have a row per edge and one head, and go beside them [T, H, A]
    used = dropout(weight, drop)
    if instances is None:
        weighted = weighted_sum(csr, used, value)
    else:
        # each instance's share: there are fewer of them than columns in the rows of their targets
        used = used * gather_targets(csr, inverse)
        weighted = leaf_sum(instances, used, value, mean=leaf_mean)
    if attributes is not None:
        weighted = torch.cat([weighted, weighted_sum(csr.edges, used, attributes[:, None]).to(weighted)], 2)
    if instances is None:
        weighted = (weighted * inverse[:, :, None]).to(weighted)
    return SoftmaxSums(maximum, denominator, weighted)


def _shifted(csr: Csr, logit: Tensor, factor: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return factor x exp(logit - maximum) [E, H], and the largest logit of each target [T, H].

    The exponential lies in (0, 1] whatever the logits are.
    """
    maximum = segment_max(csr.edges, None, logit.detach()[:, None])[:, 0]
    exponential = (logit - gather_targets(csr, maximum)).exp()
    return exponential if factor is None else factor[:, None].to(exponential) * exponential, maximum
