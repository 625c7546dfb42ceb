"""What a layer's message() computes runs once per node where that is enough, and on one kernel where there is one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gnnflow.executions.propagate import partial_state, self_state
from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels import Csr
from gnnflow.layers import EdgeContext, Layer, Max, Sum, Terms
from gnnflow.layers.phases import Fused, phases_of

NODES, WIDTH = 6, 3
DRAWN = torch.Generator().manual_seed(0)  # the same in every run: values that add up to zero are divided by below
CSR = Csr(torch.tensor([0, 3, 3, 4, 8, 9, 12]), torch.randint(NODES, (12,), generator=DRAWN), NODES)
WEIGHT = torch.rand(12, generator=DRAWN)


class Plain(Layer):
    """Terms as they are; each test writes its message."""

    aggregation = Sum()

    def __init__(self, in_width=WIDTH, out_width=WIDTH):
        super().__init__(in_width, out_width)
        self.a, self.b = nn.Linear(in_width, in_width), nn.Linear(in_width, in_width)

    def transform(self, h, node):
        return Terms({"value": h[:, None]}, {"h": h[:, None]})

    def message(self, source, target, edge):
        return source["value"]

    def update(self, own, aggregated):
        return aggregated[:, 0]


class GatedHere(Plain):
    """A gate whose maps stand where they run per edge."""

    def message(self, source, target, edge):
        gate = torch.sigmoid(self.a(source["value"]) + self.b(target["h"]))
        return gate * torch.tanh(source["value"]) * edge.weight_or_one(gate)[:, :, None]


class Differences(Plain):
    """Reads both ends at once after a map of each."""

    def message(self, source, target, edge):
        return (torch.relu(self.a(source["value"])) - self.b(target["h"])).abs()


class Depends(Plain):
    """What it computes depends on what is in the tensors."""

    def message(self, source, target, edge):
        return source["value"] if source["value"].sum() > 0 else -source["value"]


class Drops(Plain):
    """Draws per edge."""

    def message(self, source, target, edge):
        return nn.functional.dropout(torch.exp(source["value"]), 0.5) + 0.0 * target["h"]


class Settings(Plain):
    """What it computes depends on attributes of its own."""

    slope = 2.0

    def message(self, source, target, edge):
        rows = torch.tanh(source["value"]) * (self.slope if self.training else 1.0)
        return rows - target["h"]


class Makes(Plain):
    """Makes a tensor of its own in each call."""

    def message(self, source, target, edge):
        return torch.tanh(source["value"]) * torch.full((1,), self.training + 1.0) - target["h"]


class Largest(GatedHere):
    """The same, where no sum is asked for."""

    aggregation = Max()


class Shares(Plain):
    """Not row by row: what all edges give is in each."""

    def message(self, source, target, edge):
        return source["value"] / source["value"].sum(0)


class Named(Plain):
    """Has terms of the names that torch.fx gives to steps."""

    def transform(self, h, node):
        return Terms({"value": h[:, None], "exp": 10 * h[:, None], "linear": -h[:, None]}, {"h": h[:, None]})

    def message(self, source, target, edge):
        return torch.exp(source["value"]) * target["h"] * source["exp"] + self.a(source["value"]) - source["linear"]


class Writes(Plain):
    """Writes into what it is given of an edge, which is the edge's own."""

    write = staticmethod(nn.ReLU(inplace=True))

    def message(self, source, target, edge):
        return source["value"] * self.write(torch.tanh(target["h"])) + self.write(target["h"])


class WritesByMethod(Writes):
    """The same, where it is a method."""

    write = staticmethod(torch.Tensor.sigmoid_)


class WritesByFunction(Writes):
    """The same, by its last argument."""

    write = staticmethod(lambda rows: nn.functional.leaky_relu(rows, 0.1, True))


def block(weight):
    return BlockTensors(CSR, EdgeContext(CSR.num_edges, weight), None)


def found(layer, weight=None):
    terms = layer.transform(torch.linspace(-1, 1, NODES * WIDTH).view(NODES, WIDTH).requires_grad_(), None)
    return terms, phases_of(layer, terms.source, terms.target, EdgeContext(CSR.num_edges, weight))


