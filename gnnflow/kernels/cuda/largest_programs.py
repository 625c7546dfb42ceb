"""The Triton programs of maxima: each computes one block of one target's columns, or of one source's gradients.

Columns of a target are its heads side by side: column k belongs to head k // width. Values of a single head serve
every head; they are then `width` columns wide.

Shapes: T targets, S sources, E edges, H heads, K = H x width columns.
"""

from __future__ import annotations

import triton
from triton import language as tl


@triton.jit  # type: ignore[untyped-decorator]
def largest_rows(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    offsets: tl.tensor,
    sources: tl.tensor,
    coefficients: tl.tensor,
    values: tl.tensor,
    maxima: tl.tensor,
    places: tl.tensor,
    columns: tl.tensor,
    width: tl.tensor,
    heads: tl.tensor,
    value_columns: tl.tensor,
    WEIGHTED: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
) -> None:
    """Write the largest message of each column of a target, and the place among its edges of the first that has it."""
    target = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    within = column < columns
    value_column = column % value_columns
    head = column // width
    begin, end = tl.load(offsets + target), tl.load(offsets + target + 1)
    largest = tl.full((TILE_COLUMNS,), float("-inf"), tl.float32)
    place = tl.zeros((TILE_COLUMNS,), tl.int32)
    for edge in range(begin, end):
        source = tl.load(sources + edge)
        message = tl.load(values + source * value_columns + value_column, mask=within, other=0.0).to(tl.float32)
        if WEIGHTED:
            message *= tl.load(coefficients + edge * heads + head, mask=within, other=0.0)
        # what is no number counts as the largest, as torch has it
        is_larger = (message > largest) | ((message != message) & (largest == largest))  # noqa: PLR0124 - what is no number is not itself
        largest = tl.where(is_larger, message, largest)
        place = tl.where(is_larger, (edge - begin).to(tl.int32), place)
    tl.store(maxima + target * columns + column, largest, mask=within)
    tl.store(places + target * columns + column, place, mask=within)


@triton.jit  # type: ignore[untyped-decorator]
def largest_rows_gradient(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    offsets: tl.tensor,
    targets: tl.tensor,
    edges: tl.tensor,
    begins: tl.tensor,
    coefficients: tl.tensor,
    places: tl.tensor,
    gradients: tl.tensor,
    out: tl.tensor,
    columns: tl.tensor,
    width: tl.tensor,
    heads: tl.tensor,
    WEIGHTED: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
) -> None:
    """Write of each source the gradients of those of its targets' columns that its message was the largest of.

    offsets, targets and edges: the reversed adjacency, and the place of each of its edges in the adjacency; begins:
    where each target's edges begin there.
    """
    source = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    within = column < columns
    head = column // width
    begin, end = tl.load(offsets + source), tl.load(offsets + source + 1)
    total = tl.zeros((TILE_COLUMNS,), tl.float32)
    for number in range(begin, end):
        target = tl.load(targets + number)
        edge = tl.load(edges + number)
        place = tl.load(places + target * columns + column, mask=within, other=-1)
        gradient = tl.load(gradients + target * columns + column, mask=within, other=0.0)
        if WEIGHTED:
            gradient *= tl.load(coefficients + edge * heads + head, mask=within, other=0.0)
        total += tl.where(place == edge - tl.load(begins + target), gradient, 0.0)
    tl.store(out + source * columns + column, total, mask=within)
