"""Convolutions of PyG as layers: they compute what PyG computes, and those that cannot be layers are refused."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from gnnflow.config import config_from_dict, model_from_dict
from gnnflow.executions.reference import layer_output
from gnnflow.executions.tensors import node_context, tensor
from gnnflow.graph.errors import LayerError
from gnnflow.graph.run_facts import InferFacts
from gnnflow.layers import Place, build_layer, load_layer_class
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from tests.contracts.in_memory import EDGE_WIDTH, FEATURE_WIDTH, GraphShape, whole_graph
from tests.small_graphs import graph_config, write_graph

PLACE = Place(FEATURE_WIDTH, 4, attribute_width=EDGE_WIDTH)


@pytest.fixture
def pyg():
    return pytest.importorskip("torch_geometric.nn", reason="needs gnnflow[pyg]")


def built(name, **options):
    return build_layer(model_from_dict({"kind": f"torch_geometric.nn:{name}", "options": options}), PLACE)


@pytest.mark.usefixtures("pyg")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("name", "options", "beside"),
    [
        ("SAGEConv", {"aggr": "max", "normalize": True}, ()),
        ("GATv2Conv", {"heads": 2, "edge_dim": EDGE_WIDTH}, ("edge_attr",)),
        ("GATConv", {"heads": 2}, ()),
        ("GINConv", {"eps": 0.5}, ()),
        ("GraphConv", {"aggr": "mean"}, ("edge_weight",)),
        ("TransformerConv", {"heads": 3, "concat": False}, ()),
        ("LEConv", {}, ("edge_weight",)),
        ("ResGatedGraphConv", {}, ()),
        ("CGConv", {"dim": EDGE_WIDTH}, ("edge_attr",)),
    ],
)
def test_a_layer_computes_what_the_convolution_computes_on_the_whole_graph(name, options, beside, weighted):
    graph = whole_graph(GraphShape(5, ((0, 1), (2, 1), (3, 1), (1, 0), (4, 4)), seed=1, weighted=weighted))
    layer, edges, h = built(name, **options).eval(), graph.adjacency.edges, tensor(graph.features.dense)
    index = torch.tensor(np.stack([edges.sources, np.repeat(np.arange(5), edges.lengths)]))
    known = {"edge_weight": tensor(edges.weight), "edge_attr": tensor(edges.attributes)}
    with torch.no_grad():
        rows = layer_output(layer, h, node=node_context(graph.nodes), block=graph.adjacency)
        expected = layer.conv(h, index, **{key: known[key] for key in beside})
    torch.testing.assert_close(rows, expected)
    assert rows.shape == (5, layer.out_width)


def test_most_convolutions_that_pyg_calls_bipartite_are_layers_as_they_are(pyg):
    from torch_geometric.nn.conv.utils.cheatsheet import supports_bipartite_graphs

    options = {"GINEConv": {"edge_dim": EDGE_WIDTH}, "GMMConv": {"dim": EDGE_WIDTH, "kernel_size": 2}}
    found = {name: "" for name in pyg.conv.__all__ if supports_bipartite_graphs(name)}
    for name in found:
        try:
            built(name, **options.get(name, {}))
        except LayerError as error:
            found[name] = str(error)
    able = {name for name, refusal in found.items() if not refusal}
    assert able >= {
        "SAGEConv",
        "GATConv",
        "GATv2Conv",
        "GENConv",
        "GINConv",
        "GINEConv",
        "GraphConv",
        "TransformerConv",
    }
    assert len(able) >= 16
    # The rest wants coordinates, k-nearest-neighbour libraries or a network of one's own.
    assert all("model.kind: " in refusal or "model.options: " in refusal for refusal in found.values() if refusal)


@pytest.mark.usefixtures("pyg")
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("GCNConv", {}, r"model\.kind: GCNConv called with \(source rows, target rows\).*does not support bipartite"),
        ("SGConv", {}, r"SGConv called .* failed: AttributeError.*marks the convolutions that can as bipartite"),
        ("PNAConv", {}, r"model\.options: PNAConv\(in_channels=5, out_channels=4\) failed: .*'aggregators'"),
        ("SAGEConv", {"agr": "max"}, r"model\.options: SAGEConv\(.*agr='max'\) failed: .*'agr'"),
        ("GINEConv", {}, r"one that reads edge_attr also needs graph\.edge_features and, as its option edge_dim"),
        ("GATv2Conv", {"edge_dim": 7}, r"GATv2Conv called .* failed: RuntimeError"),
        ("GATConf", {}, r"has no class 'GATConf'. Did you mean GATConv"),
        ("MLP", {}, r"not a gnnflow layer.*or from a convolution of torch_geometric\.nn"),
    ],
)
def test_what_cannot_be_a_layer_is_refused_in_words(name, options, message):
    with pytest.raises(LayerError, match=message):
        built(name, **options)


def test_a_convolution_that_reads_other_nodes_edges_is_refused(pyg, monkeypatch):
    class OverAll(pyg.SimpleConv):
        def forward(self, x, edge_index):
            return super().forward(x, edge_index) / edge_index.shape[1]

    monkeypatch.setattr(sys.modules[__name__], "OverAll", OverAll, raising=False)
    with pytest.raises(LayerError, match=r"OverAll called .* gave two nodes other rows once the in-edges of the other"):
        build_layer(model_from_dict({"kind": f"{__name__}:OverAll"}), PLACE)


def test_a_convolution_of_ones_own_is_a_layer_too(pyg, monkeypatch):
    class Edges(pyg.NNConv):
        def __init__(self, in_channels, out_channels):
            super().__init__(in_channels, out_channels, torch.nn.Linear(EDGE_WIDTH, in_channels * out_channels))

    monkeypatch.setattr(sys.modules[__name__], "Edges", Edges, raising=False)
    layer = build_layer(model_from_dict({"kind": f"{__name__}:Edges"}), PLACE)
    assert (type(layer).__name__, layer.in_width, layer.out_width) == ("Edges", FEATURE_WIDTH, 4)


def test_heads_side_by_side_are_seen(pyg):
    assert (built("GATv2Conv", heads=3).out_width, built("GATv2Conv", heads=3, concat=False).out_width) == (12, 4)
    assert load_layer_class("torch_geometric.nn:GATv2Conv").convolution is pyg.GATv2Conv


def test_finding_the_width_draws_nothing(pyg):
    torch.manual_seed(1)
    pyg.GATv2Conv(FEATURE_WIDTH, 4, dropout=0.5)
    wanted = torch.rand(1)
    torch.manual_seed(1)
    built("GATv2Conv", dropout=0.5)
    assert torch.equal(torch.rand(1), wanted)


def test_a_missing_library_names_the_extra(monkeypatch):
    class Nowhere:
        def find_spec(self, name, path=None, target=None):
            if name == "torch_geometric":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in ("torch_geometric", "torch_geometric.nn"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Nowhere(), *sys.meta_path])
    with pytest.raises(LayerError, match=r"no module 'torch_geometric\.nn'.*pip install 'gnnflow\[pyg\]'"):
        built("SAGEConv")


@pytest.mark.usefixtures("pyg")
def test_a_run_trains_and_scores_with_one_under_certificate(tmp_path):
    write_graph(tmp_path, num_edges=200)
    config = graph_config(
        tmp_path,
        graph={"edge_features": ["amount", "hour"], "partitions": 2},
        neighbors={"sampling": {"kind": "uniform", "fanout": [3, 2]}},
        model={"kind": "torch_geometric.nn:GATv2Conv", "hidden": 4, "head": "linear", "options": {"edge_dim": 2}},
        train={"epochs": 2, "batch_size": 16},
    )
    context = StageContext.of(config_from_dict(config.model_dump(mode="json")))
    pipeline.run(context)
    parity = context.artifact("infer").facts(InferFacts).parity
    assert context.artifact("train").manifest.versions["torch_geometric"]
    assert parity.samples == 60
    assert parity.max_difference < 1e-5


@pytest.mark.slow
def test_pyg_is_imported_where_a_config_names_it_and_nowhere_else():
    code = "import sys, gnnflow.layers; sys.exit('torch_geometric' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