def names(phases):
    return {side: [str(node.target) for node in nodes] for side, nodes in phases.hoisted.items()}


def test_maps_and_functions_of_one_end_run_per_node():
    _, phases = found(Differences())
    assert names(phases) == {"source": [str(torch.relu)], "target": [str(nn.functional.linear)]}
    assert phases.fused is None


def test_a_gate_is_found_whatever_its_halves_are_made_of():
    _, phases = found(GatedHere(), WEIGHT)
    steps = [f"message().{name}" for name in ("tanh", "linear", "linear_1")]
    assert phases.fused == Fused(steps[0], (steps[1], steps[2]), weighted=True)
    _, phases = found(GatedHere())
    assert not phases.fused.weighted


def test_a_message_that_is_its_source_is_a_plain_sum():
    _, phases = found(Plain(), WEIGHT)
    assert phases.fused == Fused("value", None, weighted=False)


WRITING = [Writes, WritesByMethod, WritesByFunction]


@pytest.mark.parametrize("kind", [Depends, Drops, Makes, Shares, *WRITING])
def test_what_may_not_move_stays(kind):
    _, phases = found(kind())
    assert phases is None or phases.fused is None
    if kind is Drops:
        assert names(phases)["source"] == [str(torch.exp)]
    else:
        assert phases is None


@pytest.mark.parametrize("kind", [Plain, GatedHere, Differences, Depends, Largest, Makes, Settings, Shares, Named])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_states_and_gradients_are_those_of_messages_written_out(kind, weight):
    torch.manual_seed(0)
    layer = kind()
    terms, _ = found(layer, weight)
    state = partial_state(layer, source=terms.source, target=terms.target, block=block(weight))
    source = {name: rows[CSR.sources] for name, rows in terms.source.items()}
    target = {name: rows[CSR.targets] for name, rows in terms.target.items()}
    messages = layer.message(source, target, EdgeContext(CSR.num_edges, weight))
    joined = torch.amax if kind is Largest else torch.sum
    # a target without in-edges has zeros, whatever joins messages
    parts = messages.split(CSR.degree.tolist())
    expected = torch.stack([joined(part, 0) if len(part) else part.sum(0) for part in parts])
    rows = layer.levels.instance.finalize(state)
    torch.testing.assert_close(rows, expected)
    inputs = [terms.source["value"], *layer.parameters()]
    pairs = [torch.autograd.grad(each.square().sum(), inputs, allow_unused=True) for each in (rows, expected)]
    for one, other in zip(*pairs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", WRITING)
def test_what_a_message_writes_into_its_edges_is_not_in_the_terms_of_nodes(kind):
    layer = kind()
    terms, phases = found(layer)
    assert phases is None
    before = terms.target["h"].clone()
    partial_state(layer, source=terms.source, target=terms.target, block=block(None))
    self_state(layer, source=terms.source, target=terms.target, edge=EdgeContext(NODES))
    assert torch.equal(terms.target["h"], before)


@pytest.mark.parametrize("kind", [Makes, Settings])
def test_a_message_is_what_its_layer_says_now(kind):
    layer = kind()
    names_before = set(vars(layer))

    def differs_from_definition():
        terms, _ = found(layer)
        rows = layer.levels.instance.finalize(
            partial_state(layer, source=terms.source, target=terms.target, block=block(None))
        )
        source = {name: each[CSR.sources] for name, each in terms.source.items()}
        target = {name: each[CSR.targets] for name, each in terms.target.items()}
        messages = layer.message(source, target, EdgeContext(CSR.num_edges))
        expected = torch.stack([part.sum(0) for part in messages.split(CSR.degree.tolist())])
        return not torch.allclose(rows, expected)

    assert not differs_from_definition()
    layer.eval()
    assert not differs_from_definition()
    assert set(vars(layer)) == names_before
    layer.train()
    layer.slope = 5.0
    assert not differs_from_definition()
    layer.slope = torch.tensor([3.0])  # no plain value: looked at in every call
    assert not differs_from_definition()
    layer.slope = torch.tensor([4.0])
    assert not differs_from_definition()
