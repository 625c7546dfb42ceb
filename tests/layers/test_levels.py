"""PinSage, MAGNN and P-GNN equal plain implementations of their papers, one instance at a time, same weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import elu, leaky_relu, normalize

from gnnflow.config import model_from_dict
from gnnflow.executions.base import OneBlock, layer_rows, maps_first, terms_of
from gnnflow.executions.propagate import partial_state
from gnnflow.executions.tensors import block_tensors
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block
from gnnflow.graph.edges import InEdges
from gnnflow.graph.errors import LayerError
from gnnflow.graph.schema import GraphSchema, Relation
from gnnflow.layers import PGNN, ModelInputs, NodeContext, PinSage, Place, TypedInputs, TypeInputs, build_model
from gnnflow.layers.aggregation import Slots
from gnnflow.layers.kinds import build_relations
from gnnflow.layers.magnn import MAGNN
from gnnflow.layers.messages import Messages
from tests.contracts.in_memory import GraphShape, whole_graph

N, WIDTH, OUT, HEADS = 7, 6, 5, 3
H = torch.randn(N, WIDTH, generator=torch.Generator().manual_seed(3))


def instances(seed, size, *, weighted=False, attributes=None):
    """Some instances of each node, of so many leaves; node 2 has none."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, N)
    counts[2] = 0
    edges = int(counts.sum())
    return InEdges(
        offsets_of(counts),
        rng.integers(0, N, edges * size),
        weight=rng.uniform(0.1, 2.0, edges).astype(np.float32) if weighted else None,
        attributes=None if attributes is None else attributes(rng, counts),
        leaves=None if size == 1 else np.arange(edges + 1) * size,
    )


def context(edges):
    degree = torch.from_numpy(edges.lengths).float()
    targets = torch.repeat_interleave(torch.from_numpy(edges.lengths))
    weight = torch.ones(edges.num_edges) if edges.weight is None else torch.from_numpy(edges.weight)
    return NodeContext(degree, degree, torch.zeros(N).index_add(0, targets, weight))


def run(layer, edges):
    delivery, nodes = OneBlock(block_tensors(Block(edges, N))), context(edges)
    first = maps_first(layer, H, N, delivery.num_edges)
    terms = terms_of(layer, H, nodes=nodes, num_targets=N, map_first=first)
    return layer_rows(layer, terms=terms, delivery=delivery, map_first=first)


def paths_of(edges, node):
    """Each instance of a node: its leaves, from the root outward."""
    size = 1 if edges.leaves is None else 2 if len(edges.sources) == 2 * edges.num_edges else 3
    every = edges.sources.reshape(-1, size)
    return every[edges.offsets[node] : edges.offsets[node + 1]]


def turned(row, angle):
    """A row as complex numbers, its halves real and imaginary parts, turned."""
    half = len(row) // 2
    number = torch.complex(row[:half], row[half:]) * torch.polar(torch.ones(half), angle)
    return torch.cat([number.real, number.imag])


def magnn_of_one_metapath(layer, edges, angles):
    """Equations 4 to 7, path by path: each node of a path, from its far end, is turned by the steps to the root."""
    rows = torch.zeros(N, HEADS, WIDTH)
    for node in range(N):
        found = []
        for path in paths_of(edges, node):
            # o_0 = h of the far end, o_i = h_i + o_{i - 1} * r_i, and the root is last
            steps = [*reversed(path.tolist()), node]
            encoded = H[steps[0]]
            for number, each in enumerate(steps[1:]):
                angle = angles[len(path) - 1 - number]
                encoded = H[each] + (encoded if angle is None else turned(encoded, angle))
            found.append(encoded / len(steps))
        if found:
            path_rows = torch.stack(found)
            logit = leaky_relu(layer.attend_root @ H[node] + path_rows @ layer.attend_path.T, 0.01)
            rows[node] = torch.softmax(logit, 0).T @ path_rows
    return elu(rows).flatten(1)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_magnn_by_mean_equals_a_loop_over_paths(size):
    torch.manual_seed(1)
    layer = MAGNN(WIDTH, OUT, heads=HEADS, leaves=size, joins_heads=False)
    edges = instances(1, size)
    torch.testing.assert_close(run(layer, edges), magnn_of_one_metapath(layer, edges, [None] * size))


TYPED = GraphSchema.of(["n", "o"], [Relation("n", "n-o-n", "n"), Relation("o", "n-o", "n"), Relation("n", "x", "n")])


