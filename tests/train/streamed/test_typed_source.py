"""A stored graph of several types or relations under a budget: what is filed is what the store has."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from gnnflow.config import model_from_dict
from gnnflow.executions.row_exchange import OneRank
from gnnflow.graph.batch import Block
from gnnflow.graph.errors import ConfigError, TrainingError
from gnnflow.graph.schema import GraphSchema, Relation
from gnnflow.layers import ModelInputs, TypedInputs, TypeInputs
from gnnflow.layers.model import build_model
from gnnflow.layers.saved import decode_weights
from gnnflow.progress import Silent
from gnnflow.train.globalbatch.graph import blocks_of, bounds_of, read_part
from gnnflow.train.job import Share
from gnnflow.train.streamed import budget as plans
from gnnflow.train.streamed import open_streamed, source
from gnnflow.train.streamed.budget import plan
from gnnflow.train.streamed.numbering import by_type, types_in
from gnnflow.train.streamed.size import GraphSize
from gnnflow.train.streamed.widths import ON_CPU
from gnnflow.train.trainer import train
from tests.contracts.in_process import on_ranks
from tests.small_graphs import write_graph
from tests.train.on_stores import config_of, job_of
from tests.train.streamed.cutting import cut_to
from tests.train.streamed.test_typed_files import edges_read, in_edges

BUDGET = {"strategy": "global-batch", "memory": "1GiB", "epochs": 2}
REVERSED = {"graph": {"reverse_edges": True, "partitions": 3, "edge_features": {"account__pays__merchant": ["amount"]}}}
FANOUTS = {
    "account__pays__merchant": [3, 2],
    "account__sends__account": [1, 4],
    "account__uses__device": [2, 2],
    "merchant__rev_pays__account": [4, 1],
    "account__rev_sends__account": [2, 2],
    "device__rev_uses__account": [1, 1],
}
CASES = {
    "every edge": ("typed", REVERSED),
    "uniform": ("typed", {**REVERSED, "neighbors": {"sampling": {"kind": "uniform", "fanout": FANOUTS}}}),
    "weighted": ("typed", {**REVERSED, "neighbors": {"sampling": {"kind": "weighted", "fanout": FANOUTS}}}),
    "rings": ("plain", {"neighbors": {"kind": "rings", "distance": 2}, "model": {"kind": "rgcn", "hidden": 8}}),
    "metapaths": (
        "typed",
        {
            **REVERSED,
            "neighbors": {"kind": "metapaths", "paths": [["account", "merchant"], ["account", "account", "account"]]},
        },
    ),
}


def case_job(folder, case, **train):
    which, sections = CASES[case]
    if which == "plain":
        write_graph(folder, num_nodes=60, num_edges=300, hub=3)
    return job_of(config_of(folder, which, **{**sections, "train": {**BUDGET, **train}}))


def blocks_in(job):
    """Return the blocks of all nodes, a layer after the other."""
    store = job.neighbors.store
    part = read_part(job.neighbors, range(store.book.num_partitions))
    return blocks_of(part, job.neighbors, num_layers=job.model.config.layers)


@pytest.mark.table(6)
@pytest.mark.parametrize("case", CASES)
def test_every_relation_is_filed_as_it_is_stored(tmp_path, case, monkeypatch):
    job = case_job(tmp_path, case)
    store, schema = job.neighbors.store, job.model.inputs.schema
    monkeypatch.setattr(source, "plan", cut_to(0, 3))
    blocks: list[Block] = blocks_in(job)
    every = np.arange(store.book.num_nodes)
    with open_streamed(job) as found:
        nodes = np.argsort(numbering_of(job, found))
        assert (np.diff(found.rows) > 0).all()
        assert nodes[found.rows].tolist() == found.ids.tolist()
        for layer, block in enumerate(blocks):
            for relation in range(schema.num_relations):
                assert edges_read(found.graph, layer, relation, nodes) == in_edges(block, relation, every)
                assert found.graph.num_edges(layer, relation) == block.relation(relation).num_edges
                assert found.training.num_edges(layer, relation) <= found.graph.num_edges(layer, relation)
        firsts = found.graph.numbering.firsts
        for each, of in enumerate(found.graph.types):
            held = nodes[firsts[each] : firsts[each + 1]]
            assert (store.book.type_of(held) == of).all()
            assert len(found.graph.features(each)) == len(found.graph.nodes(each).in_degree) == len(held)


def numbering_of(job, found):
    """Return the row of each dense id."""
    store, train = job.neighbors.store, found.ids[found.row_splits == 0]
    numbering = source._numbering(job, found.plan, OneRank(), targets=train, edges=True)
    assert numbering.sizes == found.graph.sizes
    return numbering.rows_of(np.arange(store.book.num_nodes))


@pytest.mark.parametrize("case", ["every edge", "rings"])
def test_ranks_file_the_edges_into_their_own_nodes(tmp_path, case):
    job = case_job(tmp_path, case)
    schema = job.model.inputs.schema
    (block,) = {id(each): each for each in blocks_in(job)}.values()

    def read(exchange):
        with open_streamed(job, exchange=exchange) as found:
            assert found.plan.of_types == (1,) * schema.num_types
            held = [edges_read(found.graph, 0, each, nodes) for each in range(schema.num_relations)]
            return held, found.ids.tolist(), found.plan

    bounds = bounds_of(2, job.neighbors.store.book).tolist()
    nodes = np.argsort(by_type(types_in(job.neighbors.store.book), (1,) * schema.num_types, bounds=bounds).rows)
    ran = on_ranks(2, read)
    for relation in range(schema.num_relations):
        expected = in_edges(block, relation, range(bounds[-1]))
        assert sorted(edge for held, _, _ in ran for edge in held[relation]) == expected
    assert ran[0][2] == ran[1][2]
    assert not set(ran[0][1]) & set(ran[1][1])


def sized(schema, *, ranks=1):
    """Return a large graph of a schema, whose types have from two million nodes to twenty."""
    nodes = tuple(max(2_000_000 // 100**number, 20) for number in range(schema.num_types))
    edges = (8_000_000,) * schema.num_relations
    features = (64,) + (0,) * (schema.num_types - 1)
    counts = {"ranks": ranks, "all_nodes": ranks * sum(nodes)}
    return GraphSize(nodes, edges, 1000, features, 0, (20_000, 400_000), is_typed=True, **counts)


@pytest.mark.table(16)
@pytest.mark.parametrize("kind", ["rgcn", "hgt", "gat", "han"])
def test_types_have_the_intervals_that_their_nodes_ask_for(tmp_path, kind):
    job = case_job(tmp_path, "every edge")
    model = build_model(model_from_dict({"kind": kind, "hidden": 64}), job.model.inputs)
    size = sized(job.model.inputs.schema)
    plans = [plan(model, size, budget=mib << 20) for mib in (3000, 1500, 900)]
    assert [each.intervals for each in plans] == sorted({each.intervals for each in plans})
    for made, mib in zip(plans, (3000, 1500, 900), strict=True):
        assert made.num_bytes <= mib << 20
        assert made.intervals == sum(made.of_types)
        most = -(-size.nodes[0] // made.of_types[0])
        assert made.of_types == tuple(max(1, -(-nodes // most)) for nodes in size.nodes)
    ring = plan(model, sized(job.model.inputs.schema, ranks=3), budget=1500 << 20, copies=True)
    assert ring.num_bytes <= 1500 << 20
    for of in (size, sized(job.model.inputs.schema, ranks=3)):
        with pytest.raises(TrainingError, match="MiB are needed") as caught:
            plan(model, of, budget=34 << 20)
        least = int(re.search(r"Set it to (\d+)MiB or more", str(caught.value))[1])
        assert plan(model, of, budget=least << 20).num_bytes <= least << 20
        with pytest.raises(TrainingError, match=rf"{least - 1}MiB is not enough: {least}MiB are needed"):
            plan(model, of, budget=(least - 1) << 20)


@pytest.mark.table(9)
@pytest.mark.parametrize("kind", ["magnn", "rgcn", "gat"])
def test_pieces_of_edges_with_leaves_pick_rows_where_a_type_is_several_intervals(tmp_path, kind, monkeypatch):
    job = case_job(tmp_path, "metapaths")
    model = build_model(model_from_dict({"kind": kind, "hidden": 64}), job.model.inputs)
    size = replace(sized(job.model.inputs.schema), leaves=2)
    whole, *picking = (plan(model, size, budget=mib << 20) for mib in (500_000, 8000, 4000))
    assert whole.of_types == (1,) * len(whole.of_types)
    assert whole.max_rows == 0
    for made, mib in zip(picking, (8000, 4000), strict=True):
        assert made.num_bytes <= mib << 20
        assert made.intervals == sum(made.of_types) > len(made.of_types)
        assert 0 < made.max_rows <= size.num_nodes
    assert picking[1].max_rows < picking[0].max_rows
    assert picking[1].disk_bytes >= whole.disk_bytes
    monkeypatch.setattr(plans, "_MOST_INTERVALS", 2)
    with pytest.raises(TrainingError, match=r"of which there can be 2, and .* for each row that a piece"):
        plan(model, size, budget=2000 << 20)


def test_one_type_and_relation_is_planned_as_a_graph_without_types(tmp_path):
    """A layer of one relation holds what the same layer holds without types, but for the encoder's columns."""
    schema = GraphSchema.of(["user"], [Relation("user", "knows", "user")])
    typed = ModelInputs(64, 3, typed=TypedInputs((TypeInputs("user", 64),), tuple(map(str, schema.relations))))
    keys = {"kind": "gat", "hidden": 64, "dropout": 0.0}
    model = build_model(model_from_dict(keys), typed)
    alone = build_model(model_from_dict({**keys, "encoder": "linear"}), ModelInputs(64, 3))
    size = GraphSize((2_000_000,), (40_000_000,), 1000, (64,), 0, (100_000, 2_000_000))
    place = replace(ON_CPU, groups=False)  # of groups the one has a little more room, its encoder being smaller
    plans = [
        plan(each, of, budget=1500 << 20, place=place)
        for each, of in ((model, replace(size, is_typed=True)), (alone, size))
    ]
    assert plans[0].intervals == plans[1].intervals
    assert abs(plans[0].row_bytes - plans[1].row_bytes) < 1 << 20


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"train": {"device": "cuda"}}, r"train\.device: cuda is not allowed where .* the graph is typed"),
        (
            {
                "neighbors": {"kind": "metapaths", "paths": [["account", "account", "account"]]},
                "train": {"workers": 2},
                "cluster": {"kind": "local", "workers": 2},
            },
            r"train\.workers: 2 is not allowed where train\.memory is set and neighbours are metapaths",
        ),
    ],
)
def test_what_files_of_types_cannot_hold_is_refused(tmp_path, keys, said):
    sections = {**REVERSED, **keys, "train": {**BUDGET, **keys.get("train", {})}}
    with pytest.raises(ConfigError, match=said):
        config_of(tmp_path, "typed", **sections)


