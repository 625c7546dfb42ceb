"""Each layer equals its paper's formula, written with dense matrices on one small directed graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import leaky_relu, relu

from gnnflow.executions.reference import layer_output
from gnnflow.graph.batch import Block
from gnnflow.graph.edges import InEdges
from gnnflow.layers import GAT, GATE, GCN, GGCN, GGNN, GIN, GraphSAGE, NodeContext

N, IN, OUT, HEADS = 5, 4, 3, 2
# weight[v, u] is the weight of the edge u -> v; node 4 has no in-edges, node 2 a self-loop
WEIGHT = torch.tensor(
    [
        [0.0, 1.5, 0.0, 0.5, 0.0],
        [2.0, 0.0, 0.0, 0.0, 1.0],
        [0.0, 0.3, 0.7, 0.0, 0.0],
        [0.0, 0.0, 1.1, 0.0, 0.9],
        [0.0, 0.0, 0.0, 0.0, 0.0],
    ]
)
EDGE = WEIGHT > 0
ATTRIBUTES = torch.randn(N, N, 2, generator=torch.Generator().manual_seed(5)) * EDGE[:, :, None]
H = torch.randn(N, IN, generator=torch.Generator().manual_seed(6))


def run(layer, *, weighted=True):
    targets, sources = torch.nonzero(EDGE, as_tuple=True)
    edges = InEdges(
        np.searchsorted(targets.numpy(), np.arange(N + 1)),
        sources.numpy(),
        WEIGHT[EDGE].numpy() if weighted else None,
        ATTRIBUTES[EDGE].numpy(),
    )
    block = Block(edges, num_sources=N)
    degrees = EDGE.sum(1).float(), EDGE.sum(0).float()
    node = NodeContext(*degrees, WEIGHT.sum(1) if weighted else degrees[0])
    with torch.no_grad():
        return layer_output(layer.eval(), H, node=node, block=block)


def check(layer, expected, **how):
    torch.testing.assert_close(run(layer, **how), expected.detach())


@pytest.mark.parametrize("weighted", [True, False])
def test_gcn_is_the_symmetric_normalised_adjacency(weighted):
    layer = GCN(IN, OUT)
    torch.nn.init.normal_(layer.bias)
    adjacency = (WEIGHT if weighted else EDGE.float()) + torch.eye(N)
    half = torch.diag(adjacency.sum(1).rsqrt())
    check(layer, half @ adjacency @ half @ layer.linear(H) + layer.bias, weighted=weighted)


@pytest.mark.parametrize("weighted", [True, False])
def test_sage_mean_adds_the_weighted_mean_of_neighbors(weighted):
    layer = GraphSAGE(IN, OUT)
    adjacency = WEIGHT if weighted else EDGE.float()
    mean = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1e-9)
    check(layer, layer.own(H) + layer.neighbor(mean @ H), weighted=weighted)


@pytest.mark.parametrize("aggregator", ["mean", "max"])
def test_sage_starts_within_the_bounds_of_its_inputs(aggregator):
    layer = GraphSAGE(100, 400, aggregator=aggregator)
    for name, weight in layer.named_parameters():
        largest = 0.0 if name.endswith("bias") else weight.shape[1] ** -0.5
        assert weight.abs().max().item() == pytest.approx(largest, rel=0.01), name


def test_sage_max_pools_before_the_maximum():
    layer = GraphSAGE(IN, OUT, aggregator="max")
    pooled = relu(layer.pool(H)).expand(N, N, OUT).masked_fill(~EDGE[:, :, None], 0.0)
    check(layer, layer.own(H) + layer.neighbor(pooled.max(1).values))


@pytest.mark.parametrize("weighted", [True, False])
def test_commnet_adds_the_weighted_sum_of_neighbors(weighted):
    layer = GraphSAGE(IN, OUT, aggregator="sum")
    adjacency = WEIGHT if weighted else EDGE.float()
    check(layer, layer.own(H) + layer.neighbor(adjacency @ H), weighted=weighted)


@pytest.mark.parametrize("weighted", [True, False])
def test_ggcn_lets_neighbors_pass_through_gates_of_both_ends(weighted):
    layer = GGCN(IN, OUT)
    adjacency = WEIGHT if weighted else EDGE.float()
    gates = torch.sigmoid(layer.target_gate(H)[:, None] + layer.source_gate(H)[None])  # [targets, sources, IN]
    passed = (adjacency[:, :, None] * gates * H[None]).sum(1)
    check(layer, layer.linear(passed), weighted=weighted)


@pytest.mark.parametrize("out_width", [IN, OUT])
@pytest.mark.parametrize("weighted", [True, False])
def test_ggnn_updates_a_row_by_a_gru_of_the_sum(weighted, out_width):
    layer = GGNN(IN, out_width)
    aggregated = (WEIGHT if weighted else EDGE.float()) @ layer.neighbor(H)
    own = H if out_width == IN else layer.recurrence.own(H)
    cell = layer.recurrence.cell
    # equations 3 to 6, with torch's order of the three parts: r, z and the candidate
    of_sum = nn.functional.linear(aggregated, cell.weight_ih, cell.bias_ih).chunk(3, 1)
    of_own = nn.functional.linear(own, cell.weight_hh, cell.bias_hh).chunk(3, 1)
    reset, keep = torch.sigmoid(of_sum[0] + of_own[0]), torch.sigmoid(of_sum[1] + of_own[1])
    candidate = torch.tanh(of_sum[2] + reset * of_own[2])
    check(layer, (1.0 - keep) * candidate + keep * own, weighted=weighted)


def test_gin_adds_its_own_row_one_plus_epsilon_times():
    layer = GIN(IN, OUT)
    torch.nn.init.constant_(layer.epsilon, 0.3)
    check(layer, layer.mlp(1.3 * H + EDGE.float() @ H), weighted=False)


def attention(layer, edge_logit):
    """Attention over in-neighbours and the node itself, [N targets, N sources, HEADS]; a loop counts beside itself."""
    value = layer.linear(H).view(N, HEADS, OUT)
    by_source, by_target = (value * layer.attend_source).sum(2), (value * layer.attend_target).sum(2)
    plain = by_target[:, None] + by_source[None]
    graph = leaky_relu(plain + edge_logit, 0.2).exp() * EDGE[:, :, None]
    loops = leaky_relu(plain, 0.2).exp() * torch.eye(N)[:, :, None]
    total = (graph + loops).sum(1, keepdim=True)
    return value, graph / total, loops / total


@pytest.mark.parametrize("concat", [True, False])
def test_gat_attends_over_neighbors_and_itself(concat):
    layer = GAT(IN, OUT, heads=HEADS, concat=concat)
    value, graph, loops = attention(layer, 0.0)
    rows = torch.einsum("vuh,uhd->vhd", graph + loops, value)
    check(layer, rows.flatten(1) if concat else rows.mean(1))


def test_gat_e_reads_attributes_in_logit_and_message():
    layer = GATE(IN, OUT, attribute_width=2, heads=HEADS, concat=True)
    value, graph, loops = attention(layer, ATTRIBUTES @ layer.attend_edge)
    rows = torch.einsum("vuh,uhd->vhd", graph + loops, value)
    rows = rows + torch.einsum("vuh,vua,had->vhd", graph, ATTRIBUTES, layer.edge_linear)
    check(layer, rows.flatten(1))
