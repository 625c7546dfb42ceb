"""The Triton programs of a softmax over in-edges: first over targets, then over edges.

Tiles are float32: [targets, heads] in programs over targets, a run of the numbers of [E, H] in programs over edges.

Shapes: T targets, S sources, E edges, H heads, P pieces of hubs.
"""

from __future__ import annotations

import triton
from triton import language as tl

from gnnflow.kernels.cuda.edge_programs import four_sources, pieces_of, span_of


@triton.jit  # type: ignore[untyped-decorator]
def logit_of(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    source: tl.tensor,
    edge: tl.tensor,
    end: tl.tensor,
    head: tl.tensor,
    own: tl.tensor,
    given: tl.tensor,
    of_sources: tl.tensor,
    slope: tl.tensor,
    HEADS: tl.constexpr,
    HALVES: tl.constexpr,
) -> tl.tensor:
    """Return the logits of edges [targets, heads]; -inf past the end.

    HALVES: a logit is LeakyReLU(half of the source + half of the target); else it is given.
    """
    inside = (edge < end)[:, None] & (head < HEADS)[None, :]
    if HALVES:
        added = own + tl.load(of_sources + source[:, None] * HEADS + head[None, :], mask=inside, other=0.0)
        logit = tl.where(added > 0, added, added * slope)
    else:
        logit = tl.load(given + edge[:, None] * HEADS + head[None, :], mask=inside, other=0.0)
    return tl.where(inside, logit, float("-inf"))


@triton.jit  # type: ignore[untyped-decorator]
def weight_of(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    logit: tl.tensor, shift: tl.tensor, edge: tl.tensor, end: tl.tensor, factors: tl.tensor, SCALED: tl.constexpr
) -> tl.tensor:
    """Return exp(logit - shift) x factor of edges [targets, heads]; zeros past the end."""
    weight = tl.exp(logit - shift)
    if SCALED:
        weight *= tl.load(factors + edge, mask=edge < end, other=0.0)[:, None]
    return weight


@triton.jit  # type: ignore[untyped-decorator]
def number_of(largest: tl.tensor) -> tl.tensor:
    """Return the largest logits, with 0 for -inf, so that they can be subtracted."""
    return tl.where(largest == float("-inf"), 0.0, largest)


