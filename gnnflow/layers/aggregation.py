"""Aggregations as commutative monoids: partial -> merge ... merge -> finalize.

A state is a dict of plain tensors whose rows are targets, so it can be stored and sent. Any split of a target's
in-edges gives, after merging, the state of all of them: that is what lets an execution cut a hub, stream a chunk or
send one state instead of many rows.

Shapes: T targets, S sources, E edges, H heads, D width of a head, A edge attributes, W = D (+ A).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar, final

import torch
from torch import Tensor

from gnnflow.graph.errors import LayerError
from gnnflow.kernels import (
    UNSCALED,
    Csr,
    Halves,
    Instances,
    Scales,
    add_value_gradient,
    add_weighted_sum,
    coefficient_dtype,
    dropout,
    gather_sources,
    leaf_sum,
    segment_max,
    segment_sum,
    softmax_sums,
    weighted_sum,
)

State = dict[str, Tensor]


@dataclass(frozen=True)
class Messages:
    """Messages over one adjacency, not yet materialised: coefficient [E, H] x [value [S, H, D] | attributes [E, A]].

    A missing coefficient is one; where it is a logit it may come as the halves it is made of. dropout is applied to the
    coefficients once they are normalised. scale [E], of a weighted sample alone: how many edges of the whole graph each
    edge stands for. A sum of scale x f over the sample is an unbiased estimate of the sum of f over all in-edges, and a
    mean or a softmax is a ratio of two such sums.
    scales: factors of the sources' values and of the targets' sums, for aggregations with `takes_scales`.
    instances: where an edge has leaves. The value is then of leaves, and an edge's is their mean, or their sum where
    leaf_mean is not set; only for aggregations that are `linear`.
    """

    csr: Csr
    value: Tensor
    coefficient: Tensor | None = None
    attributes: Tensor | None = None
    dropout: float = 0.0
    scale: Tensor | None = None
    halves: Halves | None = None
    scales: Scales = UNSCALED
    instances: Instances | None = None
    leaf_mean: bool = True

    def scaled(self, coefficient: Tensor) -> Tensor:
        """Return scale x coefficient [E, H]: what an edge counts for in a sum."""
        return coefficient if self.scale is None else self.scale[:, None].to(coefficient) * coefficient

    @property
    def counted(self) -> Tensor | None:
        """The coefficients scaled [E, H]; None where each edge counts for one."""
        if self.scale is None:
            return self.coefficient
        return self.scaled(self.ones() if self.coefficient is None else self.coefficient)

    def summed(self, coefficient: Tensor | None, scales: Scales = UNSCALED) -> Tensor:
        """Return the sum per target of coefficient x [value | attributes], after dropout and scaled: [T, H, W]."""
        if coefficient is None and (self.dropout or self.attributes is not None):
            coefficient = self.ones()
        if coefficient is not None:
            coefficient = dropout(coefficient, self.dropout)
        # over source values [T, H, D]; attributes have a row per edge and one head, and go beside them [T, H, A]
        if self.instances is None:
            sums = weighted_sum(self.csr, coefficient, self.value, scales)
        else:
            sums = leaf_sum(self.instances, coefficient, self.value, scales, mean=self.leaf_mean)
        if self.attributes is None:
            return sums
        # an instance has no scale of its own: those of its leaves are in their sum
        is_scaled = scales.source is not None and self.instances is None
        by_source = gather_sources(self.csr, scales.source) if is_scaled and scales.source is not None else None
        beside = weighted_sum(self.csr.edges, coefficient, self.attributes[:, None], Scales(by_source, scales.target))
        return torch.cat([sums, beside], 2)

    def add_to(self, sums: Tensor, coefficient: Tensor | None, scales: Scales = UNSCALED) -> None:
        """Add what `summed` returns to sums [T, H, W], without a gradient."""
        if self.dropout or self.attributes is not None or self.instances is not None:
            sums.add_(self.summed(coefficient, scales))
        else:
            add_weighted_sum(sums, self.csr, coefficient, self.value, scales)

    @property
    def only_value_learns(self) -> bool:
        """Whether what `summed` returns has a gradient of the value's alone, which takes no message."""
        fixed = self.coefficient is None or not self.coefficient.requires_grad
        return fixed and self.instances is None and self.attributes is None and not self.dropout

    def largest(self) -> Tensor:
        """Return the maximum per target and channel of coefficient x [value | attributes]: [T, H, W], -inf if none."""
        top = segment_max(self.csr, self.coefficient, self.value)
        if self.attributes is None:
            return top
        coefficient = self.ones() if self.coefficient is None else self.coefficient
        return torch.cat([top, segment_max(self.csr.edges, coefficient, self.attributes[:, None])], 2)

    def ones(self) -> Tensor:
        """Return a coefficient of one per edge and head [E, H]."""
        return self.value.new_ones(self.csr.num_edges, self.value.shape[1], dtype=coefficient_dtype(self.value))

    def per_edge(self) -> Tensor:
        """Return the messages materialised [E, H, W], for an aggregation that no kernel serves."""
        # the value of each edge's source [E, H, D], then the attributes beside it, the same for every head
        rows = gather_sources(self.csr, self.value)
        if self.attributes is not None:
            rows = torch.cat([rows, self.attributes[:, None].expand(-1, rows.shape[1], -1)], 2)
        return rows if self.coefficient is None else self.coefficient[:, :, None] * rows


