"""The Triton programs of a softmax over in-edges: each computes all heads of one target.

A tile is [edges, heads] of float32 numbers.

Shapes: T targets, S sources, E edges, H heads.
"""

from __future__ import annotations

import triton
from triton import language as tl


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
    """Return the logits of a tile [edges, heads], and where they are above zero before what LeakyReLU does.

    HALVES: a logit is LeakyReLU of a half of its source and one of its target; else it is given.
    """
    if HALVES:
        # a row without any head inside is behind the last edge, whose source must not be read
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
    # first pass: the maximum and the sum so far [heads]; the sum is rescaled whenever the maximum grows
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
    # second pass: each edge's share; a target without edges, or whose weights are all zero, has shares of zero
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
    # what the gradients of a target's edges add up to [heads]: that of its half of the logits
    total = tl.zeros((TILE_HEADS,), tl.float32)
    for start in range(begin, end, TILE_EDGES):
        edge = start + tl.arange(0, TILE_EDGES)
        inside = (edge < end)[:, None] & within[None, :]
        # where the tile's numbers lie in [E, H], row by row
        place = edge[:, None] * heads + head[None, :]
        gradient = tl.load(by_used + place, mask=inside, other=0.0)
        if DROPPED:
            gradient = gradient * tl.load(kept + place, mask=inside, other=0.0)
        gradient = (gradient + alike[None, :]) * tl.load(shares + place, mask=inside, other=0.0)
        if HALVES:
            # back through LeakyReLU: its slope where the sum of the halves was not above zero
            _, above = logits_of(by_logits, sources, of_sources, own, slope, edge, head, heads, inside, HALVES)
            gradient = tl.where(above, gradient, gradient * slope)
            total += tl.sum(tl.where(inside, gradient, 0.0), axis=0)
        tl.store(by_logits + place, gradient, mask=inside)
    if HALVES:
        tl.store(by_targets + target * heads + head, total, mask=within)
