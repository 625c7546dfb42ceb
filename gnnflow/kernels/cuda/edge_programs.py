"""How the Triton programs go over edges: a few targets side by side, each one edge after the other.

One target alone is not enough to do for a program, which would wait for memory four times, one read being where the
next has to look. Tiles are [targets, heads, width]. How many heads there are, and how wide, is known when a program is
compiled: rows of 8 numbers are then read four at a time, and one by one if their length could be any.

Shapes: T targets, S sources, E edges, H heads, P pieces of targets of many edges (`hubs.py`).
"""

from __future__ import annotations

import triton
from triton import language as tl


@triton.jit  # type: ignore[untyped-decorator]
def span_of(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    offsets: tl.tensor,
    piece_targets: tl.tensor,
    first_pieces: tl.tensor,
    num_targets: tl.tensor,
    DIVIDED: tl.constexpr,
    LONGEST: tl.constexpr,
    TILE_TARGETS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Return of each row of this program's tile the target, where its edges begin, and the edges from one to another.

    Also whether there is anything to write, and the program's piece, below zero where it has none: programs behind
    those of all targets take a piece each of LONGEST edges of a target that has more, and their rows a share each of
    that. LONGEST is a multiple of TILE_TARGETS.
    """
    block = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, TILE_TARGETS)
    target = block * TILE_TARGETS + row
    is_there = target < num_targets
    piece = block - tl.cdiv(num_targets, TILE_TARGETS)
    if DIVIDED:  # noqa: SIM102 - decided when the program is compiled
        if piece >= 0:
            target = tl.load(piece_targets + piece) + row * 0
            is_there = target < num_targets
    first = tl.load(offsets + target, mask=is_there, other=0)
    end = tl.load(offsets + target + 1, mask=is_there, other=0)
    begin = first
    if DIVIDED:
        if piece >= 0:
            share = LONGEST // TILE_TARGETS
            number = piece - tl.load(first_pieces + target, mask=is_there, other=0)
            begin = first + number * LONGEST + row * share
            end = tl.maximum(tl.minimum(end, begin + share), begin)
        else:
            is_there = is_there & (end - begin <= LONGEST)
            end = tl.where(is_there, end, begin)
    return target, first, begin, end, is_there, piece


@triton.jit  # type: ignore[untyped-decorator]
def pieces_of(
    first_pieces: tl.tensor, num_pieces: tl.tensor, hub_targets: tl.tensor, num_targets: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Return this program's target whose edges were divided, its pieces from one to another, and whether it has one."""
    target = tl.load(hub_targets + tl.program_id(0))
    is_there = target < num_targets
    begin = tl.load(first_pieces + target, mask=is_there, other=0)
    return target, begin, begin + tl.load(num_pieces + target, mask=is_there, other=0), is_there


@triton.jit  # type: ignore[untyped-decorator]
def four_sources(
    edge: tl.tensor, end: tl.tensor, sources: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Return the sources of an edge and of the three behind it, each [targets]; 0 of those behind the end."""
    return (
        tl.load(sources + edge, mask=edge < end, other=0),
        tl.load(sources + edge + 1, mask=edge + 1 < end, other=0),
        tl.load(sources + edge + 2, mask=edge + 2 < end, other=0),
        tl.load(sources + edge + 3, mask=edge + 3 < end, other=0),
    )


@triton.jit  # type: ignore[untyped-decorator]
def message_of(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    source: tl.tensor,
    edge: tl.tensor,
    end: tl.tensor,
    head: tl.tensor,
    place: tl.tensor,
    edges: tl.tensor,
    factors: tl.tensor,
    values: tl.tensor,
    places: tl.tensor,
    begins: tl.tensor,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    VALUE_HEADS: tl.constexpr,
    ORDERED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    CHOSEN: tl.constexpr,
    BEHIND: tl.constexpr,
) -> tl.tensor:
    """Return the messages of edges [targets, heads, width], in float32; BEHIND of those behind the end.

    values [S, VALUE_HEADS, WIDTH]: those of a single head serve every head. factors [E, H], where WEIGHTED. edges [E]:
    the row of each edge among the factors, where ORDERED. places, like values, and begins [S], where CHOSEN: a number
    is for one edge alone, which is so far behind where those of the source begin.
    """
    held = edge < end
    inside = held[:, None] & (head < HEADS)[None, :]
    row = source[:, None] * VALUE_HEADS + (head if VALUE_HEADS == HEADS else head * 0)[None, :]
    whole = inside[:, :, None] & (place < WIDTH)[None, None, :]
    row = row[:, :, None] * WIDTH + place[None, None, :]
    message = tl.load(values + row, mask=whole, other=BEHIND).to(tl.float32)
    if ORDERED and (WEIGHTED or CHOSEN):
        edge = tl.load(edges + edge, mask=held, other=0)
    if CHOSEN:
        number = edge - tl.load(begins + source, mask=held, other=0)
        message = tl.where(tl.load(places + row, mask=whole, other=-1) == number[:, None, None], message, 0.0)
    if WEIGHTED:
        factor = tl.load(factors + edge[:, None] * HEADS + head[None, :], mask=inside, other=1.0)
        message *= factor[:, :, None]
    return message


@triton.jit  # type: ignore[untyped-decorator]
def four_messages(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    source_0: tl.tensor,
    source_1: tl.tensor,
    source_2: tl.tensor,
    source_3: tl.tensor,
    edge: tl.tensor,
    end: tl.tensor,
    head: tl.tensor,
    place: tl.tensor,
    edges: tl.tensor,
    factors: tl.tensor,
    values: tl.tensor,
    places: tl.tensor,
    begins: tl.tensor,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    VALUE_HEADS: tl.constexpr,
    ORDERED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    CHOSEN: tl.constexpr,
    BEHIND: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Return the messages of an edge and of the three behind it, which come from these sources: see `message_of`."""
    # fmt: off
    return (
        message_of(
            source_0, edge, end, head, place, edges, factors, values, places, begins,
            HEADS, WIDTH, VALUE_HEADS, ORDERED, WEIGHTED, CHOSEN, BEHIND,
        ),
        message_of(
            source_1, edge + 1, end, head, place, edges, factors, values, places, begins,
            HEADS, WIDTH, VALUE_HEADS, ORDERED, WEIGHTED, CHOSEN, BEHIND,
        ),
        message_of(
            source_2, edge + 2, end, head, place, edges, factors, values, places, begins,
            HEADS, WIDTH, VALUE_HEADS, ORDERED, WEIGHTED, CHOSEN, BEHIND,
        ),
        message_of(
            source_3, edge + 3, end, head, place, edges, factors, values, places, begins,
            HEADS, WIDTH, VALUE_HEADS, ORDERED, WEIGHTED, CHOSEN, BEHIND,
        ),
    )
    # fmt: on
