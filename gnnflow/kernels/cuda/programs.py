"""The Triton programs: each computes one block of one target's columns, or one block of edges.

A tile is [edges, columns] of float32 numbers. Columns of a target are its heads side by side: column k belongs to head
k // width. Values of a single head serve every head; they are then `width` columns wide.

Shapes: T targets, S sources, E edges, H heads, K = H x width columns, P pieces of hubs.
"""

from __future__ import annotations

from typing import Any

import triton
from triton import language as tl


@triton.jit  # type: ignore[untyped-decorator]
def sum_rows(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    offsets: Any,
    sources: Any,
    edges: Any,
    coefficients: Any,
    values: Any,
    sums: Any,
    piece_sums: Any,
    piece_targets: Any,
    first_pieces: Any,
    num_targets: Any,
    columns: Any,
    width: Any,
    heads: Any,
    value_columns: Any,
    ORDERED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    DIVIDED: tl.constexpr,
    LONGEST: tl.constexpr,
    TILE_EDGES: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
) -> None:
    """Write sums[t] of a target of at most LONGEST edges, or piece_sums[p] of a piece of a longer one.

    edges: the row of each edge among the coefficients, where ORDERED.
    """
    target = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    out = sums + target * columns
    begin = tl.load(offsets + target, mask=target < num_targets, other=0)
    end = tl.load(offsets + target + 1, mask=target < num_targets, other=0)
    is_there = end - begin <= LONGEST
    if DIVIDED:
        piece = target - num_targets
        if piece >= 0:
            target = tl.load(piece_targets + piece)
            out = piece_sums + piece * columns
            is_there = target < num_targets
            first = tl.load(first_pieces + target, mask=is_there, other=0)
            begin = tl.load(offsets + target, mask=is_there, other=0) + (piece - first) * LONGEST
            end = tl.load(offsets + target + 1, mask=is_there, other=0)
            end = tl.minimum(end, begin + LONGEST)
    end = tl.where(is_there, end, begin)
    # columns of the values, and the head of each [TILE_COLUMNS]
    within = column < columns
    value_column = column % value_columns
    head = column // width
    total = tl.zeros((TILE_EDGES, TILE_COLUMNS), tl.float32)
    for start in range(begin, end, TILE_EDGES):
        edge = start + tl.arange(0, TILE_EDGES)
        held = edge < end
        source = tl.load(sources + edge, mask=held, other=0)
        inside = held[:, None] & within[None, :]
        tile = tl.load(values + source[:, None] * value_columns + value_column[None, :], mask=inside, other=0.0)
        if WEIGHTED:
            place = edge
            if ORDERED:
                place = tl.load(edges + edge, mask=held, other=0)
            factor = tl.load(coefficients + place[:, None] * heads + head[None, :], mask=inside, other=0.0)
            total += tile.to(tl.float32) * factor
        else:
            total += tile.to(tl.float32)
    tl.store(out + column, tl.sum(total, axis=0), mask=within & is_there)


@triton.jit  # type: ignore[untyped-decorator]
def sum_pieces(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    piece_sums: Any,
    first_pieces: Any,
    num_pieces: Any,
    hub_targets: Any,
    sums: Any,
    num_targets: Any,
    columns: Any,
    TILE_COLUMNS: tl.constexpr,
) -> None:
    """Write sums[t] of a target whose edges were divided: its pieces' sums, added in order."""
    target = tl.load(hub_targets + tl.program_id(0))
    column = tl.program_id(1) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    is_there = target < num_targets
    begin = tl.load(first_pieces + target, mask=is_there, other=0)
    end = begin + tl.load(num_pieces + target, mask=is_there, other=0)
    within = column < columns
    total = tl.zeros((TILE_COLUMNS,), tl.float32)
    for piece in range(begin, end):
        total += tl.load(piece_sums + piece * columns + column, mask=within, other=0.0)
    tl.store(sums + target * columns + column, total, mask=within & is_there)


