"""The largest message per target and channel, and its gradient.

Shapes: T targets, S sources, E edges, H heads, D width of a head, P pieces of hubs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnflow.kernels import gradients
from gnnflow.kernels.csr import Csr
from gnnflow.kernels.cuda.hubs import Division
from gnnflow.kernels.cuda.library import on_card_of
from gnnflow.kernels.cuda.sums import Chosen, launch, merge, sums


def _largest(csr: Csr, coefficient: Tensor | None, value: Tensor) -> tuple[Tensor, Tensor]:
    from gnnflow.kernels.cuda.largest_programs import largest_pieces, largest_rows

    heads, width = value.shape[1] if coefficient is None else coefficient.shape[1], value.shape[2]
    largest = value.new_empty(csr.num_targets, heads, width, dtype=torch.float32)
    places = torch.empty_like(largest, dtype=torch.int32)
    if not largest.numel():
        return largest, places
    division, found = Division.of(csr), [largest, places]
    pieces = [division.pieces(each) for each in found]
    grid, constants = launch(division, coefficient, value)
    with on_card_of(value):
        largest_rows[grid](
            csr.offsets,
            csr.sources,
            coefficient,
            value,
            *found,
            *pieces,
            *division.tables,
            csr.num_targets,
            WEIGHTED=coefficient is not None,
            **constants,
        )
        if division.hubs is not None:
            merge(largest_pieces, division.hubs, pieces, found)
    return largest, places


def _gradient(csr: Csr, coefficient: Tensor | None, places: Tensor, grad: Tensor, value_heads: int) -> Tensor:
    # each source's sum over its out-edges of the gradients of those numbers that came along them
    chosen = Chosen(places, csr.offsets)
    out = sums(csr.transposed, coefficient, grad, edges=csr.by_source.sources, chosen=chosen)
    # A value that serves every head collects the gradients of all.
    return out if out.shape[1] == value_heads else out.sum(1, keepdim=True)


segment_max = gradients.Extremes(_largest, _gradient).segment_max
