"""The largest message per target and channel, and its gradient.

Shapes: T targets, S sources, E edges, H heads, D width of a head, K = H x D columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnflow.kernels import gradients
from gnnflow.kernels.csr import Csr
from gnnflow.kernels.cuda.library import on_card_of, power_of_two, warps

_MOST_COLUMNS = 256


def _largest(csr: Csr, coefficient: Tensor | None, value: Tensor) -> tuple[Tensor, Tensor]:
    from gnnflow.kernels.cuda.largest_programs import largest_rows

    heads, width = value.shape[1] if coefficient is None else coefficient.shape[1], value.shape[2]
    columns = heads * width
    largest = value.new_empty(csr.num_targets, heads, width, dtype=torch.float32)
    places = torch.empty_like(largest, dtype=torch.int32)
    if largest.numel():
        wide = min(power_of_two(columns), _MOST_COLUMNS)
        with on_card_of(value):
            largest_rows[csr.num_targets, -(-columns // wide)](
                csr.offsets,
                csr.sources,
                coefficient,
                value,
                largest,
                places,
                columns,
                width,
                heads,
                value.shape[1] * width,
                WEIGHTED=coefficient is not None,
                TILE_COLUMNS=wide,
                num_warps=warps(8 * wide),
            )
    return largest, places


def _gradient(csr: Csr, coefficient: Tensor | None, places: Tensor, grad: Tensor, value_heads: int) -> Tensor:
    from gnnflow.kernels.cuda.largest_programs import largest_rows_gradient

    heads, width = grad.shape[1:]
    columns = heads * width
    out = grad.new_empty(csr.num_sources, heads, width)
    if out.numel():
        wide = min(power_of_two(columns), _MOST_COLUMNS)
        with on_card_of(grad):
            largest_rows_gradient[csr.num_sources, -(-columns // wide)](
                csr.transposed.offsets,
                csr.transposed.sources,
                csr.by_source.sources,
                csr.offsets,
                coefficient,
                places,
                grad,
                out,
                columns,
                width,
                heads,
                WEIGHTED=coefficient is not None,
                TILE_COLUMNS=wide,
                num_warps=warps(8 * wide),
            )
    # A value that serves every head collects the gradients of all.
    return out if heads == value_heads else out.sum(1, keepdim=True)


segment_max = gradients.Extremes(_largest, _gradient).segment_max
