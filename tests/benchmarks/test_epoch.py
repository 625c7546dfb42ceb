"""The ablation changes what is computed, never the result; every library gets the same model over the same batch."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
import torch
from epoch import epoch_of, lines_of
from models import FORMS, Gnnflow, Graph, PyG, Spec, batch_of, offsets_of, read_graph, with_self
from scores import scores_of

from gnnflow.kernels import core as library
from gnnflow.kernels.device import compute_threads
from gnnflow.native import core

NODES, WIDTH, LABELS = 60, 5, 4


def chosen(form: str) -> argparse.Namespace:
    given = {"device": "cpu", "precision": "float32", "batch_size": 8, "batches": 2, "warmup": 0, "repeats": 2}
    return argparse.Namespace(lib="gnnflow", form=form, **given)


BOTH_KINDS = pytest.mark.parametrize("graph", ["labels", "classes"], indirect=True)


@pytest.fixture
def graph(request, tmp_path) -> Graph:
    random = np.random.default_rng(0)
    edges = np.unique(random.integers(NODES, size=(2, 150)), axis=1)
    part = random.permutation(NODES) % 3
    np.savez(
        tmp_path / "graph.npz",
        x=random.standard_normal((NODES, WIDTH)).astype(np.float32),
        y=random.integers(0, 2, (NODES, LABELS)).astype(np.float32)
        if getattr(request, "param", "labels") == "labels"
        else np.append(random.integers(0, LABELS, NODES - 1), LABELS - 1),
        edge_index=edges[:, edges[0] != edges[1]],
        **{f"{name}_mask": part == number for number, name in enumerate(("train", "val", "test"))},
    )
    return read_graph(str(tmp_path / "graph.npz"))


@pytest.mark.table(2)
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_all_forms_train_the_same_model(graph, model, layers):
    spec = Spec(model, layers, *graph.spec)
    forms = FORMS if model != "gat" else FORMS[:-1]
    losses = [epoch_of(graph, spec, chosen(form))["loss"] for form in forms]
    assert losses == pytest.approx([losses[0]] * len(forms), abs=2e-4)


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
@pytest.mark.parametrize(("form", "threads"), [("base", 1), ("pruning", 1), ("partitioning", 2), ("both", 2)])
def test_one_thread_aggregates_where_edges_are_not_partitioned(graph, monkeypatch, model, form, threads):
    if core() is None:
        pytest.skip("the native core was not built: no C compiler")
    seen, call = set(), library.call
    monkeypatch.setattr(library, "call", lambda *given: (seen.add(torch.get_num_threads()), call(*given))[1])
    with compute_threads(2):
        epoch_of(graph, Spec(model, 2, *graph.spec), chosen(form))
    assert seen == {threads}


def test_what_depends_on_weights_is_not_made_ahead(graph):
    with pytest.raises(NotImplementedError):
        epoch_of(graph, Spec("gat", 2, *graph.spec), chosen("ahead"))


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


@BOTH_KINDS
@pytest.mark.parametrize("name", ["gcn", "sage", "gat"])
def test_pyg_gives_the_outputs_of_the_same_weights(graph, name):
    pytest.importorskip("torch_geometric")
    ours, theirs, spec = Gnnflow(), PyG(), Spec(name, 2, *graph.spec)
    net, peer = ours.model(spec), theirs.model(spec)
    counts = [sum(each.numel() for each in one.parameters()) for one in (net, peer)]
    assert counts[0] == counts[1]
    with torch.no_grad():
        for each in [*net.parameters(), *peer.parameters()]:  # those of one size are equal, whatever their names
            each.copy_(0.3 * torch.arange(each.numel()).sin().view_as(each))
    batch = batch_of(graph, np.arange(10), hops=2)
    x = graph.x[batch.nodes]
    found = ours.outputs(net, ours.prepare(net, batch, x, form="both"))
    torch.testing.assert_close(theirs.outputs(peer, theirs.prepare(peer, batch, x, form="")), found)


@BOTH_KINDS
def test_scores_are_one_per_seed(graph):
    asked = argparse.Namespace(lib="gnnflow", seeds=2, epochs=3, weight_decay=5e-4)
    found = scores_of(graph, Spec("gat", 2, *graph.spec, citation=graph.y.ndim == 1), asked)
    assert len(found) == 2
    assert all(0 <= each <= 1 for each in found)


def test_a_self_edge_is_a_targets_last():
    offsets, sources = with_self(offsets_of([2, 0, 1]), np.array([5, 6, 7]))
    assert (offsets.tolist(), sources.tolist()) == ([0, 3, 4, 6], [5, 6, 0, 1, 7, 2])


def test_ratios_are_of_the_first_forms_median():
    ran = {"loss": 1.0, "mib": 1024.0}
    found = {("gnnflow", "base"): [{"times": [4.0, 6.0], **ran}], ("dgl", "as it is"): [{"times": [2.5], **ran}]}
    assert [row[5] for row in lines_of("gcn, 1", found)] == [1.0, 2.0]
    assert not [*lines_of("gat, 1", {})]


def test_a_split_of_a_graph_has_the_edges_with_both_ends_in_it(graph):
    inner, mask = graph.within("train"), graph.masks["train"]
    kept = np.flatnonzero(mask)
    ends = np.repeat(np.arange(NODES), np.diff(graph.offsets)), graph.sources
    expected = {(target, source) for target, source in zip(*ends, strict=True) if mask[target] and mask[source]}
    found = np.repeat(np.arange(len(kept)), np.diff(inner.offsets)), inner.sources
    assert set(zip(*(kept[each] for each in found), strict=True)) == expected
    np.testing.assert_array_equal(inner.x, graph.x[kept])