def test_magnn_by_rotation_equals_a_loop_over_paths_and_goes_back_the_way_it_came():
    torch.manual_seed(1)
    config = model_from_dict({"kind": "magnn", "encodes": "rotate", "heads": HEADS, "hidden": WIDTH, "head": "linear"})
    layers = build_relations(config, Place(WIDTH, OUT), TYPED, leaves=(2, 1, 3)).eval()
    # n-o-n goes out along the step between n and o and back along the same, turned round
    there = layers.shared.angles["0_1"]
    edges = instances(1, 2)
    expected = magnn_of_one_metapath(layers.layer(0), edges, [there, -there])
    torch.testing.assert_close(run(layers.layer(0), edges), expected)
    # a name that is no path of so many leaves has a step per place
    own = [layers.shared.angles[f"relation_2_{place}"] for place in range(3)]
    edges = instances(2, 3)
    torch.testing.assert_close(run(layers.layer(2), edges), magnn_of_one_metapath(layers.layer(2), edges, own))


def test_magnn_shares_steps_and_has_one_map_per_type():
    config = model_from_dict({"kind": "magnn", "encodes": "rotate", "heads": HEADS, "hidden": WIDTH, "head": "linear"})
    layers = build_relations(config, Place(WIDTH, OUT), TYPED, leaves=(2, 1, 1))
    assert set(layers.shared.angles) == {"0_1", "relation_1_0"}
    assert {name: linear.weight.shape for name, linear in layers.out.items()} == {"0": (OUT, HEADS * WIDTH)}
    assert layers.out_width == OUT


def test_magnn_refuses_paths_of_different_lengths():
    config = model_from_dict({"kind": "magnn", "hidden": 8})
    inputs = ModelInputs(8, num_outputs=2, leaves=(0,))
    with pytest.raises(LayerError, match=r"different numbers of leaves, but MAGNN encodes paths of one.*metapaths"):
        build_model(config, inputs)


def test_magnn_refuses_to_rotate_an_odd_number_of_columns():
    config = model_from_dict({"kind": "magnn", "encodes": "rotate", "hidden": 8})
    with pytest.raises(LayerError, match=r"input has 5 columns, and a rotation turns pairs.*encoder: linear"):
        build_model(config, ModelInputs(5, num_outputs=2))


def test_pinsage_is_algorithm_1():
    layer, edges = PinSage(WIDTH, OUT), instances(4, 1, weighted=True)
    for each in (layer.pool.bias, layer.own.bias):
        torch.nn.init.normal_(each)
    rows = []
    for node in range(N):
        weights = torch.from_numpy(edges.weight[edges.offsets[node] : edges.offsets[node + 1]])
        pooled = torch.relu(layer.pool(H[paths_of(edges, node)[:, 0]]))
        mean = (weights[:, None] * pooled).sum(0) / weights.sum() if len(weights) else torch.zeros(OUT)
        both = torch.cat([layer.own.weight, layer.neighbor.weight], 1) @ torch.cat([H[node], mean]) + layer.own.bias
        rows.append(normalize(torch.relu(both), dim=0))
    torch.testing.assert_close(run(layer, edges), torch.stack(rows))


def test_pinsage_leaves_scores_as_they_are():
    config = model_from_dict({"kind": "pinsage", "hidden": 8, "layers": 2})
    model = build_model(config, ModelInputs(4, num_outputs=3))
    assert [layer.gives_scores for layer in model.layers] == [False, True]


def anchor_edges():
    """The nearest member of each anchor set that is near enough: each node's sets in order, some of 4 left out."""

    def sets(rng, counts):
        drawn = [np.sort(rng.permutation(4)[:count]) for count in counts]
        return np.concatenate(drawn).astype(np.float32)[:, None]

    return instances(6, 1, weighted=True, attributes=sets)


def messages_of(layer, edges, node):
    """The number of each anchor set near a node, and s(v, u) W [h_v || h_u] without the bias."""
    run_of = slice(edges.offsets[node], edges.offsets[node + 1])
    both = torch.cat([H[node].expand(run_of.stop - run_of.start, -1), H[edges.sources[run_of]]], 1)
    weight = torch.cat([layer.own.weight, layer.neighbor.weight], 1)
    return edges.attributes[run_of, 0].astype(int), torch.from_numpy(edges.weight[run_of])[:, None] * (both @ weight.T)


def test_pgnn_is_the_mean_message_of_the_anchor_sets():
    layer, edges = PGNN(WIDTH, OUT), anchor_edges()
    found = [messages_of(layer, edges, node)[1] for node in range(N)]
    expected = torch.stack([each.mean(0) if len(each) else torch.zeros(OUT) for each in found])
    torch.testing.assert_close(run(layer, edges), expected)


