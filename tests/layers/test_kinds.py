"""Layers are found by name, and what cannot be found or built is explained."""

from __future__ import annotations

import pytest
from torch import nn

from gnnflow.graph.errors import LayerError
from gnnflow.layers import GAT, Layer, SoftmaxAttention, Sum, Terms, build_layer


class Own(Layer):
    aggregation = Sum()

    def __init__(self, in_width, out_width, *, slope=0.1):
        super().__init__(in_width, out_width)
        if slope < 0:
            raise ValueError("slope must not be negative")
        self.slope = slope
        self.linear = nn.Linear(in_width, out_width)

    def transform(self, h, node):
        return Terms({"value": self.linear(h)[:, None]}, {})

    def coefficient(self, source, target, edge):
        return edge.weight_or_one(source["value"])

    def update(self, own, aggregated):
        return aggregated[:, 0]


class WithoutAggregation(Own):
    aggregation = "sum"


class WithAttributes(Own):
    uses_edge_attributes = True


class SoftmaxOfMessages(Layer):
    aggregation = SoftmaxAttention()

    def transform(self, h, node): ...

    def message(self, source, target, edge): ...

    def update(self, own, aggregated): ...


NOT_A_LAYER = nn.Linear(1, 1)


def test_an_own_layer_is_built_with_its_options():
    layer = build_layer(f"{__name__}:Own", 4, 3, options={"slope": 0.5})
    assert isinstance(layer, Own)
    assert (layer.in_width, layer.out_width, layer.slope) == (4, 3, 0.5)


def test_attention_dropout_is_the_dropout_unless_given():
    assert build_layer("gat", 4, 3, dropout=0.6).coefficient_dropout == 0.6
    assert build_layer("gat", 4, 3, dropout=0.6, attention_dropout=0.0).coefficient_dropout == 0.0


def test_heads_side_by_side_widen_the_output():
    layer = build_layer("gat", 4, 3, heads=5)
    assert isinstance(layer, GAT)
    assert layer.out_width == 15
    assert build_layer("gat", 4, 3, heads=5, concat=False).out_width == 3


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("gnc", {}, r"model\.kind: 'gnc' names no layer. Use one of gcn, sage, gat, gin, gat_e, or your own"),
        ("a.b:", {}, r"'a\.b:' names no layer"),
        ("gnnflow.no_such_module:A", {}, r"there is no module 'gnnflow\.no_such_module'.*PYTHONPATH"),
        ("no_such_package.deeper:A", {}, r"there is no module 'no_such_package\.deeper'"),
        (f"{__name__}:Missing", {}, r"no class 'Missing'. Its layers are: Own, WithoutAggregation"),
        (f"{__name__}:NOT_A_LAYER", {}, r"not a gnnflow layer. Derive the class from gnnflow\.layers\.Layer"),
        ("torch.nn:Linear", {}, "not a gnnflow layer"),
        (f"{__name__}:Own", {"slop": 1}, r"model\.options: .*Own\(4, 3, slop=1\) failed: .*unexpected keyword"),
        (f"{__name__}:Own", {"slope": -1}, "slope must not be negative"),
        (f"{__name__}:WithoutAggregation", {}, r"has no aggregation \('sum' found\)"),
        (f"{__name__}:WithAttributes", {}, r"needs edge attributes.*graph\.edge_features"),
        (f"{__name__}:SoftmaxOfMessages", {}, "softmax attention and uses_edge_attributes do not go with"),
        ("gat_e", {}, r"gat_e needs edge attributes and the graph has none.*graph\.edge_features"),
        ("gcn", {"slope": 1}, r"gcn takes no options, slope given"),
        ("sage", {}, r"no aggregator 'median'. Use mean or max"),
    ],
)
def test_what_cannot_be_built_is_explained(kind, options, message):
    with pytest.raises(LayerError, match=message):
        build_layer(kind, 4, 3, options=options, aggregator="median")


def test_a_module_that_does_not_import_is_explained(tmp_path, monkeypatch):
    (tmp_path / "needs_absent.py").write_text("import absent_package\n")
    (tmp_path / "falls_over.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LayerError, match="imports 'absent_package', which is not installed"):
        build_layer("needs_absent:A", 4, 3)
    with pytest.raises(LayerError, match="importing module 'falls_over' failed: ZeroDivisionError"):
        build_layer("falls_over:A", 4, 3)
