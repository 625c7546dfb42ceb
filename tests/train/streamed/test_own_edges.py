"""What a layer's own Python takes per edge is part of what a budget is planned for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gnnflow.config import config_from_dict
from gnnflow.layers import Layer, SoftmaxAttention, Sum, Terms
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.train.streamed.budget import Needs, plan
from gnnflow.train.streamed.size import GraphSize
from gnnflow.train.streamed.widths import ON_CPU

SIZE = GraphSize((20_000,), (2_000_000,), 10_000, (16,), 1, (2_500, 250_000))
INPUTS = ModelInputs(feature_width=16, num_outputs=4, sparse=False)
MIB = 1 << 20


class _Ends:
    def __init__(self, in_width: int, out_width: int) -> None:
        super().__init__(in_width, out_width)
        self.source, self.target = nn.Linear(in_width, out_width), nn.Linear(in_width, out_width)

    def transform(self, h: Tensor, node: object) -> Terms:
        return Terms({"value": self.source(h)[:, None]}, {"query": self.target(h)[:, None]})

    def update(self, own: object, aggregated: Tensor) -> Tensor:
        return aggregated[:, 0]


class Attention(_Ends, Layer):
    aggregation = SoftmaxAttention()

    def coefficient(self, source: dict[str, Tensor], target: dict[str, Tensor], edge: object) -> Tensor:
        return torch.tanh(source["value"] + target["query"]).sum(2)


class Gate(_Ends, Layer):
    aggregation = Sum()

    def message(self, source: dict[str, Tensor], target: dict[str, Tensor], edge: object) -> Tensor:
        return torch.tanh(source["value"] * target["query"])


def needs_of(kind: str, hidden: int) -> tuple[Needs, int]:
    """Return what a model needs, and the most bytes that one of its layers makes per edge."""
    config = config_from_dict(
        {"name": "own", "graph": {"nodes": "n", "edges": "e"}, "model": {"kind": kind, "hidden": hidden, "layers": 2}}
    )
    model = build_model(config.model, INPUTS)
    needs = Needs.of(model, SIZE, ON_CPU)
    own = max(each.own_bytes for layer in needs.layers for each in layer.passes)
    found = plan(model, SIZE, budget=250 * MIB)
    assert found.max_edges * own < 250 * MIB
    return needs, own


@pytest.mark.parametrize("kind", ["hgt", f"{__name__}:Attention", f"{__name__}:Gate"])
def test_rows_that_a_layer_gathers_per_edge_are_counted(kind: str) -> None:
    for hidden in (16, 64):
        needs, own = needs_of(kind, hidden)
        # at least what both ends' rows take, and a gradient of one of them
        assert own >= 3 * hidden * 4
        assert needs.per_edge >= own


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat", "gin", "ggcn", "ggnn"])
def test_what_kernels_make_is_not_counted_twice(kind: str) -> None:
    few, many = (needs_of(kind, hidden)[1] for hidden in (16, 64))
    assert few == many <= 16