def test_pgnn_positions_have_a_column_per_anchor_set_at_unit_length():
    layer, edges = PGNN(WIDTH, OUT, anchor_sets=4), anchor_edges()
    expected = torch.zeros(N, 4)
    for node in range(N):
        sets, messages = messages_of(layer, edges, node)
        expected[node, sets] = messages @ layer.position.weight[0]
    torch.testing.assert_close(run(layer, edges), normalize(expected, dim=1))
    assert run(layer, edges)[2].tolist() == [0.0] * 4


def test_an_anchor_set_beyond_those_that_are_named_is_refused():
    with pytest.raises(LayerError, match=r"edges have slots 0 to 3, but there are 2.*Set it to 4 or more"):
        run(PGNN(WIDTH, OUT, anchor_sets=2), anchor_edges())


def test_slots_of_parts_of_the_edges_add_up_to_those_of_all():
    edges = anchor_edges()
    block, slots = block_tensors(Block(edges, N)), Slots(4)
    value = torch.randn(N, 1, 2)
    half = edges.num_edges // 2
    states = [
        slots.partial(
            Messages(block.csr.part(slice(0, N), run), value, attributes=torch.from_numpy(edges.attributes[run]))
        )
        for run in (slice(0, half), slice(half, edges.num_edges))
    ]
    whole = slots.partial(Messages(block.csr, value, attributes=torch.from_numpy(edges.attributes)))
    torch.testing.assert_close(slots.merge(*states), whole)


def test_the_largest_of_all_layers_is_read_where_jumping_says_max():
    config = model_from_dict({"kind": "sage", "hidden": 8, "layers": 3, "head": "jumping", "jumping": "max"})
    model = build_model(config, ModelInputs(4, num_outputs=3)).eval()
    outputs = [torch.randn(5, 8) for _ in range(3)]
    largest = torch.stack(outputs).amax(0)
    torch.testing.assert_close(model.embedding(outputs), largest)
    torch.testing.assert_close(model.predict(outputs), largest @ model.head.weight.T + model.head.bias)


def test_layers_of_different_widths_have_no_largest():
    config = model_from_dict({"kind": "gat", "hidden": 8, "heads": 2, "head": "jumping", "jumping": "max"})
    with pytest.raises(
        LayerError, match=r"the layers give 16, 8 columns, but the maximum over layers needs one width.*concat"
    ):
        build_model(config, ModelInputs(4, num_outputs=3))


def test_rings_joined_by_concat_are_one_linear_map_of_their_rows():
    schema = GraphSchema.of(["node"], [Relation("node", f"ring{distance}", "node") for distance in (1, 2)])
    config = model_from_dict({"kind": "sage", "hidden": OUT, "across": "concat", "head": "linear"})
    layers = build_relations(config, Place(WIDTH, OUT), schema, leaves=(1, 1))
    rows = [torch.randn(N, OUT) for _ in range(2)]
    linear = layers.across["0"].linear
    torch.testing.assert_close(layers.joined(0, rows, H), torch.cat(rows, 1) @ linear.weight.T + linear.bias)


def test_a_saved_model_knows_the_leaves_of_its_relations(tmp_path):
    from gnnflow.layers.saved import encode_weights, load_model, save_model

    config = model_from_dict({"kind": "magnn", "encodes": "rotate", "hidden": 4, "heads": 2})
    typed = TypedInputs((TypeInputs("n", 3), TypeInputs("o")), tuple(map(str, TYPED.relations)))
    inputs = ModelInputs(3, num_outputs=2, typed=typed, leaves=(2, 1, 1))
    model = build_model(config, inputs)
    save_model(str(tmp_path), config, inputs, weights=encode_weights(model.state_dict()))
    assert load_model(str(tmp_path)).inputs == inputs


def test_threads_do_not_change_a_bit_of_what_instances_give():
    graph = whole_graph(GraphShape(60, tuple((i % 60, i % 7) for i in range(900)), seed=1, leaves=0))
    layer = MAGNN(WIDTH, OUT, heads=HEADS, leaves=2)
    nodes = NodeContext(*(torch.ones(60),) * 3)
    # made once, and not mapped behind: torch's products differ by a rounding between threads on some processors
    terms = terms_of(layer, torch.randn(60, WIDTH), nodes=nodes, num_targets=60, map_first=True)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        source, target = ({name: row.detach().requires_grad_() for name, row in each.items()} for each in terms)
        state = partial_state(layer, source=source, target=target, block=block_tensors(graph.adjacency))
        total = sum(each.square().sum() for each in state.values() if each.requires_grad)
        found.append((*state.values(), *torch.autograd.grad(total, [*source.values()])))
    torch.set_num_threads(before)
    assert all(torch.equal(one, other) for run in found[1:] for one, other in zip(found[0], run, strict=True))