class Aggregation(ABC):
    """How the messages of a target become one row.

    mergeable says whether merge exists; an execution that must merge refuses the others. linear says that a linear map
    of all values gives the same map of the aggregated rows. scaled_by_sample names the
    state tensors that a uniform sample of the edges makes too small; of a weighted sample `Messages.scale` tells.
    reads_attributes: edge attributes say what becomes of a message, and are no part of it. adds: merging adds the
    tensors of two states. takes_once: of equal parts the first alone has a gradient.
    """

    mergeable: ClassVar[bool] = True
    linear: ClassVar[bool] = False
    adds: ClassVar[bool] = False
    takes_once: ClassVar[bool] = False
    takes_scales: ClassVar[bool] = False
    scaled_by_sample: ClassVar[tuple[str, ...]] = ()
    reads_attributes: ClassVar[bool] = False

    @abstractmethod
    def partial(self, messages: Messages) -> State:
        """Return the state of each target over these messages."""

    @abstractmethod
    def merge(self, left: State, right: State) -> State:
        """Return the state of both sets of messages. Commutative, and associative up to rounding."""

    @abstractmethod
    def finalize(self, state: State) -> Tensor:
        """Return the aggregated rows [T, H, W]; zero for targets without a message."""

    def whole(self, messages: Messages) -> Tensor:
        """Return the aggregated rows [T, H, W] where all of a target's messages are here; no aggregation has to."""
        return self.finalize(self.partial(messages))

    def add(self, state: State, messages: Messages) -> State:
        """Return what a state becomes with more messages, without a gradient; it may be written to."""
        return self.merge(state, self.partial(messages))

    def add_value_gradient(self, into: Tensor, messages: Messages, gradient: State) -> bool:
        """Add to the gradient of the messages' value [S, H, D], given that of their state, and return True.

        Return False, and add nothing, where that takes the messages themselves.
        """
        return False

    def part_gradient(self, part: State, whole: State, gradient: State) -> State:
        """Return the gradient of a part's state from that of the whole state, which parts were merged to.

        It needs none of the other parts: that is what lets a backward pass compute them again one by one. Where states
        add up it is the gradient of the whole; another aggregation defines it, or is not streamed.
        """
        assert self.adds, "an aggregation whose states do not add up defines part_gradient()"
        return gradient

    @property
    def has_part_gradient(self) -> bool:
        """Whether `part_gradient` is defined."""
        return self.adds or type(self).part_gradient is not Aggregation.part_gradient

    @final
    def rescale(self, state: State, scale: Tensor) -> State:
        """Return a uniform sample's state as if every in-edge were there; `scale` [T] is in-degree / edges kept."""
        return {
            name: rows * scale.view(-1, *[1] * (rows.dim() - 1)).to(rows) if name in self.scaled_by_sample else rows
            for name, rows in state.items()
        }

    @final
    def merge_all(self, states: Iterable[State]) -> State:
        """Merge states from left to right: a fixed order, so that bits match between runs."""
        return reduce(self.merge, states)


@final
class Sum(Aggregation):
    """Sum of coefficient x value, scaled. State: sum [T, H, W]."""

    linear = True
    adds = True
    takes_scales = True
    scaled_by_sample = ("sum",)

    def partial(self, messages: Messages) -> State:
        """Return the sums."""
        return self.of_sums(messages.summed(messages.counted, messages.scales))

    def add(self, state: State, messages: Messages) -> State:
        """Add the sums."""
        messages.add_to(state["sum"], messages.counted, messages.scales)
        return state

    def add_value_gradient(self, into: Tensor, messages: Messages, gradient: State) -> bool:
        """Spread the gradient of each sum over the edges."""
        if messages.only_value_learns:
            add_value_gradient(into, messages.csr, messages.counted, gradient["sum"], messages.scales)
        return messages.only_value_learns

    def of_sums(self, rows: Tensor) -> State:
        """Return the state of messages that were summed elsewhere [T, H, W]."""
        return {"sum": rows}

    def merge(self, left: State, right: State) -> State:
        """Add."""
        return {"sum": left["sum"] + right["sum"]}

    def finalize(self, state: State) -> Tensor:
        """Return the sums."""
        return state["sum"]