@triton.jit  # type: ignore[untyped-decorator]
def added_along(largest: tl.tensor, total: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Return the largest logit of each column [rows, ...], and the sum of the rows' weights relative to it."""
    larger = tl.max(largest, axis=0)
    return larger, tl.sum(total * tl.exp(largest - number_of(larger)[None, :]), axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def softmax_rows(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    offsets: tl.tensor,
    sources: tl.tensor,
    logits: tl.tensor,
    of_sources: tl.tensor,
    of_targets: tl.tensor,
    slope: tl.tensor,
    factors: tl.tensor,
    maxima: tl.tensor,
    denominators: tl.tensor,
    piece_maxima: tl.tensor,
    piece_sums: tl.tensor,
    piece_targets: tl.tensor,
    first_pieces: tl.tensor,
    num_targets: tl.tensor,
    HEADS: tl.constexpr,
    HALVES: tl.constexpr,
    SCALED: tl.constexpr,
    DIVIDED: tl.constexpr,
    LONGEST: tl.constexpr,
    TILE_TARGETS: tl.constexpr,
    TILE_HEADS: tl.constexpr,
) -> None:
    """Write the largest logits and the sums of weights: of targets with at most LONGEST edges, or of a hub's piece.

    A weight is exp(logit - largest) x factor. One pass computes both (Milakov and Gimelshein, 2018): the sum so far is
    rescaled whenever the largest logit grows.
    """
    target, _, begin, end, is_there, piece = span_of(
        offsets, piece_targets, first_pieces, num_targets, DIVIDED, LONGEST, TILE_TARGETS
    )
    head = tl.program_id(1) * TILE_HEADS + tl.arange(0, TILE_HEADS)
    within = head < HEADS
    own = tl.zeros((TILE_TARGETS, TILE_HEADS), tl.float32)
    if HALVES:
        inside = is_there[:, None] & within[None, :]
        own = tl.load(of_targets + target[:, None] * HEADS + head[None, :], mask=inside, other=0.0)
    largest = tl.full((TILE_TARGETS, TILE_HEADS), float("-inf"), tl.float32)
    total = tl.zeros((TILE_TARGETS, TILE_HEADS), tl.float32)
    # as in sum_rows
    source_0, source_1, source_2, source_3 = four_sources(begin, end, sources)
    for start in range(0, tl.max((end - begin).to(tl.int32), axis=0), 4):
        edge = begin + start
        logit_0 = logit_of(source_0, edge, end, head, own, logits, of_sources, slope, HEADS, HALVES)
        logit_1 = logit_of(source_1, edge + 1, end, head, own, logits, of_sources, slope, HEADS, HALVES)
        logit_2 = logit_of(source_2, edge + 2, end, head, own, logits, of_sources, slope, HEADS, HALVES)
        logit_3 = logit_of(source_3, edge + 3, end, head, own, logits, of_sources, slope, HEADS, HALVES)
        source_0, source_1, source_2, source_3 = four_sources(edge + 4, end, sources)
        larger = tl.maximum(tl.maximum(logit_0, logit_1), tl.maximum(logit_2, logit_3))
        larger = tl.maximum(largest, larger)
        shift = number_of(larger)
        total = total * tl.exp(largest - shift) + weight_of(logit_0, shift, edge, end, factors, SCALED)
        total += weight_of(logit_1, shift, edge + 1, end, factors, SCALED)
        total += weight_of(logit_2, shift, edge + 2, end, factors, SCALED)
        total += weight_of(logit_3, shift, edge + 3, end, factors, SCALED)
        largest = larger
    if DIVIDED:  # noqa: SIM102 - decided when the program is compiled
        if piece >= 0:
            piece_largest, piece_total = added_along(largest, total)
            tl.store(piece_maxima + piece * HEADS + head, piece_largest, mask=within)
            tl.store(piece_sums + piece * HEADS + head, piece_total, mask=within)
            is_there = is_there & (piece < 0)
    out = target[:, None] * HEADS + head[None, :]
    tl.store(maxima + out, largest, mask=is_there[:, None] & within[None, :])
    tl.store(denominators + out, total, mask=is_there[:, None] & within[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def softmax_pieces(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    piece_maxima: tl.tensor,
    piece_sums: tl.tensor,
    first_pieces: tl.tensor,
    num_pieces: tl.tensor,
    hub_targets: tl.tensor,
    maxima: tl.tensor,
    denominators: tl.tensor,
    num_targets: tl.tensor,
    columns: tl.tensor,
    TILE_PIECES: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
) -> None:
    """Write the largest logits and the sums of weights of a hub, from its pieces."""
    target, begin, end, is_there = pieces_of(first_pieces, num_pieces, hub_targets, num_targets)
    column = tl.program_id(1) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    within = column < columns
    largest = tl.full((TILE_PIECES, TILE_COLUMNS), float("-inf"), tl.float32)
    total = tl.zeros((TILE_PIECES, TILE_COLUMNS), tl.float32)
    for start in range(begin, end, TILE_PIECES):
        piece = start + tl.arange(0, TILE_PIECES)
        inside = (piece < end)[:, None] & within[None, :]
        row = piece[:, None] * columns + column[None, :]
        found = tl.load(piece_maxima + row, mask=inside, other=float("-inf"))
        larger = tl.maximum(largest, found)
        shift = number_of(larger)
        total = total * tl.exp(largest - shift)
        total += tl.load(piece_sums + row, mask=inside, other=0.0) * tl.exp(found - shift)
        largest = larger
    found, added = added_along(largest, total)
    tl.store(maxima + target * columns + column, found, mask=within & is_there)
    tl.store(denominators + target * columns + column, added, mask=within & is_there)


@triton.jit  # type: ignore[untyped-decorator]
def logits_before(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    edge: tl.tensor,
    row: tl.tensor,
    head: tl.tensor,
    inside: tl.tensor,
    sources: tl.tensor,
    of_sources: tl.tensor,
    of_targets: tl.tensor,
    HEADS: tl.constexpr,
) -> tl.tensor:
    """Return the inputs of LeakyReLU: half of the source + half of the target, for each number."""
    source = tl.load(sources + edge, mask=inside, other=0)
    return tl.load(of_sources + source * HEADS + head, mask=inside, other=0.0) + tl.load(
        of_targets + row, mask=inside, other=0.0
    )


@triton.jit  # type: ignore[untyped-decorator]
def softmax_edges(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    targets: tl.tensor,
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
    num_edges: tl.tensor,
    HEADS: tl.constexpr,
    HALVES: tl.constexpr,
    SCALED: tl.constexpr,
    DROPPED: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Write each edge's share of its target's weights, and used = share x kept if DROPPED.

    The shares are zero where all weights of the target are.
    """
    place = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    edge, head = place // HEADS, place % HEADS
    inside = edge < num_edges
    row = tl.load(targets + edge, mask=inside, other=0) * HEADS + head
    if HALVES:
        logit = logits_before(edge, row, head, inside, sources, of_sources, of_targets, HEADS)
        logit = tl.where(logit > 0, logit, logit * slope)
    else:
        logit = tl.load(logits + place, mask=inside, other=0.0)
    total = tl.load(denominators + row, mask=inside, other=0.0)
    inverse = tl.where(total == 0.0, 0.0, 1.0 / tl.where(total == 0.0, 1.0, total))
    share = tl.exp(logit - number_of(tl.load(maxima + row, mask=inside, other=0.0))) * inverse
    if SCALED:
        share *= tl.load(factors + edge, mask=inside, other=0.0)
    tl.store(shares + place, share, mask=inside)
    if DROPPED:
        tl.store(used + place, share * tl.load(kept + place, mask=inside, other=0.0), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def softmax_edges_gradient(  # noqa: PLR0917 - Triton takes no keyword-only arguments
    targets: tl.tensor,
    sources: tl.tensor,
    of_sources: tl.tensor,
    of_targets: tl.tensor,
    slope: tl.tensor,
    kept: tl.tensor,
    shares: tl.tensor,
    by_used: tl.tensor,
    common: tl.tensor,
    by_logits: tl.tensor,
    num_edges: tl.tensor,
    HEADS: tl.constexpr,
    HALVES: tl.constexpr,
    DROPPED: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Write each edge's gradient share x (by_used x kept + common).

    by_used [E, H]: the gradient of the edge's used share; common [T, H]: the part that all edges of a target have.
    """
    place = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    edge, head = place // HEADS, place % HEADS
    inside = edge < num_edges
    row = tl.load(targets + edge, mask=inside, other=0) * HEADS + head
    gradient = tl.load(by_used + place, mask=inside, other=0.0)
    if DROPPED:
        gradient *= tl.load(kept + place, mask=inside, other=0.0)
    gradient += tl.load(common + row, mask=inside, other=0.0)
    gradient *= tl.load(shares + place, mask=inside, other=0.0)
    if HALVES:
        # back through LeakyReLU: its slope where the sum of the halves was not positive
        added = logits_before(edge, row, head, inside, sources, of_sources, of_targets, HEADS)
        gradient = tl.where(added > 0, gradient, gradient * slope)
    tl.store(by_logits + place, gradient, mask=inside)
