"""The largest message per target and channel, and its gradient.

Shapes: T targets, S sources, E edges, H heads, D width of a head, P pieces of hubs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnflow.kernels import gradients
from gnnflow.kernels.csr import Csr
from gnnflow.kernels.cuda.hubs import Division, Hubs
from gnnflow.kernels.cuda.library import on_card_of
from gnnflow.kernels.cuda.sums import Chosen, Tile, sums


def _largest(csr: Csr, coefficient: Tensor | None, value: Tensor) -> tuple[Tensor, Tensor]:
    from gnnflow.kernels.cuda.largest_programs import largest_rows

    heads, width = value.shape[1] if coefficient is None else coefficient.shape[1], value.shape[2]
    largest = value.new_empty(csr.num_targets, heads, width, dtype=torch.float32)
    places = torch.empty_like(largest, dtype=torch.int32)
    if not largest.numel():
        return largest, places
    division = Division.of(csr)
    pieces = division.pieces(largest, heads * width), division.pieces(places, heads * width)
    shape = (1, heads * width, 1) if coefficient is None else (heads, width, value.shape[1])
    tile = Tile.added(*shape[:2])
    with on_card_of(value):
        largest_rows[division.programs(tile.rows), -(-shape[0] // tile.heads), -(-shape[1] // tile.width)](
            csr.offsets,
            csr.sources,
            coefficient,
            value,
            largest,
            places,
            *pieces,
            *division.tables,
            csr.num_targets,
            *shape,
            WEIGHTED=coefficient is not None,
            **division.options,
            TILE_TARGETS=tile.rows,
            TILE_HEADS=tile.heads,
            TILE_WIDTH=tile.width,
            num_warps=1,
        )
        if division.hubs is not None:
            _compare_pieces(division.hubs, pieces, (largest, places))
    return largest, places


def _compare_pieces(hubs: Hubs, pieces: tuple[Tensor | None, Tensor | None], found: tuple[Tensor, Tensor]) -> None:
    """Write the maxima and places [T, H, D] of the targets whose edges were divided into pieces [P, H x D]."""
    from gnnflow.kernels.cuda.largest_programs import largest_pieces

    columns = found[0][0].numel()
    tile = Tile.multiplied(1, columns)
    largest_pieces[len(hubs.hub_targets), -(-columns // tile.width)](
        *pieces,
        hubs.first_pieces,
        hubs.num_pieces,
        hubs.hub_targets,
        *found,
        len(found[0]),
        columns,
        TILE_PIECES=tile.rows,
        TILE_COLUMNS=tile.width,
        num_warps=1,
    )


def _gradient(csr: Csr, coefficient: Tensor | None, places: Tensor, grad: Tensor, value_heads: int) -> Tensor:
    # each source's sum over its out-edges of the gradients of those numbers that came along them
    chosen = Chosen(places, csr.offsets)
    out = sums(csr.transposed, coefficient, grad, edges=csr.by_source.sources, chosen=chosen)
    # A value that serves every head collects the gradients of all.
    return out if out.shape[1] == value_heads else out.sum(1, keepdim=True)


segment_max = gradients.Extremes(_largest, _gradient).segment_max