@final
class Mean(Aggregation):
    """Sum of coefficient x value over the sum of coefficients. State: sum [T, H, W], weight [T, H].

    Over a sample this is a ratio of two sums, each scaled alike: of a uniform sample the scale cancels; of a weighted
    one each edge has its own, so that a heavy edge, likelier to be drawn, does not count for its weight twice.
    """

    linear = True
    adds = True

    def partial(self, messages: Messages) -> State:
        """Return the sums and the sums of coefficients, the latter without dropout."""
        csr, coefficient = messages.csr, messages.coefficient
        if coefficient is None and messages.scale is None:
            degree = csr.degree.to(coefficient_dtype(messages.value))[:, None].expand(-1, messages.value.shape[1])
            return {"sum": messages.summed(None), "weight": degree}
        coefficient = messages.scaled(messages.ones() if coefficient is None else coefficient)
        return {"sum": messages.summed(coefficient), "weight": segment_sum(csr, coefficient)}

    def add(self, state: State, messages: Messages) -> State:
        """Add the sums, and the number of edges or their weights."""
        counted = messages.counted
        messages.add_to(state["sum"], counted)
        weight = messages.csr.degree[:, None] if counted is None else segment_sum(messages.csr, counted)
        return {"sum": state["sum"], "weight": state["weight"] + weight}

    def add_value_gradient(self, into: Tensor, messages: Messages, gradient: State) -> bool:
        """Spread the gradient of each sum over the edges; weights have none."""
        if messages.only_value_learns:
            add_value_gradient(into, messages.csr, messages.counted, gradient["sum"])
        return messages.only_value_learns

    def whole(self, messages: Messages) -> Tensor:
        """Return the means, divided where the sums are made: another pass over the rows would be as long."""
        coefficient = messages.coefficient
        if coefficient is None and messages.scale is None:
            return messages.summed(None, Scales(None, messages.csr.share))
        fixed = coefficient is not None and coefficient.shape[1] == 1 and not coefficient.requires_grad
        if coefficient is None or not fixed or messages.instances is not None:
            return super().whole(messages)
        coefficient, csr = messages.scaled(coefficient), messages.csr
        share = csr.kept("share", (coefficient,), lambda each: _inverse(segment_sum(csr, each))[:, 0])
        return messages.summed(coefficient, Scales(None, share))

    def merge(self, left: State, right: State) -> State:
        """Add both parts."""
        return {name: left[name] + right[name] for name in ("sum", "weight")}

    def finalize(self, state: State) -> Tensor:
        """Divide; zero where the weights add up to zero."""
        # one division per target and head, not one per column
        return state["sum"] * _inverse(state["weight"])[:, :, None]


def _inverse(weight: Tensor) -> Tensor:
    """Return one over each weight, zero for zero."""
    empty = weight == 0
    return weight.masked_fill(empty, 1.0).reciprocal().masked_fill(empty, 0.0)


@final
class Max(Aggregation):
    """Largest coefficient x value per channel. State: max [T, H, W], -inf for no message."""

    takes_once = True

    def partial(self, messages: Messages) -> State:
        """Return the maxima."""
        if messages.dropout:
            raise LayerError(
                "a maximum has no normalised coefficient to drop",
                fix="Set coefficient_dropout = 0 in a layer that aggregates with Max.",
            )
        return {"max": messages.largest()}

    def merge(self, left: State, right: State) -> State:
        """Take the larger."""
        return {"max": torch.maximum(left["max"], right["max"])}

    def part_gradient(self, part: State, whole: State, gradient: State) -> State:
        """Give it to the part that has the maximum."""
        return {"max": gradient["max"].masked_fill(part["max"] != whole["max"], 0.0)}

    def finalize(self, state: State) -> Tensor:
        """Return the maxima, zero where there was no message."""
        return state["max"].masked_fill(state["max"] == -torch.inf, 0.0)


