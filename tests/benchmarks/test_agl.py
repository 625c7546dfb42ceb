"""The ablation changes what is computed, never the result; every library gets the same model over the same batch."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
import torch
from agl import epochs_table, scores_table
from agl_cells import FORMS, Graph, batch_of, epoch_of, offsets_of, read_graph, scores_of
from agl_models import Gnnflow, PyG, Spec, with_self

NODES, WIDTH, LABELS = 60, 5, 4
CHOSEN = argparse.Namespace(lib="gnnflow", batch_size=8, batches=2, warmup=0, repeats=2)


@pytest.fixture(params=["labels", "classes"])
def graph(request, tmp_path) -> Graph:
    random = np.random.default_rng(0)
    edges = np.unique(random.integers(NODES, size=(2, 150)), axis=1)
    part = random.permutation(NODES) % 3
    np.savez(
        tmp_path / "graph.npz",
        x=random.standard_normal((NODES, WIDTH)).astype(np.float32),
        y=random.integers(0, 2, (NODES, LABELS)).astype(np.float32)
        if request.param == "labels"
        else np.append(random.integers(0, LABELS, NODES - 1), LABELS - 1),
        edge_index=edges[:, edges[0] != edges[1]],
        **{f"{name}_mask": part == number for number, name in enumerate(("train", "val", "test"))},
    )
    return read_graph(str(tmp_path / "graph.npz"))


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_all_forms_train_the_same_model(graph, model, layers):
    spec = Spec(model, layers, *graph.spec)
    forms = FORMS if model != "gat" else FORMS[:-1]
    losses = [epoch_of(graph, spec, form, CHOSEN)["loss"] for form in forms]
    assert losses == pytest.approx([losses[0]] * len(forms), abs=2e-4)


def test_what_depends_on_weights_is_not_made_ahead(graph):
    with pytest.raises(NotImplementedError):
        epoch_of(graph, Spec("gat", 2, *graph.spec), "ahead", CHOSEN)


def test_a_pruned_layer_computes_what_the_next_one_reads(graph):
    batch = batch_of(graph, np.array([3, 7]), hops=2)
    (first, _, rows), (last, sources, read) = (batch.layer(index, pruned=True) for index in (0, 1))
    assert (len(last) - 1, len(first) - 1) == (2, read)
    assert rows == len(batch.nodes)
    expected = [source for target in (3, 7) for source in graph.sources[slice(*graph.offsets[target : target + 2])]]
    assert batch.nodes[sources].tolist() == expected


def test_an_unpruned_layer_holds_all_edges_of_the_batch(graph):
    batch = batch_of(graph, np.array([3, 7]), hops=2)
    for index in (0, 1):
        offsets, sources, rows = batch.layer(index, pruned=False)
        assert (len(offsets) - 1, len(sources)) == (rows, len(batch.sources))


@pytest.mark.parametrize("name", ["gcn", "sage", "gat"])
def test_pyg_gives_the_outputs_of_the_same_weights(graph, name):
    pytest.importorskip("torch_geometric")
    ours, theirs, spec = Gnnflow(), PyG(), Spec(name, 2, *graph.spec)
    net, peer = ours.model(spec), theirs.model(spec)
    shapes = [sorted(tuple(each.shape) for each in one.parameters() if each.ndim == 2) for one in (net, peer)]
    assert shapes[0] == shapes[1] if name != "gat" else len(shapes[0]) > 0
    for each in [*net.parameters(), *peer.parameters()]:
        torch.nn.init.constant_(each, 0.05)
    if name == "sage":  # PyG's neighbour map has the bias, ours that of the node itself: both have one
        assert sum(each.numel() for each in net.parameters()) == sum(each.numel() for each in peer.parameters())
    batch = batch_of(graph, np.arange(10), hops=2)
    x = graph.x[batch.nodes]
    found = ours.outputs(net, ours.prepare(net, batch, x, form="both"))
    torch.testing.assert_close(peer.eval() and theirs.outputs(peer, theirs.prepare(peer, batch, x, form="")), found)


def test_scores_are_one_per_seed(graph):
    chosen = argparse.Namespace(lib="gnnflow", seeds=2, epochs=3, lr=0.01, weight_decay=5e-4)
    found = scores_of(graph, Spec("gat", 2, *graph.spec, citation=graph.y.ndim == 1), chosen)
    assert len(found["scores"]) == 2
    assert all(0 <= each <= 1 for each in found["scores"])


def test_a_self_edge_is_a_targets_last():
    offsets, sources = with_self(offsets_of([2, 0, 1]), np.array([5, 6, 7]))
    assert (offsets.tolist(), sources.tolist()) == ([0, 3, 4, 6], [5, 6, 0, 1, 7, 2])


def test_ratios_are_times_as_fast_as_base():
    times = {
        "gnnflow": {"gcn/1/base": [4.0], "gcn/1/pruning": [2.0], "gcn/1/both": [1.0]},
        "dgl": {"gcn/1/as it is": [3]},
    }
    row = epochs_table(times, models=["gcn"], layers=["1"]).splitlines()[-1]
    assert row == "| gcn, 1 | 4.000 | 2.00 |  | 4.00 |  | 1.33 | 3.00 |"


def test_scores_stand_beside_the_best_peer():
    found = scores_table({"cora": {"gnnflow": {"gcn/2": [0.8, 0.82]}, "pyg": {"gcn/2": [0.81]}}})
    assert found.splitlines()[-1] == "| cora, gcn | 0.8100 +- 0.0100 | 0.8100 +- 0.0000 | 1.000 |"
