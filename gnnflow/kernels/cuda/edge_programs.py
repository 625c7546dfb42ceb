"""Parts of the Triton programs over edges: a program takes a few targets, and each target's edges one by one.

A program with one target would wait for memory four times, since one read tells where the next one is. Tiles are
[targets, heads, width]. The number of heads and their width are known when a program is compiled, so that rows of 8
numbers are read four at a time; rows of unknown length would be read one by one.

Shapes: T targets, S sources, E edges, H heads, P pieces of targets of many edges (`launch.py`).
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
    """Return for each row of the tile: its target, the target's first edge, the row's first edge and end, and a mask.

    The mask is false for rows with nothing to write. The last result is the program's piece, negative for none: after
    the programs of all targets, each program takes a piece of LONGEST edges of a hub, and each row of its tile a share
    of that piece. LONGEST is a multiple of TILE_TARGETS.
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
    """Return this program's hub, its first piece and the end of its pieces, and False if there is no hub."""
    target = tl.load(hub_targets + tl.program_id(0))
    is_there = target < num_targets
    begin = tl.load(first_pieces + target, mask=is_there, other=0)
    return target, begin, begin + tl.load(num_pieces + target, mask=is_there, other=0), is_there


@triton.jit  # type: ignore[untyped-decorator]
def four_sources(
    edge: tl.tensor, end: tl.tensor, sources: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Return the sources of an edge and of the next three, each [targets]; 0 past the end."""
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
    """Return the messages of edges [targets, heads, width], in float32; BEHIND for edges past the end.

    values [S, VALUE_HEADS, WIDTH]: a single head serves every head. factors [E, H], if WEIGHTED. edges [E]: the factor
    row of each edge, if ORDERED. places, like values, and begins [S], if CHOSEN: a number counts for one edge alone,
    edge begins[s] + places[s, ...].
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
    """Return the messages of an edge and of the next three, from these sources: see `message_of`."""
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
