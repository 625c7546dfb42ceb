"""Aggregations as commutative monoids: partial -> merge ... merge -> finalize.

A state is a dict of plain tensors whose rows are targets, so it can be stored and sent. Any split of a target's
in-edges gives, after merging, the state of all of them. So an execution can cut a hub, stream a chunk or send one state
instead of many rows.

Shapes: T targets, S sources, E edges, H heads, D width of a head, A edge attributes, W = D (+ A).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from typing import ClassVar, final

import torch
from torch import Tensor

from gnnflow.graph.errors import LayerError
from gnnflow.kernels import (
    Csr,
    Scales,
    add_value_gradient,
    coefficient_dtype,
    segment_sum,
    weighted_sum,
)
from gnnflow.layers.messages import Messages

State = dict[str, Tensor]


class Aggregation(ABC):
    """The aggregation of a target's messages to one row.

    mergeable: merge exists; an execution that must merge refuses other aggregations. linear: it commutes with a linear
    map of the values. scaled_by_sample: the state tensors that a uniform sample of the edges makes too small; for
    weighted samples see `Messages.scale`. reads_attributes: edge attributes control the aggregation of a message, and
    are not part of it. adds: merging adds the tensors of two states. takes_once: of equal parts only the first gets a
    gradient. part_reads_whole: `part_gradient` reads the whole state in addition to the result of `for_parts`. joins:
    `partial` takes adjacencies with `Csr.pieces`.
    """

    mergeable: ClassVar[bool] = True
    linear: ClassVar[bool] = False
    adds: ClassVar[bool] = False
    takes_once: ClassVar[bool] = False
    part_reads_whole: ClassVar[bool] = True
    takes_scales: ClassVar[bool] = False
    joins: ClassVar[bool] = False
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
        """Return the aggregated rows [T, H, W] of all of a target's messages; an optional shortcut."""
        return self.finalize(self.partial(messages))

    def add(self, state: State, messages: Messages) -> State:
        """Return the state with more messages added; it may be changed in place."""
        return self.merge(state, self.partial(messages))

    def add_value_gradient(self, into: Tensor, messages: Messages, gradient: State) -> bool:
        """Add to the gradient of the messages' value [S, H, D], given the gradient of their state, and return True.

        Return False, and add nothing, if this needs the messages themselves.
        """
        return False

    def for_parts(self, whole: State, gradient: State) -> State:
        """Return the gradient of the whole state in the form that `part_gradient` takes, with a state's shapes."""
        return gradient

    def part_gradient(self, part: State, whole: State, gradient: State) -> State:
        """Return the gradient of a part's state, given the gradient of the whole state that parts were merged to.

        It needs no other part, so that a backward pass can compute the parts again one by one. For states that add up
        it is the gradient of the whole; other aggregations define it, or cannot be streamed.
        """
        assert self.adds, "an aggregation whose states do not add up defines part_gradient()"
        return gradient

    @property
    def has_part_gradient(self) -> bool:
        """True if `part_gradient` is defined."""
        return self.adds or type(self).part_gradient is not Aggregation.part_gradient

    @final
    def rescale(self, state: State, scale: Tensor) -> State:
        """Return an estimate of the whole state from a uniform sample's; `scale` [T] is in-degree / kept edges."""
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
    joins = True
    scaled_by_sample = ("sum",)

    def partial(self, messages: Messages) -> State:
        """Return the sums."""
        return self.of_sums(messages.summed(messages.counted, messages.scales))

    def add(self, state: State, messages: Messages) -> State:
        """Add the sums."""
        return {"sum": messages.added_to(state["sum"], messages.counted, messages.scales)}

    def add_value_gradient(self, into: Tensor, messages: Messages, gradient: State) -> bool:
        """Spread the gradient of each sum over the edges."""
        if messages.only_value_learns:
            add_value_gradient(into, messages.csr, messages.counted, gradient["sum"], messages.scales)
        return messages.only_value_learns

    def of_sums(self, rows: Tensor) -> State:
        """Return the state of sums computed elsewhere [T, H, W]."""
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

    Over a sample this is a ratio of two sums with the same scale. A uniform sample's scale cancels; a weighted sample
    has one per edge, so that a heavy edge, which is drawn more often, does not count twice.
    """

    linear = True
    adds = True
    joins = True

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
        summed = messages.added_to(state["sum"], counted)
        weight = messages.csr.degree[:, None] if counted is None else segment_sum(messages.csr, counted)
        return {"sum": summed, "weight": state["weight"] + weight}

    def add_value_gradient(self, into: Tensor, messages: Messages, gradient: State) -> bool:
        """Spread the gradient of each sum over the edges; weights have none."""
        if messages.only_value_learns:
            add_value_gradient(into, messages.csr, messages.counted, gradient["sum"])
        return messages.only_value_learns

    def whole(self, messages: Messages) -> Tensor:
        """Return the means, divided by the summing kernel: another pass over the rows would take as long."""
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
        """Divide; zero if the weights add up to zero."""
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
        """Give the gradient to the part that has the maximum."""
        return {"max": gradient["max"].masked_fill(part["max"] != whole["max"], 0.0)}

    def finalize(self, state: State) -> Tensor:
        """Return the maxima, zero without messages."""
        return state["max"].masked_fill(state["max"] == -torch.inf, 0.0)


@final
class Slots(Aggregation):
    """The sums of messages per slot, concatenated; the first edge attribute is an edge's slot.

    State: slots [T, H, K x D]. Slots whose edges a sample left out stay zero.
    """

    reads_attributes = True
    adds = True

    def __init__(self, number: int) -> None:
        self.number = number

    def partial(self, messages: Messages) -> State:
        """Return the sums. Raises LayerError if an edge has no valid slot."""
        assert messages.attributes is not None
        csr, slot = messages.csr, messages.attributes[:, 0].long()
        if len(slot) and not 0 <= int(slot.min()) <= int(slot.max()) < self.number:
            raise LayerError(
                f"edges have slots {int(slot.min())} to {int(slot.max())}, but there are {self.number}",
                where="model.anchor_sets",
                fix=f"Set it to {int(slot.max()) + 1} or more; the first edge attribute numbers the sets.",
            )
        rows = replace(messages, attributes=None).per_edge()
        # edges by target and slot [E], and the first edge of each target and slot [T x K + 1]
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
    """The rows that `propagate` computed from all in-edges at once. State: rows [T, H, D]."""

    mergeable = False

    def partial(self, messages: Messages) -> State:
        """Raise: there are no messages per edge."""
        raise LayerError(
            "it takes no messages", where="Whole", fix="Aggregate with Sum, Mean, Max or SoftmaxAttention."
        )

    def merge(self, left: State, right: State) -> State:
        """Raise: rows of parts of the in-edges do not give the rows of all."""
        raise LayerError(
            "propagate() needs all in-edges of a target at once",
            where="Whole",
            fix="Define coefficient() or message() in the layer: their results can be merged.",
        )

    def finalize(self, state: State) -> Tensor:
        """Return the rows."""
        return state["rows"]