@triton.jit  # type: ignore[untyped-decorator]
def multiply_rows(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    targets: Any,
    sources: Any,
    left: Any,
    right: Any,
    products: Any,
    num_edges: Any,
    width: Any,
    heads: Any,
    right_columns: Any,
    TILE_EDGES: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
) -> None:
    """Write products[e, h]: the dot product of a head of the edge's target's row of left and its source's of right."""
    edge = tl.program_id(0).to(tl.int64) * TILE_EDGES + tl.arange(0, TILE_EDGES)
    head = tl.program_id(1)
    held = edge < num_edges
    target = tl.load(targets + edge, mask=held, other=0)
    source = tl.load(sources + edge, mask=held, other=0)
    total = tl.zeros((TILE_EDGES, TILE_COLUMNS), tl.float32)
    for start in range(0, width, TILE_COLUMNS):
        place = start + tl.arange(0, TILE_COLUMNS)
        inside = held[:, None] & (place < width)[None, :]
        column = head * width + place
        own = tl.load(left + target[:, None] * (heads * width) + column[None, :], mask=inside, other=0.0)
        other = tl.load(
            right + source[:, None] * right_columns + (column % right_columns)[None, :], mask=inside, other=0.0
        )
        total += own.to(tl.float32) * other.to(tl.float32)
    tl.store(products + edge * heads + head, tl.sum(total, axis=1), mask=held)


@triton.jit  # type: ignore[untyped-decorator]
def softmax_rows(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    offsets: Any,
    logits: Any,
    factors: Any,
    kept: Any,
    maxima: Any,
    denominators: Any,
    weights: Any,
    used: Any,
    heads: Any,
    SCALED: tl.constexpr,
    DROPPED: tl.constexpr,
    TILE_EDGES: tl.constexpr,
    TILE_HEADS: tl.constexpr,
) -> None:
    """Write of each head of a target the largest logit, each edge's exp(logit - that) x factor, and the sum of these.

    used: the weights times kept, where DROPPED.
    """
    target = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, TILE_HEADS)
    within = head < heads
    begin, end = tl.load(offsets + target), tl.load(offsets + target + 1)
    largest = tl.full((TILE_HEADS,), float("-inf"), tl.float32)
    for start in range(begin, end, TILE_EDGES):
        edge = start + tl.arange(0, TILE_EDGES)
        inside = (edge < end)[:, None] & within[None, :]
        tile = tl.load(logits + edge[:, None] * heads + head[None, :], mask=inside, other=float("-inf"))
        largest = tl.maximum(largest, tl.max(tile, axis=0))
    shift = tl.where(within, largest, 0.0)  # places beside the heads hold no number to subtract
    total = tl.zeros((TILE_EDGES, TILE_HEADS), tl.float32)
    for start in range(begin, end, TILE_EDGES):
        edge = start + tl.arange(0, TILE_EDGES)
        inside = (edge < end)[:, None] & within[None, :]
        place = edge[:, None] * heads + head[None, :]
        weight = tl.exp(tl.load(logits + place, mask=inside, other=float("-inf")) - shift[None, :])
        if SCALED:
            weight = weight * tl.load(factors + edge, mask=edge < end, other=0.0)[:, None]
        tl.store(weights + place, weight, mask=inside)
        if DROPPED:
            tl.store(used + place, weight * tl.load(kept + place, mask=inside, other=0.0), mask=inside)
        total += tl.where(inside, weight, 0.0)
    tl.store(maxima + target * heads + head, largest, mask=within)
    tl.store(denominators + target * heads + head, tl.sum(total, axis=0), mask=within)


@triton.jit  # type: ignore[untyped-decorator]
def largest_rows(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    offsets: Any,
    sources: Any,
    coefficients: Any,
    values: Any,
    maxima: Any,
    places: Any,
    columns: Any,
    width: Any,
    heads: Any,
    value_columns: Any,
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
    offsets: Any,
    targets: Any,
    edges: Any,
    begins: Any,
    coefficients: Any,
    places: Any,
    gradients: Any,
    out: Any,
    columns: Any,
    width: Any,
    heads: Any,
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
