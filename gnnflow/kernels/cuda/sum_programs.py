"""The Triton programs of sums: each adds the rows of a few targets, or multiplies one block of edges.

A tile is [targets, heads, width] of float32 numbers, or [edges, heads, width] where products are made.

Shapes: T targets, S sources, E edges, H heads, P pieces of hubs.
"""

from __future__ import annotations

import triton
from triton import language as tl

from gnnflow.kernels.cuda.edge_programs import four_messages, four_sources, pieces_of, span_of


@triton.jit  # type: ignore[untyped-decorator]
def sum_rows(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    offsets: tl.tensor,
    sources: tl.tensor,
    edges: tl.tensor,
    factors: tl.tensor,
    values: tl.tensor,
    places: tl.tensor,
    begins: tl.tensor,
    sums: tl.tensor,
    piece_sums: tl.tensor,
    piece_targets: tl.tensor,
    first_pieces: tl.tensor,
    num_targets: tl.tensor,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    VALUE_HEADS: tl.constexpr,
    ORDERED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    CHOSEN: tl.constexpr,
    DIVIDED: tl.constexpr,
    LONGEST: tl.constexpr,
    TILE_TARGETS: tl.constexpr,
    TILE_HEADS: tl.constexpr,
    TILE_WIDTH: tl.constexpr,
) -> None:
    """Write sums[t] of targets with at most LONGEST edges, or piece_sums[p] of a piece of a hub.

    `span_of` and `message_of` describe the other arguments.
    """
    target, _, begin, end, is_there, piece = span_of(
        offsets, piece_targets, first_pieces, num_targets, DIVIDED, LONGEST, TILE_TARGETS
    )
    head = tl.program_id(1) * TILE_HEADS + tl.arange(0, TILE_HEADS)
    place = tl.program_id(2) * TILE_WIDTH + tl.arange(0, TILE_WIDTH)
    total = tl.zeros((TILE_TARGETS, TILE_HEADS, TILE_WIDTH), tl.float32)
    # four edges at a time; their sources are read while the rows of the previous four arrive
    source_0, source_1, source_2, source_3 = four_sources(begin, end, sources)
    for start in range(0, tl.max((end - begin).to(tl.int32), axis=0), 4):
        edge = begin + start
        # fmt: off
        message_0, message_1, message_2, message_3 = four_messages(
            source_0, source_1, source_2, source_3, edge, end, head, place, edges, factors, values, places, begins,
            HEADS, WIDTH, VALUE_HEADS, ORDERED, WEIGHTED, CHOSEN, 0.0,
        )
        # fmt: on
        source_0, source_1, source_2, source_3 = four_sources(edge + 4, end, sources)
        total = total + message_0 + message_1 + message_2 + message_3
    # the offsets of a row's numbers [heads, width]
    column, within = head[:, None] * WIDTH + place[None, :], (head < HEADS)[:, None] & (place < WIDTH)[None, :]
    if DIVIDED:  # noqa: SIM102 - decided when the program is compiled
        if piece >= 0:
            tl.store(piece_sums + piece * (HEADS * WIDTH) + column, tl.sum(total, axis=0), mask=within)
            is_there = is_there & (piece < 0)
    tl.store(
        sums + target[:, None, None] * (HEADS * WIDTH) + column[None, :, :],
        total,
        mask=is_there[:, None, None] & within[None, :, :],
    )


@triton.jit  # type: ignore[untyped-decorator]
def sum_pieces(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    piece_sums: tl.tensor,
    first_pieces: tl.tensor,
    num_pieces: tl.tensor,
    hub_targets: tl.tensor,
    sums: tl.tensor,
    num_targets: tl.tensor,
    columns: tl.tensor,
    TILE_PIECES: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
) -> None:
    """Write sums[t] of a hub: first the sums of every TILE_PIECES-th piece in order, then their sum."""
    target, begin, end, is_there = pieces_of(first_pieces, num_pieces, hub_targets, num_targets)
    column = tl.program_id(1) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    within = column < columns
    total = tl.zeros((TILE_PIECES, TILE_COLUMNS), tl.float32)
    for start in range(begin, end, TILE_PIECES):
        piece = start + tl.arange(0, TILE_PIECES)
        inside = (piece < end)[:, None] & within[None, :]
        total += tl.load(piece_sums + piece[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(sums + target * columns + column, tl.sum(total, axis=0), mask=within & is_there)


@triton.jit  # type: ignore[untyped-decorator]
def multiply_rows(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    targets: tl.tensor,
    sources: tl.tensor,
    left: tl.tensor,
    right: tl.tensor,
    products: tl.tensor,
    num_edges: tl.tensor,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    RIGHT_HEADS: tl.constexpr,
    TILE_EDGES: tl.constexpr,
    TILE_HEADS: tl.constexpr,
    TILE_WIDTH: tl.constexpr,
) -> None:
    """Write products[e, h]: the dot product of one head of the target's left and the source's right row.

    right has a single head, which serves all, or as many as left.
    """
    edge = tl.program_id(0).to(tl.int64) * TILE_EDGES + tl.arange(0, TILE_EDGES)
    head = tl.program_id(1) * TILE_HEADS + tl.arange(0, TILE_HEADS)
    held = edge < num_edges
    target = tl.load(targets + edge, mask=held, other=0)
    source = tl.load(sources + edge, mask=held, other=0)
    inside = held[:, None] & (head < HEADS)[None, :]
    # the rows of heads [edges, heads]
    own = target[:, None] * HEADS + head[None, :]
    other = source[:, None] * RIGHT_HEADS + (head if RIGHT_HEADS == HEADS else head * 0)[None, :]
    total = tl.zeros((TILE_EDGES, TILE_HEADS, TILE_WIDTH), tl.float32)
    for start in range(0, WIDTH, TILE_WIDTH):
        place = (start + tl.arange(0, TILE_WIDTH))[None, None, :]
        whole = inside[:, :, None] & (place < WIDTH)
        product = tl.load(left + own[:, :, None] * WIDTH + place, mask=whole, other=0.0).to(tl.float32)
        total += product * tl.load(right + other[:, :, None] * WIDTH + place, mask=whole, other=0.0).to(tl.float32)
    tl.store(products + edge[:, None] * HEADS + head[None, :], tl.sum(total, axis=2), mask=inside)
