"""The largest message per target and channel, and its gradient, on the core.

Shapes: T targets, S sources, E edges, H heads, D width of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnflow.kernels import gradients
from gnnflow.kernels.core import call, numbered, sources_of, stored
from gnnflow.kernels.csr import Csr


def _largest(csr: Csr, coefficient: Tensor | None, value: Tensor) -> tuple[Tensor, Tensor]:
    heads = value.shape[1] if coefficient is None else coefficient.shape[1]
    largest = value.new_empty(csr.num_targets, heads, value.shape[2], dtype=torch.float32)
    places = torch.empty_like(largest, dtype=torch.int32)
    given = (*sources_of(csr), coefficient, heads, *stored(value), *value.shape[1:])
    call("gnnflow_maxima", csr, *given, largest, places)
    return largest, places


def _gradient(csr: Csr, coefficient: Tensor | None, places: Tensor, grad: Tensor, heads: int) -> Tensor:
    out = grad.new_empty(csr.num_sources, heads, grad.shape[2])
    given = (*numbered(csr.transposed.numbers, csr.by_source.numbers), csr.offsets, coefficient, grad.shape[1])
    call("gnnflow_maxima_gradient", csr.transposed, *given, places, grad, *out.shape[1:], out)
    return out


segment_max = gradients.Extremes(_largest, _gradient).segment_max
