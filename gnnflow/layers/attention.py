"""Attention as a commutative monoid, like the others of `gnnflow.layers.aggregation`.

Shapes: T targets, E edges, H heads, D width of a head, A edge attributes, W = D (+ A).
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from gnnflow.graph.errors import LayerError
from gnnflow.kernels import (
    Attended,
    Halves,
    add_softmax_sums,
    adds_softmax,
    joined_means,
    softmax_of_pieces,
    softmax_sums,
)
from gnnflow.layers.aggregation import Aggregation, State
from gnnflow.layers.messages import Messages


@final
class SoftmaxAttention(Aggregation):
    """Sum of softmax(coefficient) x value; coefficients are logits (GAT, Velickovic et al. 2018, equations 2-4).

    State: max [T, H], denominator [T, H], mean [T, H, W]; exponentials are relative to max, as in the online softmax of
    Milakov and Gimelshein (2018), so no logit overflows and states merge. The mean is divided already: a single state
    needs no further step, and no row grows with the number of edges, which could overflow float16.
    """

    linear = True
    part_reads_whole = False
    joins = True

    def partial(self, messages: Messages) -> State:
        """Return maximum, denominator and mean; dropout acts only on the mean, as on normalised weights."""
        logit = messages.coefficient if messages.halves is None else messages.halves
        if logit is None:
            raise LayerError(
                "softmax attention needs a logit per edge",
                fix="Let coefficient() return the logits, or aggregate with Sum, Mean or Max.",
            )
        if messages.csr.pieces is not None:
            return self._joined(messages)
        found = softmax_sums(
            messages.csr,
            logit,
            messages.value,
            attributes=messages.attributes,
            factor=messages.scale,
            drop=messages.dropout,
            instances=messages.instances,
            leaf_mean=messages.leaf_mean,
        )
        return {"max": found.maximum, "denominator": found.denominator, "mean": found.mean}

    def _joined(self, messages: Messages) -> State:
        """Return the state over edges in pieces, with the bits of merging a state per piece in their order."""
        csr, halves = messages.csr, messages.halves
        assert halves is not None, "pieces are of logits in halves"
        assert csr.pieces is not None
        found = softmax_of_pieces(csr, halves, messages.scale)
        bounds, count = csr.pieces.bounds, csr.pieces.bounds.diff()
        first = bounds[:-1]
        # which targets have a piece of each number, and the state that pieces up to it give [T, H]
        state = {"max": found[0].index_select(0, first), "denominator": found[1].index_select(0, first)}
        # what of the mean before a piece, and of the piece's mean, is in the mean of both [pieces, 2, H]
        shares = found[0].new_empty(len(found[0]), 2, found[0].shape[1])
        for number in range(1, int(count.max()) if len(count) else 0):
            rows = torch.nonzero(count > number)[:, 0]
            pieces = first.index_select(0, rows) + number
            held = {name: each.index_select(0, rows) for name, each in state.items()}
            part = {"max": found[0].index_select(0, pieces), "denominator": found[1].index_select(0, pieces)}
            # means of one and zero give the shares themselves [n, H, 2]
            before, after = (held["max"].new_tensor(side).view(1, 1, 2) for side in ([1.0, 0.0], [0.0, 1.0]))
            merged = self.merge({**held, "mean": before}, {**part, "mean": after})
            shares.index_copy_(0, pieces, merged["mean"].transpose(1, 2))
            for name, rows_so_far in state.items():
                rows_so_far.index_copy_(0, rows, merged[name])
        mean = joined_means(csr, halves, messages.value, factor=messages.scale, sums=found, shares=shares)
        return {**state, "mean": mean}

    def merge(self, left: State, right: State) -> State:
        """Rescale both denominators to the larger maximum, and weigh the means with them."""
        # the larger maximum [T, H], and the factor exp(own - larger) that rescales either side [T, H]
        maximum = torch.maximum(left["max"], right["max"])
        by_left, by_right = _decay(left["max"], maximum), _decay(right["max"], maximum)
        of_left, of_right = left["denominator"] * by_left, right["denominator"] * by_right
        denominator = of_left + of_right
        # each side's share of the denominator [T, H]; without messages both are zero
        divisor = denominator.masked_fill(denominator == 0, 1.0)
        by_left, by_right = (of_left / divisor)[:, :, None], (of_right / divisor)[:, :, None]
        return {
            "max": maximum,
            "denominator": denominator,
            "mean": (left["mean"] * by_left).add_(right["mean"] * by_right),
        }

    def add(self, state: State, messages: Messages) -> State:
        """Add these messages to the state, in place if a kernel can."""
        if (attended := self.attended(messages)) is None:
            return super().add(state, messages)
        add_softmax_sums(state["max"], state["denominator"], state["mean"], attended)
        return state

    def attended(self, messages: Messages) -> Attended | None:
        """Return messages in the form of the adding kernels; None if these do not accept them."""
        halves, plain = messages.halves, messages.attributes is None and messages.instances is None
        if halves is None or not plain or not adds_softmax(halves, messages.value):
            return None
        own = Halves(halves.source.detach(), halves.target.detach(), halves.slope)
        return Attended(messages.csr, own, messages.value.detach(), messages.scale, messages.dropout)

    def for_parts(self, whole: State, gradient: State) -> State:
        """Return the data on the whole state and its gradient that parts and edges need.

        max: the logarithm of the sum of exponentials, from which a logit gives its edge's share. denominator: the part
        of a logit's gradient that all edges have in common. mean: the gradient of the mean.
        """
        by_each = whole["denominator"] * gradient["denominator"] - (gradient["mean"] * whole["mean"]).sum(2)
        shift = whole["max"] + whole["denominator"].log()
        return {"max": shift, "denominator": by_each, "mean": gradient["mean"]}

    def part_gradient(self, part: State, whole: State, gradient: State) -> State:
        """Weigh the gradient with the part's share of the denominator, which moves the whole mean to the part's.

        The maxima have no gradient, as in `softmax_sums`.
        """
        # brings the part's denominator to its share of the whole one [T, H]; nothing does where it has no message
        share = (part["max"] - gradient["max"]).masked_fill(part["max"] == -torch.inf, -torch.inf).exp()
        moved = (gradient["mean"] * part["mean"]).sum(2)
        return {
            "max": torch.zeros_like(part["max"]),
            "denominator": share * (gradient["denominator"] + moved),
            "mean": gradient["mean"] * (part["denominator"] * share)[:, :, None],
        }

    def finalize(self, state: State) -> Tensor:
        """Return the means."""
        return state["mean"]


def _decay(maximum: Tensor, larger: Tensor) -> Tensor:
    # exp(maximum - larger), with 0 for a side without messages; -inf minus -inf would be NaN.
    return (maximum - larger.masked_fill(larger == -torch.inf, 0.0)).exp()
