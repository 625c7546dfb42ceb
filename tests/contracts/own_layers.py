"""Layers as a user would write them: with a message per channel, and with an aggregation that does not merge."""

from __future__ import annotations

import torch
from torch import nn

from gnnflow.graph.errors import LayerError
from gnnflow.layers import Aggregation, Layer, Levels, Max, Mean, SoftmaxAttention, Sum, Terms


class Gated(Layer):
    """Each channel of a neighbour passes through a gate that both endpoints and the edge open."""

    aggregation = Sum()
    include_self = True

    def __init__(self, in_width, out_width):
        super().__init__(in_width, out_width)
        self.value = nn.Linear(in_width, out_width)
        self.gate = nn.Linear(in_width, 2 * out_width)

    def transform(self, h, node):
        by_source, by_target = self.gate(h).chunk(2, 1)
        value = self.value(h)
        return Terms({"value": value[:, None], "gate": by_source[:, None]}, {"gate": by_target[:, None], "own": value})

    def message(self, source, target, edge):
        return (
            torch.sigmoid(source["gate"] + target["gate"])
            * source["value"]
            * edge.weight_or_one(source["value"])[:, :, None]
        )

    def update(self, own, aggregated):
        return own["own"] + aggregated[:, 0]


class GatedMean(Gated):
    """The same, averaged."""

    aggregation = Mean()


class Contrast(Layer):
    """Attention over instances, each the largest of its leaves per channel times what its root asks for."""

    aggregation = Levels(instance=SoftmaxAttention(), leaf=Max())
    include_self = True

    def __init__(self, in_width, out_width):
        super().__init__(in_width, out_width)
        self.value = nn.Linear(in_width, out_width)
        self.gate = nn.Linear(in_width, out_width)

    def transform(self, h, node):
        return Terms({"value": self.value(h)[:, None]}, {"gate": self.gate(h)[:, None]})

    def instance(self, leaves, target, edge):
        value = leaves["value"] * torch.sigmoid(target["gate"])
        return {"value": value * edge.weight_or_one(value)[:, :, None]}

    def coefficient(self, source, target, edge):
        return (source["value"] * target["gate"]).sum(2)

    def update(self, own, aggregated):
        return own["gate"][:, 0] + aggregated[:, 0]


class ByPlace(Layer):
    """The sum of leaves, each mapped by its place in the instance."""

    aggregation = Levels(instance=Sum(), leaf=Sum())
    positions = 2

    def __init__(self, in_width, out_width):
        super().__init__(in_width, out_width)
        self.value = nn.Linear(in_width, 2 * out_width)

    def transform(self, h, node):
        return Terms({"value": self.value(h).unflatten(1, (2, 1, self.out_width))}, {})

    def coefficient(self, source, target, edge):
        return edge.weight_column(self.value.weight)

    def update(self, own, aggregated):
        return aggregated[:, 0]


class Median(Aggregation):
    """The middle message per channel: known only once all messages are."""

    mergeable = False

    def partial(self, messages):
        rows, csr = messages.per_edge(), messages.csr
        groups = [rows[csr.targets == target] for target in range(csr.num_targets)]
        return {"median": torch.stack([group.median(0).values if len(group) else group.sum(0) for group in groups])}

    def merge(self, left, right):
        raise LayerError("medians do not merge")

    def finalize(self, state):
        return state["median"]


class MedianLayer(Layer):
    """The median neighbour."""

    aggregation = Median()

    def __init__(self, in_width, out_width):
        super().__init__(in_width, out_width)
        self.linear = nn.Linear(in_width, out_width)

    def transform(self, h, node):
        return Terms({"value": self.linear(h)[:, None]}, {})

    def coefficient(self, source, target, edge):
        return source["value"].new_ones(edge.num_edges, 1)

    def update(self, own, aggregated):
        return aggregated[:, 0]


class MedianAndSelf(MedianLayer):
    """The median of the neighbours and the node itself, whose message is one more edge."""

    include_self = True


class MedianWithSelf(Layer):
    """The same of whole messages, of which the node's own is a state by itself."""

    aggregation = Median()
    include_self = True

    def __init__(self, in_width, out_width):
        super().__init__(in_width, out_width)
        self.linear = nn.Linear(in_width, out_width)

    def transform(self, h, node):
        return Terms({"value": self.linear(h)[:, None]}, {})

    def message(self, source, target, edge):
        return source["value"]

    def update(self, own, aggregated):
        return aggregated[:, 0]


class Squared(Layer):
    """The sum of what neighbours say, squared by channel: a message that reads nothing of its target."""

    aggregation = Sum()

    def __init__(self, in_width, out_width):
        super().__init__(in_width, out_width)
        self.linear = nn.Linear(in_width, out_width)

    def transform(self, h, node):
        return Terms({"value": self.linear(h)[:, None] / 8}, {"own": h})

    def message(self, source, target, edge):
        return source["value"] ** 2 * edge.weight_or_one(source["value"])[:, :, None]

    def update(self, own, aggregated):
        return aggregated[:, 0] + self.linear(own["own"])