def test_a_card_takes_no_relations_that_a_function_selects(tmp_path):
    with pytest.raises(TrainingError, match=r"train\.device: a card takes chunks of one relation"):
        open_streamed(replace(case_job(tmp_path, "every edge"), share=Share(device="cuda")))


@pytest.mark.table(8)
@pytest.mark.parametrize(
    ("case", "kind"),
    [*((case, "rgcn") for case in CASES), ("every edge", "hgt"), ("every edge", "han"), ("metapaths", "magnn")],
)
def test_training_on_types_equals_global_batch(tmp_path, case, kind, monkeypatch):
    monkeypatch.setattr(source, "plan", cut_to(0, 3))
    # Adam would make steps of gradients that are zero but for rounding
    keys = {"epochs": 4, "lr": 0.05, "optimizer": "sgd"}
    jobs = case_job(tmp_path, case, **keys), case_job(tmp_path, case, memory=None, **keys)
    model = model_from_dict({"kind": kind, "hidden": 8, "dropout": 0.0})
    found, expected = (train(replace(job, model=replace(job.model, config=model)), progress=Silent()) for job in jobs)
    weights = decode_weights(expected.weights)
    for name, value in decode_weights(found.weights).items():
        torch.testing.assert_close(value, weights[name], rtol=1e-3, atol=1e-4, msg=name)
    losses = [[row["train_loss"] for row in each.history] for each in (found, expected)]
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.table(2)
@pytest.mark.parametrize(("case", "kind"), [("uniform", "han"), ("metapaths", "magnn")])
def test_training_on_types_gives_the_same_bytes_again_with_dropout(tmp_path, case, kind, monkeypatch):
    monkeypatch.setattr(source, "plan", cut_to(0, 3))
    job = case_job(tmp_path, case)
    model = model_from_dict({"kind": kind, "hidden": 8, "dropout": 0.5, "attention_dropout": 0.3})
    first, second = (
        train(replace(job, model=replace(job.model, config=model)), progress=Silent()).weights for _ in range(2)
    )
    assert first == second
