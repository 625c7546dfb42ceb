"""Weighted sums over in-edges and products per edge.

Rows in half precision are read as they are; coefficients and sums are float32. Where autograd sees a sum, it has been
rounded once, to the type of the rows.

Shapes: T targets, S sources, E edges, H heads, D width of a head, K = H x D columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnflow.kernels import gradients
from gnnflow.kernels.csr import Csr, rows_of
from gnnflow.kernels.cuda.hubs import Hubs, hubs_of
from gnnflow.kernels.cuda.library import on_card_of, power_of_two, warps

_TILE = 512  # numbers that a program adds at a time
_MOST_COLUMNS = 256
_LONGEST = 1024  # edges that one program walks
_NARROW = 32
"""Columns up to which targets are added side by side: one alone would leave a program with too little to do."""
_NARROW_TILE = 256  # targets x columns of a program: four numbers for each of the threads of two warps
_MOST_TARGETS = 64
_LONGEST_NARROW = 256  # fewer: the other targets of a program wait for its longest


def weighted_sum(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the sum over each target's in-edges of coefficient [E, H] x value [S, H or 1, D]: [T, H, D].

    A missing coefficient is one; a value with a single head serves every head. Targets without in-edges give zero.
    """
    coefficient = None if coefficient is None else coefficient.float()
    return gradients.weighted_sum(LOOPS, csr, coefficient, value)


def tile_of(columns: int) -> tuple[int, int]:
    """Return how many edges and how many columns a program adds at a time; both are powers of two."""
    wide = min(power_of_two(columns), _MOST_COLUMNS)
    return min(max(_TILE // wide, 4), 32), wide


class _Walk(NamedTuple):
    """How a program goes over edges: of how many targets side by side, of at most how many each, in which tiles."""

    program: Any
    targets: int
    longest: int
    tile: dict[str, int]
    num_warps: int

    @staticmethod
    def of(columns: int) -> _Walk:
        from gnnflow.kernels.cuda.sum_programs import sum_narrow_rows, sum_rows

        if columns > _NARROW:
            high, wide = tile_of(columns)
            tile = {"TILE_EDGES": high, "TILE_COLUMNS": wide}
            return _Walk(sum_rows, 1, _LONGEST, tile, warps(high * wide))
        wide = power_of_two(columns)
        targets = min(_NARROW_TILE // wide, _MOST_TARGETS)
        tile = {"TILE_TARGETS": targets, "TILE_EDGES": 4, "TILE_COLUMNS": wide}
        return _Walk(sum_narrow_rows, targets, _LONGEST_NARROW, tile, 2)


def sums(csr: Csr, coefficient: Tensor | None, value: Tensor, *, edges: Tensor | None = None) -> Tensor:
    """Return the weighted sums [T, H, D] in float32, without a gradient.

    coefficient: float32. edges [E]: the row of each edge among the coefficients, where that is not its own. Raises
    IndexError where an operand has not as many rows as the adjacency.
    """
    value = rows_of(csr.num_sources, value)
    coefficient = None if coefficient is None else rows_of(csr.num_edges, coefficient)
    heads, width = value.shape[1] if coefficient is None else coefficient.shape[1], value.shape[2]
    columns = heads * width
    out = value.new_empty(csr.num_targets, heads, width, dtype=torch.float32)
    if not out.numel():
        return out
    walk = _Walk.of(columns)
    hubs = hubs_of(csr, walk.longest)
    pieces = None if hubs is None else out.new_empty(len(hubs.piece_targets), columns)
    with on_card_of(value):
        programs = -(-csr.num_targets // walk.targets) + (0 if pieces is None else len(pieces))
        walk.program[programs, -(-columns // walk.tile["TILE_COLUMNS"])](
            csr.offsets,
            csr.sources,
            edges,
            coefficient,
            value,
            out,
            pieces,
            None if hubs is None else hubs.piece_targets,
            None if hubs is None else hubs.first_pieces,
            csr.num_targets,
            columns,
            width,
            heads,
            value.shape[1] * width,
            ORDERED=edges is not None,
            WEIGHTED=coefficient is not None,
            DIVIDED=hubs is not None,
            LONGEST=walk.longest,
            **walk.tile,
            num_warps=walk.num_warps,
        )
        if hubs is not None and pieces is not None:
            _add_pieces(hubs, pieces, out.view(-1, columns), wide=walk.tile["TILE_COLUMNS"])
    return out


def _add_pieces(hubs: Hubs, pieces: Tensor, out: Tensor, *, wide: int) -> None:
    """Write the sums [T, K] of the targets whose edges were divided into pieces [P, K]."""
    from gnnflow.kernels.cuda.sum_programs import sum_pieces

    num_targets, columns = out.shape
    sum_pieces[len(hubs.hub_targets), -(-columns // wide)](
        pieces,
        hubs.first_pieces,
        hubs.num_pieces,
        hubs.hub_targets,
        out,
        num_targets,
        columns,
        TILE_COLUMNS=wide,
        num_warps=1,
    )


def products(csr: Csr, left: Tensor, right: Tensor) -> Tensor:
    """Return per edge and head the dot product of its target's row of left [T, H, D] and its source's of right: [E, H].

    right has a single head or H; the products are float32. Raises IndexError where an operand has not as many rows as
    the adjacency.
    """
    from gnnflow.kernels.cuda.sum_programs import multiply_rows

    left, right = rows_of(csr.num_targets, left), rows_of(csr.num_sources, right)
    heads, width = left.shape[1:]
    out = left.new_empty(csr.num_edges, heads, dtype=torch.float32)
    if not out.numel():
        return out
    if not width:
        return out.zero_()
    high, wide = tile_of(width)
    with on_card_of(left):
        multiply_rows[-(-csr.num_edges // high), heads](
            csr.targets,
            csr.sources,
            left,
            right,
            out,
            csr.num_edges,
            width,
            heads,
            right.shape[1] * width,
            TILE_EDGES=high,
            TILE_COLUMNS=wide,
            num_warps=warps(high * wide),
        )
    return out


LOOPS = gradients.Loops(sums, products)
gather_sources, gather_targets = LOOPS.gather_sources, LOOPS.gather_targets
