"""Layers that send rows of features as they are, and learn something else of an edge."""

from __future__ import annotations

import torch
from torch import nn

from gnnflow.layers import Layer, Mean, SoftmaxAttention, Sum, Terms


class _Raw:
    """Maps of a node's own row and of what it aggregates, both behind the edges."""

    aggregation = Mean()

    def __init__(self, in_width, out_width):
        super().__init__(in_width, out_width)
        self.own, self.out = nn.Linear(in_width, out_width), nn.Linear(in_width, out_width)
        self.gate = nn.Parameter(torch.tensor(0.3))

    def transform(self, h, node):
        return Terms({"value": h[:, None]}, {"own": h})

    def update(self, own, aggregated):
        return self.out(aggregated[:, 0]) + self.own(own["own"])


class TargetLearns(_Raw, Layer):
    """The map of the own row lies before the edges."""

    def transform(self, h, node):
        return Terms({"value": h[:, None]}, {"own": self.own(h)})

    def coefficient(self, source, target, edge):
        return None

    def update(self, own, aggregated):
        return self.out(aggregated[:, 0]) + own["own"]


class GateLearns(_Raw, Layer):
    """A gate of both ends."""

    aggregation = Sum()

    def coefficient(self, source, target, edge):
        return torch.sigmoid(self.gate * (source["value"].sum(2) + target["own"].sum(1, keepdim=True)))


class LogitLearns(_Raw, Layer):
    """Attention over raw features."""

    aggregation = SoftmaxAttention()
    include_self = True

    def coefficient(self, source, target, edge):
        return self.gate * (source["value"] * target["own"][:, None]).sum(2)


class MessageLearns(_Raw, Layer):
    """A map of the message itself."""

    def message(self, source, target, edge):
        return torch.tanh(self.gate * source["value"]) + target["own"][:, None]
