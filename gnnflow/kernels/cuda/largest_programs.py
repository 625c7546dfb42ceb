"""The Triton programs of maxima: each finds the largest messages of a few targets, and the edges they come from.

A tile is [targets, heads, width]. A place is the position of an edge among its target's edges. Of equal messages the
first is taken. NaN counts as the largest value, as in torch.

Shapes: T targets, S sources, E edges, H heads, P pieces of hubs.
"""

from __future__ import annotations

import triton
from triton import language as tl

from gnnflow.kernels.cuda.edge_programs import four_messages, four_sources, pieces_of, span_of


@triton.jit  # type: ignore[untyped-decorator]
def larger_of(largest: tl.tensor, place: tl.tensor, message: tl.tensor, at: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Return the largest message so far and its place, after some more messages."""
    is_larger = (message > largest) | ((message != message) & (largest == largest))  # noqa: PLR0124 - NaN differs from itself
    return tl.where(is_larger, message, largest), tl.where(is_larger, at, place)


@triton.jit  # type: ignore[untyped-decorator]
def largest_along(found: tl.tensor, place: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Return the largest number of each column of found [rows, ...], and the least place that has it."""
    is_none = found != found  # noqa: PLR0124 - NaN differs from itself
    has_none = tl.max(is_none.to(tl.int32), axis=0) > 0
    largest = tl.max(tl.where(is_none, float("-inf"), found), axis=0)
    has_it = tl.where(has_none[None, :], is_none, found == largest[None, :])
    least = tl.min(tl.where(has_it, place, 2147483647), axis=0)
    return tl.where(has_none, float("nan"), largest), least


@triton.jit  # type: ignore[untyped-decorator]
def largest_rows(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    offsets: tl.tensor,
    sources: tl.tensor,
    factors: tl.tensor,
    values: tl.tensor,
    maxima: tl.tensor,
    places: tl.tensor,
    piece_maxima: tl.tensor,
    piece_places: tl.tensor,
    piece_targets: tl.tensor,
    first_pieces: tl.tensor,
    num_targets: tl.tensor,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    VALUE_HEADS: tl.constexpr,
    WEIGHTED: tl.constexpr,
    DIVIDED: tl.constexpr,
    LONGEST: tl.constexpr,
    TILE_TARGETS: tl.constexpr,
    TILE_HEADS: tl.constexpr,
    TILE_WIDTH: tl.constexpr,
) -> None:
    """Write maxima[t] and places[t] of targets with at most LONGEST edges, or the same of a piece of a hub.

    `span_of` and `message_of` describe the other arguments.
    """
    target, first, begin, end, is_there, piece = span_of(
        offsets, piece_targets, first_pieces, num_targets, DIVIDED, LONGEST, TILE_TARGETS
    )
    head = tl.program_id(1) * TILE_HEADS + tl.arange(0, TILE_HEADS)
    width = tl.program_id(2) * TILE_WIDTH + tl.arange(0, TILE_WIDTH)
    largest = tl.full((TILE_TARGETS, TILE_HEADS, TILE_WIDTH), float("-inf"), tl.float32)
    place = tl.zeros((TILE_TARGETS, TILE_HEADS, TILE_WIDTH), tl.int32)
    # as in sum_rows; messages past the end are -inf
    source_0, source_1, source_2, source_3 = four_sources(begin, end, sources)
    for start in range(0, tl.max((end - begin).to(tl.int32), axis=0), 4):
        edge = begin + start
        # fmt: off
        message_0, message_1, message_2, message_3 = four_messages(
            source_0, source_1, source_2, source_3, edge, end, head, width, None, factors, values, None, None,
            HEADS, WIDTH, VALUE_HEADS, ORDERED=False, WEIGHTED=WEIGHTED, CHOSEN=False, BEHIND=float("-inf"),
        )
        # fmt: on
        source_0, source_1, source_2, source_3 = four_sources(edge + 4, end, sources)
        at = (edge - first).to(tl.int32)[:, None, None]
        largest, place = larger_of(largest, place, message_0, at)
        largest, place = larger_of(largest, place, message_1, at + 1)
        largest, place = larger_of(largest, place, message_2, at + 2)
        largest, place = larger_of(largest, place, message_3, at + 3)
    # the offsets of a row's numbers [heads, width]
    column, within = head[:, None] * WIDTH + width[None, :], (head < HEADS)[:, None] & (width < WIDTH)[None, :]
    if DIVIDED:  # noqa: SIM102 - decided when the program is compiled
        if piece >= 0:
            piece_largest, piece_place = largest_along(largest, place)
            tl.store(piece_maxima + piece * (HEADS * WIDTH) + column, piece_largest, mask=within)
            tl.store(piece_places + piece * (HEADS * WIDTH) + column, piece_place, mask=within)
            is_there = is_there & (piece < 0)
    out = target[:, None, None] * (HEADS * WIDTH) + column[None, :, :]
    tl.store(maxima + out, largest, mask=is_there[:, None, None] & within[None, :, :])
    tl.store(places + out, place, mask=is_there[:, None, None] & within[None, :, :])


@triton.jit  # type: ignore[untyped-decorator]
def largest_pieces(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    piece_maxima: tl.tensor,
    piece_places: tl.tensor,
    first_pieces: tl.tensor,
    num_pieces: tl.tensor,
    hub_targets: tl.tensor,
    maxima: tl.tensor,
    places: tl.tensor,
    num_targets: tl.tensor,
    columns: tl.tensor,
    TILE_PIECES: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
) -> None:
    """Write maxima[t] and places[t] of a hub, from its pieces."""
    target, begin, end, is_there = pieces_of(first_pieces, num_pieces, hub_targets, num_targets)
    column = tl.program_id(1) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    within = column < columns
    largest = tl.full((TILE_PIECES, TILE_COLUMNS), float("-inf"), tl.float32)
    place = tl.zeros((TILE_PIECES, TILE_COLUMNS), tl.int32)
    for start in range(begin, end, TILE_PIECES):
        piece = start + tl.arange(0, TILE_PIECES)
        inside = (piece < end)[:, None] & within[None, :]
        row = piece[:, None] * columns + column[None, :]
        message = tl.load(piece_maxima + row, mask=inside, other=float("-inf"))
        largest, place = larger_of(largest, place, message, tl.load(piece_places + row, mask=inside, other=0))
    found, at = largest_along(largest, place)
    tl.store(maxima + target * columns + column, found, mask=within & is_there)
    tl.store(places + target * columns + column, at, mask=within & is_there)
