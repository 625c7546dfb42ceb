"""Layers of typed graphs equal their papers' formulas and PyG's own layers with the same weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnflow.config import HANConfig, SAGEConfig, model_from_dict
from gnnflow.executions.reference import joined_output
from gnnflow.executions.tensors import node_context
from gnnflow.graph.batch import Degrees
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.facts import FeatureFacts
from gnnflow.graph.schema import GraphSchema, Relation
from gnnflow.layers import ModelInputs, Place, TypedInputs, TypeInputs, build_model
from gnnflow.layers.decoders import DecoderInputs
from gnnflow.layers.encoders import DegreeEncoder
from gnnflow.layers.kinds import build_relations
from gnnflow.layers.relational import Across
from tests.contracts.typed_graphs import SCHEMA, TWO_RELATIONS, TypedShape, typed_graph

IN, OUT = 6, 4


@pytest.fixture
def pyg():
    return pytest.importorskip("torch_geometric.nn", reason="needs gnnflow[pyg]")


class Compared:
    """A random typed graph, rows of its nodes, and both as PyG holds them: by type, with edges by relation."""

    def __init__(self, schema: GraphSchema, width: int = IN) -> None:
        shape = TypedShape(schema, (5,) * schema.num_types, (12,) * schema.num_relations, seed=4)
        graph, self.schema = typed_graph(shape), schema
        types = np.zeros(len(graph.nodes), np.int64) if graph.nodes.types is None else graph.nodes.types
        self.block, self.node, self.types = graph.adjacency, node_context(graph.nodes), torch.from_numpy(types)
        self.h = torch.randn(len(types), width, generator=torch.Generator().manual_seed(5))
        self.x = {name: self.h[self.types == number] for number, name in enumerate(schema.types)}
        # the number of each node among those of its type
        place = np.concatenate([np.arange(0)] + [np.arange(5)] * schema.num_types)[
            np.argsort(np.argsort(types, kind="stable"))
        ]
        self.edges = {}
        for number, relation in enumerate(schema.relations):
            edges = self.block.edges.relation(number)
            targets = np.repeat(np.arange(len(types)), edges.lengths)
            ends = np.stack([place[edges.sources], place[targets]])
            self.edges[relation.source, relation.name, relation.target] = torch.from_numpy(ends)

    def run(self, layers) -> dict[str, torch.Tensor]:
        out = joined_output(layers, self.h, node=self.node, types=self.types, block=self.block)
        return {name: out[self.types == number] for number, name in enumerate(self.schema.types)}


def layers_of(schema, keys, width=IN):
    torch.manual_seed(1)
    leaves = (1,) * schema.num_relations
    return build_relations(model_from_dict({"hidden": OUT, **keys}), Place(width, OUT), schema, leaves=leaves).eval()


# PyG says that nothing leads to shops
@pytest.mark.filterwarnings("ignore:There exist node types:UserWarning")
def test_sage_summed_over_relations_is_hetero_conv_of_pyg(pyg):
    graph, layers = Compared(SCHEMA), layers_of(SCHEMA, {"kind": "sage", "across": "sum"})
    convolutions = {}
    for key, layer in zip(graph.edges, layers.layers, strict=True):
        convolution = pyg.SAGEConv((IN, IN), OUT, root_weight=True)
        convolution.lin_l.weight.data, convolution.lin_r.weight.data = layer.neighbor.weight, layer.own.weight
        convolution.lin_l.bias.data = layer.own.bias
        convolutions[key] = convolution
    expected = pyg.HeteroConv(convolutions, aggr="sum")(graph.x, graph.edges)
    found = graph.run(layers)
    for name, rows in expected.items():
        torch.testing.assert_close(found[name], rows)
    assert set(expected) == {"item", "user"}


@pytest.mark.parametrize("bases", [None, 3])
def test_rgcn_is_that_of_pyg(pyg, bases):
    graph, layers = Compared(TWO_RELATIONS), layers_of(TWO_RELATIONS, {"kind": "rgcn", "bases": bases})
    theirs = pyg.RGCNConv(IN, OUT, num_relations=2, num_bases=bases)
    if bases is None:
        theirs.weight.data = torch.stack([layer.weight.T for layer in layers.layers])
    else:
        theirs.weight.data = layers.shared.weight.transpose(1, 2).contiguous()
        theirs.comp.data = torch.cat([layer.weight for layer in layers.layers])
    theirs.root.data, theirs.bias.data = layers.own["0"].weight.T, layers.own["0"].bias
    types = torch.cat([torch.full((each.shape[1],), number) for number, each in enumerate(graph.edges.values())])
    expected = theirs(graph.h, torch.cat(list(graph.edges.values()), 1), types)
    torch.testing.assert_close(graph.run(layers)["user"], expected)


@pytest.mark.parametrize("width", [IN, OUT])
def test_hgt_is_that_of_pyg(pyg, width):
    graph, layers = Compared(SCHEMA, width), layers_of(SCHEMA, {"kind": "hgt", "heads": 2}, width)
    theirs = pyg.HGTConv(width, OUT, (list(SCHEMA.types), list(graph.edges)), heads=2)
    for name, maps in zip(SCHEMA.types, layers.shared, strict=True):
        three = (maps.key, maps.query, maps.value)
        theirs.kqv_lin.lins[name].weight.data = torch.cat([each.weight for each in three])
        theirs.kqv_lin.lins[name].bias.data = torch.cat([each.bias for each in three])
        theirs.out_lin.lins[name].weight.data, theirs.out_lin.lins[name].bias.data = maps.out.weight, maps.out.bias
        if maps.skip is not None:
            maps.skip.data.normal_()
            theirs.skip[name].data[:] = maps.skip
    count = SCHEMA.num_relations
    for number, (key, layer) in enumerate(zip(graph.edges, layers.layers, strict=True)):
        layer.prior.data.normal_()
        theirs.p_rel["__".join(key)].data[:] = layer.prior
        for head in range(2):
            theirs.k_rel.weight.data[head * count + number] = layer.attend[head]
            theirs.v_rel.weight.data[head * count + number] = layer.message_weight[head]
    expected, found = theirs(graph.x, graph.edges), graph.run(layers)
    for name in ("item", "user"):
        torch.testing.assert_close(found[name], expected[name])


def test_han_is_that_of_pyg_before_relations_are_joined(pyg):
    graph, layers = Compared(SCHEMA), layers_of(SCHEMA, {"kind": "han", "heads": 2})
    joined = {}  # what the join of each type was given, by the type's number
    for number, across in layers.across.items():
        across.register_forward_pre_hook(lambda _, given, number=number: joined.update({int(number): given[0]}))
    graph.run(layers)
    for number, (key, layer) in enumerate(zip(graph.edges, layers.layers, strict=True)):
        theirs = pyg.HANConv(IN, 2 * OUT, (list(SCHEMA.types), [key]), heads=2)
        for name, linear in zip(SCHEMA.types, layers.shared, strict=True):
            theirs.proj[name].weight.data, theirs.proj[name].bias.data[:] = linear.weight, 0
        theirs.lin_src["__".join(key)].data = layer.attend_source[None]
        theirs.lin_dst["__".join(key)].data = layer.attend_target[None]
        edges = graph.edges[key]
        if key[0] == key[2]:  # a node is its own neighbour too
            edges = torch.cat([edges, torch.arange(5).expand(2, -1)], 1)
        # of one relation PyG's semantic attention is the relation itself, after its relu
        expected = theirs(graph.x, {key: edges})[key[2]]
        target = SCHEMA.target_types[number]
        rows = joined[target][SCHEMA.relations_into(target).index(number)]
        torch.testing.assert_close(rows.relu(), expected)


def test_heads_of_a_last_han_layer_are_averaged_into_scores_and_stand_side_by_side_elsewhere():
    for head, width in (("direct", 3), ("linear", 8), ("jumping", 8)):
        config = model_from_dict({"kind": "han", "hidden": 4, "heads": 2, "output_heads": 5, "head": head})
        last = build_model(config, ModelInputs(0, 3, typed=TypedShape(SCHEMA, (2,) * 4, (3,) * 5, seed=0).inputs))
        assert {layer.out_width for layer in last.relations(1).layers} == {width}


def test_semantic_attention_weighs_each_nodes_relations_by_a_softmax():
    rows = [torch.randn(5, OUT, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    torch.manual_seed(0)
    across = Across("attention", OUT)
    linear, query = across.attention.linear, across.attention.query.weight[0]
    for node in range(5):
        scores = torch.stack([query @ torch.tanh(linear.weight @ each[node] + linear.bias) for each in rows])
        expected = sum(share * each[node] for share, each in zip(torch.softmax(scores, 0), rows, strict=True))
        torch.testing.assert_close(across(rows)[node], expected)


@pytest.mark.parametrize("join", ["sum", "mean", "max", "attention"])
def test_one_relation_alone_is_taken_as_it_is(join):
    row = torch.randn(3, OUT)
    torch.testing.assert_close(Across(join, OUT)([row]), row)


def test_ways_to_join_are_what_they_are_called():
    rows = torch.randn(3, 5, OUT)
    for join, expected in (("sum", rows.sum(0)), ("mean", rows.mean(0)), ("max", rows.amax(0))):
        torch.testing.assert_close(Across(join, OUT)(list(rows)), expected)


@pytest.mark.parametrize("kind", [{"kind": "gcn"}, {"kind": "hgt", "heads": 2}])
def test_a_type_that_no_relation_leads_to_maps_its_own_rows(kind):
    graph, layers = Compared(SCHEMA), layers_of(SCHEMA, kind)
    for name in ("shop", "island"):
        own = layers.own[str(SCHEMA.types.index(name))]
        torch.testing.assert_close(graph.run(layers)[name], own(graph.x[name]))


def test_a_type_without_features_starts_from_its_own_row_and_degrees():
    torch.manual_seed(0)
    encoder = DegreeEncoder(3, into=(0,), out_of=(1,))
    nodes = Degrees(
        np.array([[2, 9], [2, 7], [0, 0]]), np.array([[4, 3], [5, 3], [0, 0]]), np.zeros((3, 2), np.float32)
    )
    rows = encoder(node_context(nodes))
    # the first two differ only in degrees of relations that do not touch the type on that side
    assert torch.equal(rows[0], rows[1])
    torch.testing.assert_close(rows[2], encoder.row)
    torch.testing.assert_close(rows[0], encoder.row + encoder.linear.weight @ torch.log1p(torch.tensor([2.0, 3.0])))
    alone = DegreeEncoder(3, into=(), out_of=())
    assert torch.equal(alone(node_context(nodes)), alone.row.expand(3, -1))


@pytest.mark.parametrize(("kind", "is_zero"), [("dot", True), ("distmult", True), ("mlp", False)])
def test_products_of_pairs_start_without_degrees(kind, is_zero):
    # otherwise the rows of both ends become zero: AUC .50 on links with a type that has ids alone
    typed = TypedInputs.of(SCHEMA, [None] * len(SCHEMA.types))
    inputs = ModelInputs(0, 4, typed=typed, decoder=DecoderInputs(kind))
    encoders = build_model(SAGEConfig(layers=1), inputs).encoder.types
    assert all(bool((each.linear.weight == 0).all()) == is_zero for each in encoders if each.linear is not None)


def test_a_graph_says_what_a_model_starts_from():
    schema = GraphSchema.of(["b", "a"], [Relation("a", "to", "b")])
    found = TypedInputs.of(schema, [None, FeatureFacts("sparse", 7, has_value=False)])
    assert found == TypedInputs((TypeInputs("a"), TypeInputs("b", 7, sparse=True)), ("a__to__b",))
    assert found.schema == schema
    assert ModelInputs(0, 3, typed=found).schema == schema


def test_types_of_other_widths_meet_in_the_width_of_the_layers_rows():
    shape = TypedShape(SCHEMA, (2,) * 4, (3,) * 5, seed=0)
    model = build_model(
        model_from_dict({"kind": "gat", "hidden": 4, "heads": 2}), ModelInputs(0, 3, typed=shape.inputs)
    )
    widths = [(layer.in_width, layer.out_width) for index in range(2) for layer in model.relations(index).layers]
    assert widths == [(8, 8)] * 5 + [(8, 3)] * 5


def test_across_is_written_where_it_is_not_the_kinds_own():
    assert "across" not in SAGEConfig().model_dump(mode="json")
    assert "across" not in HANConfig().model_dump(mode="json")
    assert HANConfig().across == "attention"
    assert HANConfig(across="sum").model_dump(mode="json")["across"] == "sum"
    assert SAGEConfig(across="max").model_dump(mode="json")["across"] == "max"


def test_heads_that_do_not_divide_the_hidden_width_are_refused():
    with pytest.raises(ConfigError, match=r"model.heads: 3 heads do not divide hidden, which is 64, evenly\. Choose"):
        model_from_dict({"kind": "hgt", "heads": 3})
