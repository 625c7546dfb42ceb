"""The Triton programs: each computes one block of one target's columns, or one block of edges.

A tile is [edges, columns] of float32 numbers. Columns of a target are its heads side by side: column k belongs to head
k // width. Values of a single head serve every head; they are then `width` columns wide.

Shapes: T targets, S sources, E edges, H heads, K = H x width columns, P pieces of hubs.
"""

from __future__ import annotations

import triton
from triton import language as tl


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
        column = head * width + place
        own = tl.load(left + target[:, None] * (heads * width) + column[None, :], mask=inside, other=0.0)
        other = tl.load(
            right + source[:, None] * right_columns + (column % right_columns)[None, :], mask=inside, other=0.0
        )
        total += own.to(tl.float32) * other.to(tl.float32)
    tl.store(products + edge * heads + head, tl.sum(total, axis=1), mask=held)


@triton.jit  # type: ignore[untyped-decorator]
def logits_of(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    given: tl.tensor,
    sources: tl.tensor,
    of_sources: tl.tensor,
    own: tl.tensor,
    slope: tl.tensor,
    edge: tl.tensor,
    head: tl.tensor,
    heads: tl.tensor,
    inside: tl.tensor,
    HALVES: tl.constexpr,
) -> tl.tensor:
    """Return the logits of some edges and heads, and where they are above zero before what LeakyReLU does."""
    if HALVES:
        source = tl.load(sources + edge, mask=tl.max(inside.to(tl.int32), axis=1) > 0, other=0)
        added = own[None, :] + tl.load(of_sources + source[:, None] * heads + head[None, :], mask=inside, other=0.0)
        logit = tl.where(added > 0, added, added * slope)
    else:
        added = tl.load(given + edge[:, None] * heads + head[None, :], mask=inside, other=0.0)
        logit = added
    return tl.where(inside, logit, float("-inf")), added > 0


@triton.jit  # type: ignore[untyped-decorator]
def softmax_rows(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    offsets: tl.tensor,
    sources: tl.tensor,
    logits: tl.tensor,
    of_sources: tl.tensor,
    of_targets: tl.tensor,
    slope: tl.tensor,
    factors: tl.tensor,
    kept: tl.tensor,
    maxima: tl.tensor,
    denominators: tl.tensor,
    shares: tl.tensor,
    used: tl.tensor,
    heads: tl.tensor,
    HALVES: tl.constexpr,
    SCALED: tl.constexpr,
    DROPPED: tl.constexpr,
    TILE_EDGES: tl.constexpr,
    TILE_HEADS: tl.constexpr,
) -> None:
    """Write of each head of a target the largest logit, the sum of its edges' weights and each edge's share of that.

    A weight is exp(logit - largest) x factor. used: the shares times kept, where DROPPED. The largest and the sum come
    in one pass over the edges (Milakov and Gimelshein, 2018), the shares in another.
    """
    target = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, TILE_HEADS)
    within = head < heads
    begin, end = tl.load(offsets + target), tl.load(offsets + target + 1)
    own = tl.zeros((TILE_HEADS,), tl.float32)
    if HALVES:
        own = tl.load(of_targets + target * heads + head, mask=within, other=0.0)
    largest = tl.full((TILE_HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((TILE_HEADS,), tl.float32)
    for start in range(begin, end, TILE_EDGES):
        edge = start + tl.arange(0, TILE_EDGES)
        inside = (edge < end)[:, None] & within[None, :]
        logit, _ = logits_of(logits, sources, of_sources, own, slope, edge, head, heads, inside, HALVES)
        larger = tl.maximum(largest, tl.max(logit, axis=0))
        shift = tl.where(larger == float("-inf"), 0.0, larger)  # beside the heads there is no number to subtract
        weight = tl.exp(logit - shift[None, :])
        if SCALED:
            weight = weight * tl.load(factors + edge, mask=edge < end, other=0.0)[:, None]
        total = total * tl.exp(largest - shift) + tl.sum(weight, axis=0)
        largest = larger
    tl.store(maxima + target * heads + head, largest, mask=within)
    tl.store(denominators + target * heads + head, total, mask=within)
    shift = tl.where(largest == float("-inf"), 0.0, largest)
    inverse = tl.where(total == 0.0, 0.0, 1.0 / tl.where(total == 0.0, 1.0, total))
    for start in range(begin, end, TILE_EDGES):
        edge = start + tl.arange(0, TILE_EDGES)
        inside = (edge < end)[:, None] & within[None, :]
        place = edge[:, None] * heads + head[None, :]
        logit, _ = logits_of(logits, sources, of_sources, own, slope, edge, head, heads, inside, HALVES)
        share = tl.exp(logit - shift[None, :]) * inverse[None, :]
        if SCALED:
            share = share * tl.load(factors + edge, mask=edge < end, other=0.0)[:, None]
        tl.store(shares + place, share, mask=inside)
        if DROPPED:
            tl.store(used + place, share * tl.load(kept + place, mask=inside, other=0.0), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def softmax_rows_gradient(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    offsets: tl.tensor,
    sources: tl.tensor,
    of_sources: tl.tensor,
    of_targets: tl.tensor,
    slope: tl.tensor,
    kept: tl.tensor,
    shares: tl.tensor,
    by_used: tl.tensor,
    about: tl.tensor,
    by_logits: tl.tensor,
    by_targets: tl.tensor,
    heads: tl.tensor,
    HALVES: tl.constexpr,
    DROPPED: tl.constexpr,
    TILE_EDGES: tl.constexpr,
    TILE_HEADS: tl.constexpr,
) -> None:
    """Write each edge's gradient share x (by_used x kept + about), and where HALVES what those of a target add up to.

    by_used [E, H]: the gradient of what an edge has in the mean; about [T, H]: what is the same for a target's edges.
    """
    target = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, TILE_HEADS)
    within = head < heads
    begin, end = tl.load(offsets + target), tl.load(offsets + target + 1)
    alike = tl.load(about + target * heads + head, mask=within, other=0.0)
    own = tl.zeros((TILE_HEADS,), tl.float32)
    if HALVES:
        own = tl.load(of_targets + target * heads + head, mask=within, other=0.0)
    total = tl.zeros((TILE_HEADS,), tl.float32)
    for start in range(begin, end, TILE_EDGES):
        edge = start + tl.arange(0, TILE_EDGES)
        inside = (edge < end)[:, None] & within[None, :]
        place = edge[:, None] * heads + head[None, :]
        gradient = tl.load(by_used + place, mask=inside, other=0.0)
        if DROPPED:
            gradient = gradient * tl.load(kept + place, mask=inside, other=0.0)
        gradient = (gradient + alike[None, :]) * tl.load(shares + place, mask=inside, other=0.0)
        if HALVES:
            _, above = logits_of(by_logits, sources, of_sources, own, slope, edge, head, heads, inside, HALVES)
            gradient = tl.where(above, gradient, gradient * slope)
            total += tl.sum(tl.where(inside, gradient, 0.0), axis=0)
        tl.store(by_logits + place, gradient, mask=inside)
    if HALVES:
        tl.store(by_targets + target * heads + head, total, mask=within)


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