@final
class SoftmaxAttention(Aggregation):
    """Sum of softmax(coefficient) x value, coefficients being logits (GAT, Velickovic et al. 2018, equations 2-4).

    State: max [T, H], denominator [T, H], mean [T, H, W]; exponentials are relative to max, as in the online softmax of
    Milakov and Gimelshein (2018), so no logit overflows and states merge. The mean is divided already: where there is
    one state, nothing is left to do, and no row grows with the number of edges, which float16 could not hold.
    """

    linear = True

    def partial(self, messages: Messages) -> State:
        """Return maximum, denominator and mean; dropout acts on the mean alone, as on normalised weights."""
        logit = messages.coefficient if messages.halves is None else messages.halves
        if logit is None:
            raise LayerError(
                "softmax attention needs a logit per edge",
                fix="Let coefficient() return the logits, or aggregate with Sum, Mean or Max.",
            )
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

    def merge(self, left: State, right: State) -> State:
        """Bring both denominators to the larger maximum, and weigh the means with them."""
        # the larger maximum [T, H], and the factor exp(own - larger) that brings either side to it [T, H]
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
            "mean": left["mean"] * by_left + right["mean"] * by_right,
        }

    def part_gradient(self, part: State, whole: State, gradient: State) -> State:
        """Weigh it with the part's share of the denominator, which moves the mean towards its own mean.

        Both depend on the maxima only as the exponentials do, which have no gradient of theirs (`softmax_sums`).
        """
        # brings the part's denominator to the larger maximum [T, H], and its share of the whole one
        by_part = _decay(part["max"], whole["max"])
        divisor = whole["denominator"].masked_fill(whole["denominator"] == 0, 1.0)
        moved = (gradient["mean"] * (part["mean"] - whole["mean"])).sum(2) / divisor
        return {
            "max": torch.zeros_like(part["max"]),
            "denominator": by_part * (gradient["denominator"] + moved),
            "mean": gradient["mean"] * (part["denominator"] * by_part / divisor)[:, :, None],
        }

    def finalize(self, state: State) -> Tensor:
        """Return the means."""
        return state["mean"]


@final
class Slots(Aggregation):
    """The messages of each slot added up, side by side; the first edge attribute holds an edge's slot.

    State: slots [T, H, K x D]. A sample says nothing of the slots whose edges it left out: they stay zero.
    """

    reads_attributes = True
    adds = True

    def __init__(self, number: int) -> None:
        self.number = number

    def partial(self, messages: Messages) -> State:
        """Return the sums. Raises LayerError where an edge is of no slot."""
        assert messages.attributes is not None
        csr, slot = messages.csr, messages.attributes[:, 0].long()
        if len(slot) and not 0 <= int(slot.min()) <= int(slot.max()) < self.number:
            raise LayerError(
                f"edges are of slots {int(slot.min())} to {int(slot.max())}, and there are {self.number}",
                where="model.anchor_sets",
                fix=f"Set it to {int(slot.max()) + 1} or more; the first edge attribute numbers the sets.",
            )
        rows = replace(messages, attributes=None).per_edge()
        # edges by target and slot [E], and where those of each begin [T x K + 1]
        ordered, order = torch.sort(csr.targets * self.number + slot, stable=True)
        bounds = torch.arange(csr.num_targets * self.number + 1, device=order.device)
        sums = weighted_sum(Csr(torch.searchsorted(ordered, bounds), order, csr.num_edges), None, rows)
        return {"slots": sums.view(csr.num_targets, self.number, *sums.shape[1:]).transpose(1, 2).flatten(2)}

    def merge(self, left: State, right: State) -> State:
        """Add."""
        return {"slots": left["slots"] + right["slots"]}

    def finalize(self, state: State) -> Tensor:
        """Return the sums."""
        return state["slots"]


@final
class Whole(Aggregation):
    """What a layer that defines `propagate` computed from all in-edges at once. State: rows [T, H, D]."""

    mergeable = False

    def partial(self, messages: Messages) -> State:
        """Raise: there are no messages per edge."""
        raise LayerError(
            "it takes no messages", where="Whole", fix="Aggregate with Sum, Mean, Max or SoftmaxAttention."
        )

    def merge(self, left: State, right: State) -> State:
        """Raise: rows of parts of the in-edges say nothing of the rows of all."""
        raise LayerError(
            "propagate() needs all in-edges of a target at once",
            where="Whole",
            fix="Define coefficient() or message() in the layer: what they send can be merged.",
        )

    def finalize(self, state: State) -> Tensor:
        """Return the rows."""
        return state["rows"]


def _decay(maximum: Tensor, larger: Tensor) -> Tensor:
    # exp(maximum - larger), with 0 for a side without messages; -inf minus -inf would be NaN.
    return (maximum - larger.masked_fill(larger == -torch.inf, 0.0)).exp()
