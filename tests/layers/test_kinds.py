"""Layers are found by name, and what cannot be found or built is explained."""

from __future__ import annotations

import pytest
from torch import nn

from gnnflow.config import Config, GATConfig, GCNConfig, model_from_dict
from gnnflow.config.base import is_free_text, tagged_members
from gnnflow.graph.errors import ConfigError, LayerError
from gnnflow.layers import GAT, GCN, Layer, Max, Place, SoftmaxAttention, Sum, Terms, build_layer, load_layer_class


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
        return edge.weight_column(source["value"])

    def update(self, own, aggregated):
        return aggregated[:, 0]


class WithoutAggregation(Own):
    aggregation = "sum"


class WithAttributes(Own):
    uses_edge_attributes = True


class MapsBehindMax(Own):
    aggregation = Max()
    value_weight = property(lambda self: self.linear.weight)


class MapsBehindAttributes(WithAttributes):
    value_weight = property(lambda self: self.linear.weight)


class SlopeWithoutSoftmax(Own):
    logit_slope = 0.2


class SoftmaxOfMessages(Layer):
    aggregation = SoftmaxAttention()

    def transform(self, h, node): ...

    def message(self, source, target, edge): ...

    def update(self, own, aggregated): ...


class LastIsWider(Own):
    @classmethod
    def from_config(cls, config, place):
        return cls(place.in_width, config.options["last"] if place.is_last else place.width)


NOT_A_LAYER = nn.Linear(1, 1)


PLACE = Place(4, 3)


def built(kind, place=PLACE, **keys):
    return build_layer(model_from_dict({"kind": kind, **keys}), place)


def test_an_own_layer_is_built_with_its_options():
    layer = built(f"{__name__}:Own", options={"slope": 0.5})
    assert isinstance(layer, Own)
    assert (layer.in_width, layer.out_width, layer.slope) == (4, 3, 0.5)


def test_attention_dropout_is_the_dropout_unless_given():
    assert built("gat", dropout=0.6).coefficient_dropout == 0.6
    assert built("gat", dropout=0.6, attention_dropout=0.0).coefficient_dropout == 0.0


def test_heads_side_by_side_widen_the_output():
    layer = built("gat", heads=5)
    assert isinstance(layer, GAT)
    assert layer.out_width == 15
    last = built("gat", Place(4, 3, is_last=True), heads=5, output_heads=2)
    assert (last.heads, last.out_width) == (2, 3)


@pytest.mark.parametrize(
    "kind",
    [kind for kind, section in tagged_members(Config.model_fields["model"]).items() if not is_free_text(section)],
)
def test_every_built_in_kind_names_a_layer(kind):
    config = model_from_dict({"kind": kind})
    layer = build_layer(config, Place(4, 3, attribute_width=2))
    assert type(layer) is load_layer_class(config.layer_class)
    assert layer.in_width == 4


def test_a_layer_builds_itself_from_its_section_and_place():
    assert isinstance(GCN.from_config(GCNConfig(), Place(4, 3)), GCN)
    assert GAT.from_config(GATConfig(heads=2), Place(4, 3)).out_width == 6
    assert built(f"{__name__}:LastIsWider", options={"last": 9}).out_width == 3
    assert built(f"{__name__}:LastIsWider", Place(4, 3, is_last=True), options={"last": 9}).out_width == 9


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("gnnflow.no_such_module:A", {}, r"there is no module 'gnnflow\.no_such_module'.*PYTHONPATH"),
        ("no_such_package.deeper:A", {}, r"there is no module 'no_such_package\.deeper'"),
        (f"{__name__}:Missing", {}, r"no class 'Missing'. Its layers are: Own, WithoutAggregation"),
        (f"{__name__}:NOT_A_LAYER", {}, r"not a gnnflow layer. Derive the class from gnnflow\.layers\.Layer"),
        ("torch.nn:Linear", {}, "not a gnnflow layer"),
        (f"{__name__}:Own", {"slop": 1}, r"model\.options: .*Own\(4, 3, slop=1\) failed: .*unexpected keyword"),
        (f"{__name__}:Own", {"slope": -1}, "slope must not be negative"),
        (f"{__name__}:WithoutAggregation", {}, r"has no aggregation \('sum' found\)"),
        (f"{__name__}:WithAttributes", {}, r"needs edge attributes.*graph\.edge_features"),
        (f"{__name__}:SlopeWithoutSoftmax", {}, r"sets logit_slope = 0\.2.*Omit logit_slope"),
        (f"{__name__}:MapsBehindMax", {}, r"before or after the aggregation.*Apply the map in transform\(\)"),
        (f"{__name__}:MapsBehindAttributes", {}, r"before or after the aggregation"),
        (f"{__name__}:SoftmaxOfMessages", {}, "softmax attention and uses_edge_attributes do not support"),
        ("gat_e", {}, r"gat_e needs edge attributes and the graph has none.*graph\.edge_features"),
    ],
)
def test_what_cannot_be_built_is_explained(kind, options, message):
    with pytest.raises(LayerError, match=message):
        built(kind, **({"options": options} if options else {}))


@pytest.mark.parametrize("kind", ["gcn", "a.b:", "a.b"])
def test_a_name_that_is_not_a_class_is_explained(kind):
    with pytest.raises(LayerError, match=r"does not name a layer class\. Write it as package\.module:Class"):
        load_layer_class(kind)


def test_a_module_that_does_not_import_is_explained(tmp_path, monkeypatch):
    (tmp_path / "needs_absent.py").write_text("import absent_package\n")
    (tmp_path / "falls_over.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LayerError, match="imports 'absent_package', which is not installed"):
        built("needs_absent:A")
    with pytest.raises(LayerError, match="importing module 'falls_over' failed: ZeroDivisionError"):
        built("falls_over:A")


def test_nothing_is_imported_that_the_place_does_not_allow(monkeypatch, tmp_path):
    (tmp_path / "careless.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LayerError, match="importing module 'careless' failed: SystemExit"):
        load_layer_class("careless:Layer")
    monkeypatch.setenv("GNNFLOW_MODULES", "tests")
    with pytest.raises(ConfigError, match="module 'careless' may not be imported here"):
        load_layer_class("careless:Layer")
    assert load_layer_class("tests.contracts.own_layers:Gated").__name__ == "Gated"
    monkeypatch.delenv("GNNFLOW_MODULES")
    monkeypatch.setenv("GNNFLOW_SERVICE", "1")
    with pytest.raises(ConfigError, match="allowed are: none"):
        load_layer_class("careless:Layer")
    assert build_layer(GCNConfig(), Place(3, 2, is_last=True))
