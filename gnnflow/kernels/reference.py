"""The plain definition of every kernel: gather a row per edge, then reduce by target. Memory grows with E x H x D.

Shapes: T targets, S sources, E edges, H heads, D width of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnflow.kernels.csr import Csr


def per_edge(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return coefficient [E, H] x value [S, H or 1, D] of each edge's source: [E, H, D]."""
    gathered = value[csr.sources]
    return gathered if coefficient is None else coefficient[:, :, None] * gathered


def weighted_sum(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the sum over each target's in-edges of coefficient x value: [T, H, D]; zero where there is none."""
    messages = per_edge(csr, coefficient, value)
    return messages.new_zeros(csr.num_targets, *messages.shape[1:]).index_add(0, csr.targets, messages)


def segment_max(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the largest coefficient x value per target and channel: [T, H, D]; -inf where there is no in-edge.

    Equal maxima share the gradient evenly.
    """
    messages = per_edge(csr, coefficient, value)
    # maxima that every message is larger than [T, H, D], and the target of each number of the messages [E, H, D]
    lowest = messages.new_full((csr.num_targets, *messages.shape[1:]), -torch.inf)
    index = csr.targets[:, None, None].expand_as(messages)
    return lowest.scatter_reduce(0, index, messages, "amax", include_self=True)


def gather_sources(csr: Csr, term: Tensor) -> Tensor:
    """Return term [S, ...] of each edge's source: [E, ...]."""
    return term[csr.sources]


def gather_targets(csr: Csr, term: Tensor) -> Tensor:
    """Return term [T, ...] of each edge's target: [E, ...]."""
    return term[csr.targets]
