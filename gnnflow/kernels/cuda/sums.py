"""Weighted sums over in-edges and products per edge.

Rows in half precision are read as they are; coefficients and sums are float32. Where autograd sees a sum, it has been
rounded once, to the type of the rows.

Shapes: T targets, S sources, E edges, H heads, D width of a head, K = H x D columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnflow.kernels import gradients
from gnnflow.kernels.csr import Csr, rows_of
from gnnflow.kernels.cuda.hubs import Division, Hubs
from gnnflow.kernels.cuda.library import on_card_of, power_of_two

_MOST_TARGETS = 16
_MULTIPLIED, _MOST_MULTIPLIED = 512, 256  # numbers that a program multiplies at a time, and of one edge


def weighted_sum(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the sum over each target's in-edges of coefficient [E, H] x value [S, H or 1, D]: [T, H, D].

    A missing coefficient is one; a value with a single head serves every head. Targets without in-edges give zero.
    """
    coefficient = None if coefficient is None else coefficient.float()
    return gradients.weighted_sum(LOOPS, csr, coefficient, value)


class Chosen(NamedTuple):
    """Which edge each number of a source is for: of places [S, H, D] the one so far behind begins [S] ([S + 1])."""

    places: Tensor
    begins: Tensor


class Tile(NamedTuple):
    """What a program adds or multiplies at a time: [rows, heads, width], powers of two. rows: targets, or edges."""

    rows: int
    heads: int
    width: int

    @staticmethod
    def added(heads: int, width: int) -> Tile:
        """Return the tile of sums, for one warp: the fastest of those tried (docs/performance.md).

        Four numbers for each thread where it can read them at once, else two.
        """
        numbers = 32 * (4 if width % 4 == 0 else 2)
        wide = min(power_of_two(width), numbers)
        high = min(power_of_two(heads), numbers // wide)
        return Tile(min(numbers // (high * wide), _MOST_TARGETS), high, wide)

    @staticmethod
    def multiplied(heads: int, width: int) -> Tile:
        """Return the tile of products."""
        wide = min(power_of_two(width), _MOST_MULTIPLIED)
        high = min(power_of_two(heads), _MOST_MULTIPLIED // wide)
        return Tile(min(max(_MULTIPLIED // (high * wide), 4), 64), high, wide)


def sums(
    csr: Csr, coefficient: Tensor | None, value: Tensor, *, edges: Tensor | None = None, chosen: Chosen | None = None
) -> Tensor:
    """Return the weighted sums [T, H, D] in float32, without a gradient.

    coefficient: float32. edges [E]: the row of each edge among the coefficients, where that is not its own. Raises
    IndexError where an operand has not as many rows as the adjacency.
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
    with on_card_of(value):
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


def launch(
    division: Division, coefficient: Tensor | None, value: Tensor
) -> tuple[tuple[int, int, int], dict[str, int]]:
    """Return how many programs go over edges, and what these are compiled with.

    coefficient, value: as `sums` takes them.
    """
    _, value_heads, width = value.shape
    heads = value_heads if coefficient is None else coefficient.shape[1]
    if coefficient is None:  # then heads do not differ: they are one that is as wide as all
        heads, width, value_heads = 1, heads * width, 1
    tile = Tile.added(heads, width)
    constants = {"HEADS": heads, "WIDTH": width, "VALUE_HEADS": value_heads, **division.options}
    constants |= {"TILE_TARGETS": tile.rows, "TILE_HEADS": tile.heads, "TILE_WIDTH": tile.width, "num_warps": 1}
    return (division.programs(tile.rows), -(-heads // tile.heads), -(-width // tile.width)), constants


def merge(program: Any, hubs: Hubs, pieces: Sequence[Tensor | None], out: Sequence[Tensor]) -> None:
    """Have a program write what of `out` [T, ...] is of targets whose edges were divided into pieces [P, ...]."""
    columns = out[0][0].numel()
    tile = Tile.multiplied(1, columns)
    program[len(hubs.hub_targets), -(-columns // tile.width)](
        *pieces,
        hubs.first_pieces,
        hubs.num_pieces,
        hubs.hub_targets,
        *out,
        len(out[0]),
        columns,
        TILE_PIECES=tile.rows,
        TILE_COLUMNS=tile.width,
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
    tile = Tile.multiplied(heads, width)
    with on_card_of(left):
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
