"""A softmax over each target's in-edges and its weighted mean, kept as parts that merge.

A softmax over edges split in any way is (maximum, sum of shifted exponentials, mean); see `layers.attention`.

Shapes: T targets, S sources, E edges, A edge attributes, H heads, D width of a head, W = D (+ A).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from gnnflow.kernels import native
from gnnflow.kernels.attention_inputs import Halves, SoftmaxSums
from gnnflow.kernels.csr import Csr, Instances, identity
from gnnflow.kernels.dropout import dropout
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


def adds_softmax(logit: Halves, value: Tensor) -> bool:
    """Return whether `add_softmax_sums` and `add_softmax_gradient` take such logits and rows."""
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
    """Return per target the largest logit, the sum of weights and the weighted mean of [value | attributes].

    An edge has the weight w = factor x exp(logit - maximum). logit: [E, H], or its halves; factor: [E], one by default.
    Dropout at rate `drop` acts on w in the mean's numerator alone, as on normalised weights. The maximum has no
    gradient: it cancels between numerator and denominator. Factor and attributes have none either. With operands
    in half precision, only the mean is rounded, to the type of value.
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
    fused = kernel.softmax_sums
    if fused is not None and not plain and choose(csr, rows) is kernel:
        return fused(csr, logit, value, attributes=attributes, factor=factor, drop=drop)
    if isinstance(logit, Halves):
        # logits of edges from their halves [E, H]
        added = gather_sources(csr, logit.source) + gather_targets(csr, logit.target)
        logit = functional.leaky_relu(added, logit.slope)
    # the largest logit of each target [T, H], and factor x exp(logit - maximum) [E, H], an exponential in (0, 1]
    maximum = segment_max(csr.edges, None, logit.detach()[:, None])[:, 0]
    weight = (logit - gather_targets(csr, maximum)).exp()
    weight = weight if factor is None else factor[:, None].to(weight) * weight
    denominator = segment_sum(csr, weight)
    empty = denominator == 0
    # one division per target and head, not one per column
    inverse = denominator.masked_fill(empty, 1.0).reciprocal().masked_fill(empty, 0.0)
    # sums of source values [T, H, D]; attributes have a row per edge and one head, and are appended [T, H, A]
    used = dropout(weight, drop)
    if instances is None:
        weighted = weighted_sum(csr, used, value)
    else:
        # the share of each instance [E, H]: there are fewer of them than numbers in the rows of targets
        used = used * gather_targets(csr, inverse)
        weighted = leaf_sum(instances, used, value, mean=leaf_mean)
    if attributes is not None:
        weighted = torch.cat([weighted, weighted_sum(csr.edges, used, attributes[:, None]).to(weighted)], 2)
    if instances is None:
        weighted = (weighted * inverse[:, :, None]).to(weighted)
    return SoftmaxSums(maximum, denominator, weighted)
