"""Weighted sums and maxima over in-edges, and products per edge.

Rows in half precision are read as they are; coefficients and sums are float32. Autograd sees sums that were rounded
once, to the type of the rows.

Shapes: T targets, S sources, E edges, H heads, D width of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gnnflow.kernels import gradients
from gnnflow.kernels.csr import Csr, rows_of
from gnnflow.kernels.cuda.launch import Division, Tile, device_of, launch, merge


def weighted_sum(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the sum over each target's in-edges of coefficient [E, H] x value [S, H or 1, D]: [T, H, D].

    A missing coefficient is one; a value with a single head serves every head. Targets without in-edges give zero.
    """
    coefficient = None if coefficient is None else coefficient.float()
    return gradients.weighted_sum(LOOPS, csr, coefficient, value)


class Chosen(NamedTuple):
    """The one edge that each number of a source counts for: edge begins[s] + places[s, h, d] of all edges.

    places: [S, H, D]. begins: [S + 1], the first edge of each source.
    """

    places: Tensor
    begins: Tensor


def sums(
    csr: Csr, coefficient: Tensor | None, value: Tensor, *, edges: Tensor | None = None, chosen: Chosen | None = None
) -> Tensor:
    """Return the weighted sums [T, H, D] in float32, without a gradient.

    coefficient: float32. edges [E]: the coefficient row of each edge; None where edge e has row e. Raises IndexError if
    an operand has too few or too many rows.
    """
    from gnnflow.kernels.cuda.sum_programs import sum_pieces, sum_rows

    value = rows_of(csr.num_sources, value)
    coefficient = None if coefficient is None else rows_of(csr.num_edges, coefficient)
    heads, width = value.shape[1] if coefficient is None else coefficient.shape[1], value.shape[2]
    out = value.new_empty(csr.num_targets, heads, width, dtype=torch.float32)
    if not out.numel():
        return out
    division = Division.of(csr)
    pieces = division.pieces(out)
    grid, constants = launch(division, coefficient, value)
    with device_of(value):
        sum_rows[grid](
            csr.offsets,
            csr.sources,
            edges,
            coefficient,
            value,
            *(chosen or (None, None)),
            out,
            pieces,
            *division.tables,
            csr.num_targets,
            ORDERED=edges is not None,
            WEIGHTED=coefficient is not None,
            CHOSEN=chosen is not None,
            **constants,
        )
        if division.hubs is not None:
            merge(sum_pieces, division.hubs, [pieces], [out])
    return out


def products(csr: Csr, left: Tensor, right: Tensor) -> Tensor:
    """Return per edge and head the dot product of the target's left and the source's right row: [E, H].

    left [T, H, D]; right [S, H or 1, D]; the products are float32. Raises IndexError if an operand has too few or too
    many rows.
    """
    from gnnflow.kernels.cuda.sum_programs import multiply_rows

    left, right = rows_of(csr.num_targets, left), rows_of(csr.num_sources, right)
    heads, width = left.shape[1:]
    out = left.new_empty(csr.num_edges, heads, dtype=torch.float32)
    if not out.numel():
        return out
    if not width:
        return out.zero_()
    tile = Tile.multiplied(heads, width)
    with device_of(left):
        multiply_rows[-(-csr.num_edges // tile.rows), -(-heads // tile.heads)](
            csr.targets,
            csr.sources,
            left,
            right,
            out,
            csr.num_edges,
            HEADS=heads,
            WIDTH=width,
            RIGHT_HEADS=right.shape[1],
            TILE_EDGES=tile.rows,
            TILE_HEADS=tile.heads,
            TILE_WIDTH=tile.width,
            num_warps=1,
        )
    return out


LOOPS = gradients.Loops(sums, products)
gather_sources, gather_targets = LOOPS.gather_sources, LOOPS.gather_targets


def _largest(csr: Csr, coefficient: Tensor | None, value: Tensor) -> gradients.Maxima:
    from gnnflow.kernels.cuda.largest_programs import largest_pieces, largest_rows

    heads, width = value.shape[1] if coefficient is None else coefficient.shape[1], value.shape[2]
    largest = value.new_empty(csr.num_targets, heads, width, dtype=torch.float32)
    places = torch.empty_like(largest, dtype=torch.int32)
    if not largest.numel():
        return gradients.Maxima(largest, places)
    division, found = Division.of(csr), [largest, places]
    pieces = [division.pieces(each) for each in found]
    grid, constants = launch(division, coefficient, value)
    with device_of(value):
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
    return gradients.Maxima(largest, places)


def _maximum_gradient(csr: Csr, coefficient: Tensor | None, places: Tensor, grad: Tensor, value_heads: int) -> Tensor:
    # each source's sum over its out-edges of the gradients of the numbers that these edges contributed
    chosen = Chosen(places, csr.offsets)
    out = sums(csr.transposed, coefficient, grad, edges=csr.by_source.sources, chosen=chosen)
    # a value that serves every head gets the sum of their gradients
    return out if out.shape[1] == value_heads else out.sum(1, keepdim=True)


segment_max = gradients.Extremes(_largest, _maximum_gradient).segment_max
