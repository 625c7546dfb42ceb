"""The Triton programs of sums: each adds columns of one target or of several, or multiplies one block of edges.

A tile is [edges, columns] of float32 numbers, or [targets, columns] where rows are narrow. Columns of a target are its
heads side by side: column k belongs to head k // width. Values of a single head serve every head; they are then `width`
columns wide.

Shapes: T targets, S sources, E edges, H heads, K = H x width columns, P pieces of hubs.
"""

from __future__ import annotations

import triton
from triton import language as tl


@triton.jit  # type: ignore[untyped-decorator]
def messages_of(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    edge: tl.tensor,
    held: tl.tensor,
    value_column: tl.tensor,
    head: tl.tensor,
    within: tl.tensor,
    sources: tl.tensor,
    edges: tl.tensor,
    coefficients: tl.tensor,
    values: tl.tensor,
    heads: tl.tensor,
    value_columns: tl.tensor,
    ORDERED: tl.constexpr,
    WEIGHTED: tl.constexpr,
) -> tl.tensor:
    """Return the messages of the edges that are held [edges, columns], in float32; zeros of the others."""
    source = tl.load(sources + edge, mask=held, other=0)
    inside = held[:, None] & within[None, :]
    tile = tl.load(values + source[:, None] * value_columns + value_column[None, :], mask=inside, other=0.0)
    if WEIGHTED:
        place = edge
        if ORDERED:
            place = tl.load(edges + edge, mask=held, other=0)
        factor = tl.load(coefficients + place[:, None] * heads + head[None, :], mask=inside, other=0.0)
        return tile.to(tl.float32) * factor
    return tile.to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def sum_rows(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    offsets: tl.tensor,
    sources: tl.tensor,
    edges: tl.tensor,
    coefficients: tl.tensor,
    values: tl.tensor,
    sums: tl.tensor,
    piece_sums: tl.tensor,
    piece_targets: tl.tensor,
    first_pieces: tl.tensor,
    num_targets: tl.tensor,
    columns: tl.tensor,
    width: tl.tensor,
    heads: tl.tensor,
    value_columns: tl.tensor,
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
        # programs beyond the targets take a piece of LONGEST edges each of a target that has more
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
    # one sum per place in a tile, added up once at the end, so that the order of additions is the same in every run
    total = tl.zeros((TILE_EDGES, TILE_COLUMNS), tl.float32)
    for start in range(begin, end, TILE_EDGES):
        edge = start + tl.arange(0, TILE_EDGES)
        held = edge < end
        total += messages_of(
            edge, held, value_column, head, within,
            sources, edges, coefficients, values, heads, value_columns, ORDERED, WEIGHTED,
        )  # fmt: skip
    tl.store(out + column, tl.sum(total, axis=0), mask=within & is_there)


@triton.jit  # type: ignore[untyped-decorator]
def sum_narrow_rows(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    offsets: tl.tensor,
    sources: tl.tensor,
    edges: tl.tensor,
    coefficients: tl.tensor,
    values: tl.tensor,
    sums: tl.tensor,
    piece_sums: tl.tensor,
    piece_targets: tl.tensor,
    first_pieces: tl.tensor,
    num_targets: tl.tensor,
    columns: tl.tensor,
    width: tl.tensor,
    heads: tl.tensor,
    value_columns: tl.tensor,
    ORDERED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    DIVIDED: tl.constexpr,
    LONGEST: tl.constexpr,
    TILE_TARGETS: tl.constexpr,
    TILE_EDGES: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
) -> None:
    """Write what `sum_rows` does, of TILE_TARGETS targets side by side; each adds its edges one after the other.

    A target of few edges and columns is not enough to do for a program: it would wait for memory four times, one read
    being where the next has to look, for a few hundred bytes. TILE_EDGES: edges of a target that are read at once.
    LONGEST is a multiple of TILE_TARGETS.
    """
    block = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, TILE_TARGETS)
    target = block * TILE_TARGETS + row
    is_there = target < num_targets
    begin = tl.load(offsets + target, mask=is_there, other=0)
    end = tl.load(offsets + target + 1, mask=is_there, other=0)
    is_there = is_there & (end - begin <= LONGEST)
    piece = block - tl.cdiv(num_targets, TILE_TARGETS)
    if DIVIDED:  # noqa: SIM102 - the outer is decided when the program is compiled
        # programs beyond the targets take a piece of a longer target each, and every row of the tile a share of it
        if piece >= 0:
            hub = tl.load(piece_targets + piece)
            is_taken = hub < num_targets
            first = tl.load(first_pieces + hub, mask=is_taken, other=0)
            share = LONGEST // TILE_TARGETS
            begin = tl.load(offsets + hub, mask=is_taken, other=0) + (piece - first) * LONGEST + row * share
            end = tl.minimum(tl.load(offsets + hub + 1, mask=is_taken, other=0), begin + share)
            is_there = (row >= 0) & is_taken
    degree = tl.where(is_there, end - begin, 0).to(tl.int32)
    # columns of the values, and the head of each [TILE_COLUMNS]
    column = tl.program_id(1) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    within = column < columns
    value_column = column % value_columns
    head = column // width
    total = tl.zeros((TILE_TARGETS, TILE_COLUMNS), tl.float32)
    for start in range(0, tl.max(degree, axis=0), TILE_EDGES):
        for ahead in tl.static_range(TILE_EDGES):
            held = start + ahead < degree
            edge = begin + start + ahead
            total += messages_of(
                edge, held, value_column, head, within,
                sources, edges, coefficients, values, heads, value_columns, ORDERED, WEIGHTED,
            )  # fmt: skip
    if DIVIDED:  # noqa: SIM102 - the outer is decided when the program is compiled
        if piece >= 0:
            is_taken = tl.max(is_there.to(tl.int32), axis=0) > 0
            tl.store(piece_sums + piece * columns + column, tl.sum(total, axis=0), mask=within & is_taken)
            is_there = row < 0
    tl.store(sums + target[:, None] * columns + column[None, :], total, mask=is_there[:, None] & within[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def sum_pieces(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    piece_sums: tl.tensor,
    first_pieces: tl.tensor,
    num_pieces: tl.tensor,
    hub_targets: tl.tensor,
    sums: tl.tensor,
    num_targets: tl.tensor,
    columns: tl.tensor,
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
    targets: tl.tensor,
    sources: tl.tensor,
    left: tl.tensor,
    right: tl.tensor,
    products: tl.tensor,
    num_edges: tl.tensor,
    width: tl.tensor,
    heads: tl.tensor,
    right_columns: tl.tensor,
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
        # right may have fewer columns than all heads together: then its columns serve each head
        column = head * width + place
        own = tl.load(left + target[:, None] * (heads * width) + column[None, :], mask=inside, other=0.0)
        other = tl.load(
            right + source[:, None] * right_columns + (column % right_columns)[None, :], mask=inside, other=0.0
        )
        total += own.to(tl.float32) * other.to(tl.float32)
    tl.store(products + edge * heads + head, tl.sum(total, axis=1), mask=held)
