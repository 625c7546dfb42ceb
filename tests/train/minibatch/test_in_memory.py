"""A graph store in memory gives the mini-batches of shards, without GraphFlat; epochs may draw their own samples."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnflow.config import MiniBatchConfig, cluster_section
from gnnflow.config.stages import STAGES, stages_of
from gnnflow.executions.minibatch import forward
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.facts import FlatFacts
from gnnflow.graphfeature.blocks import build_minibatch
from gnnflow.graphfeature.neighborhood import Neighborhood
from gnnflow.graphfeature.shards import read_shard
from gnnflow.layers.model import build_model
from gnnflow.neighbors.selected import Neighbors
from gnnflow.neighbors.walk_views import WalkViews
from gnnflow.neighbors.whole import memory_needed, read_graph, view_of
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext, neighbors_of
from gnnflow.stages.entry import perform
from gnnflow.stages.running import run_stage
from gnnflow.stages.train import model_inputs
from gnnflow.train.job import Shards, fit_digest
from gnnflow.train.minibatch import check_memory, hold_graph, open_store_source
from tests.small_graphs import write_graph
from tests.train.on_stores import config_of, context_of, job_of, resumes_to_the_same_weights

STORE = {"source": "store", "epochs": 3, "batch_size": 4, "lr": 0.05}
SAMPLED = {"sampling": {"kind": "uniform", "fanout": [3, 2]}}
WEIGHTED = {"sampling": {"kind": "weighted", "fanout": [3, 2]}}
NEIGHBORS: dict[str, dict[str, Any]] = {
    "all": {},
    "uniform": SAMPLED,
    "growing": {"sampling": {"kind": "uniform", "fanout": [2, 4]}},
    "weighted": WEIGHTED,
    "top_k": {"sampling": {"kind": "top_k", "fanout": [3, 2]}},
    "walks": {"kind": "walks", "walks": 6, "length": 2, "top_k": 4},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_graph(tmp_path, num_edges=600, hub=7)
    return tmp_path


@pytest.mark.table(9)
@pytest.mark.parametrize("graph", ["plain", "typed"])
@pytest.mark.parametrize("kind", NEIGHBORS)
def test_targets_have_the_logits_that_they_have_from_shards(folder: Path, graph: str, kind: str) -> None:
    if graph == "typed" and kind == "walks":
        pytest.skip("walks follow one relation")
    config = config_of(folder, graph, neighbors=NEIGHBORS[kind], flat={"layout": "shared"})
    context = context_of(config, "ingest", "select", "flat")
    neighbors, flat = neighbors_of(context), context.artifact("flat")
    held = read_graph(neighbors)
    torch.manual_seed(0)
    model = build_model(config.model, model_inputs(neighbors.store.facts, config.task)).eval()
    cut = {"sampling": neighbors.sampling, "num_layers": 2}
    seen = dict.fromkeys(held.splits, 0)
    with torch.no_grad():
        for entry in flat.facts(FlatFacts).shards:
            shard = read_shard(flat.uri, entry)
            one = build_minibatch(shard.neighborhood, shard.rows, **cut)
            two = build_minibatch(held.neighborhood, shard.targets, **cut)
            torch.testing.assert_close(forward(model, two), forward(model, one), rtol=1e-6, atol=1e-6)
            own = held.splits[entry.split]
            np.testing.assert_array_equal(own.labels[np.searchsorted(own.nodes, shard.targets)], shard.labels)
            seen[entry.split] += len(shard.targets)
    assert seen == {split: len(own.nodes) for split, own in held.splits.items()}
    assert seen == {split: neighbors.store.facts.splits[split] for split in seen}


@pytest.mark.table(6)
@pytest.mark.parametrize("layer", ["gcn", "sage", "gat"])
@pytest.mark.parametrize("graph", ["plain", "typed"])
@pytest.mark.parametrize("kind", NEIGHBORS)
def test_shards_of_targets_alone_train_to_the_same_bytes(folder: Path, graph: str, kind: str, layer: str) -> None:
    if graph == "typed" and (kind == "walks" or layer == "gcn"):
        pytest.skip("walks follow one relation, and gcn is of one")
    digests, layouts = set(), []
    for flat in ({"shard_size": 8}, {"shard_size": 8, "layout": "shared"}):
        model = {"kind": layer, "layers": 2, "hidden": 8}
        train = {"epochs": 2, "batch_size": 4, "cache": "1MiB", "baseline": True}
        config = config_of(folder, graph, neighbors=NEIGHBORS[kind], flat=flat, model=model, train=train)
        context = context_of(config, "ingest", "select", "flat", "train")
        layouts.append({entry.layout for entry in context.artifact("flat").facts(FlatFacts).shards})
        digests.add(context.artifact("train").manifest.digest)
    assert layouts == [{"store"}, {"shared"}]
    assert len(digests) == 1


@pytest.mark.parametrize("graph", ["plain", "typed"])
@pytest.mark.parametrize("kind", ["uniform", "weighted"])
def test_the_first_view_is_the_sample_that_is_selected_once(folder: Path, graph: str, kind: str) -> None:
    neighbors = neighbors_of(context_of(config_of(folder, graph, neighbors=NEIGHBORS[kind]), "ingest", "select"))
    whole = read_graph(neighbors, with_keys=True)
    drawn, selected = view_of(whole, neighbors, seed=0, view=0), read_graph(neighbors)
    for field in fields(selected.neighborhood.edges):
        one, two = (getattr(each.neighborhood.edges, field.name) for each in (drawn, selected))
        np.testing.assert_array_equal(one, two, err_msg=field.name)


WALKED = {
    "uniform": {"kind": "walks", "walks": 6, "length": 2, "top_k": 4},
    "weight": {"kind": "walks", "walks": 4, "length": 3, "top_k": 3, "by": "weight"},
}


@pytest.mark.table(2)
@pytest.mark.parametrize("graph", ["plain", "typed"])
@pytest.mark.parametrize("by", WALKED)
def test_the_first_view_of_walks_is_the_selection_and_later_ones_are_others(folder: Path, graph: str, by: str) -> None:
    config = config_of(folder, graph, neighbors=WALKED[by], seed=3)
    neighbors = neighbors_of(context_of(config, "ingest", "select"))
    selected, views = read_graph(neighbors), WalkViews.of(neighbors, config.neighbors, seed=3)
    drawn = [views.view(selected, view).neighborhood for view in (0, 1, 2, 1)]
    for part in ("edges", "degrees"):
        for field in fields(getattr(drawn[0], part)):
            one, two = (getattr(getattr(each, part), field.name) for each in (drawn[0], selected.neighborhood))
            np.testing.assert_array_equal(one, two, err_msg=field.name)
    np.testing.assert_array_equal(drawn[1].edges.sources, drawn[3].edges.sources)
    pairs = [{*zip(each.edges.sources.tolist(), of_edges(each), strict=True)} for each in drawn]
    assert all(0.1 < len(pairs[0] & pairs[view]) / len(pairs[0]) < 0.95 for view in (1, 2))
    assert pairs[1] != pairs[2]


def of_edges(graph: Neighborhood) -> list[int]:
    """Return the row that each edge of a neighbourhood leads to."""
    return np.repeat(np.arange(len(graph.edges.lengths)), graph.edges.lengths).tolist()


def test_views_are_samples_of_their_own_and_the_same_each_time(folder: Path) -> None:
    neighbors = neighbors_of(context_of(config_of(folder, "plain", neighbors=SAMPLED), "ingest", "select"))
    whole = read_graph(neighbors, with_keys=True)
    drawn = [view_of(whole, neighbors, seed=0, view=view).neighborhood.edges for view in (1, 2, 1)]
    np.testing.assert_array_equal(drawn[0].sources, drawn[2].sources)
    assert (drawn[0].sources != drawn[1].sources).mean() > 0.3
    np.testing.assert_array_equal(drawn[0].offsets, drawn[1].offsets)


@pytest.mark.table(3)
@pytest.mark.parametrize(("kind", "resample"), [("uniform", "never"), ("uniform", "epoch"), ("walks", "epoch")])
def test_interruptions_change_no_weight(folder: Path, kind: str, resample: str) -> None:
    train = {**STORE, "resample": resample, "checkpoint_steps": 1}
    config = config_of(folder, "plain", neighbors=NEIGHBORS[kind], train=train)
    resumes_to_the_same_weights(config, str(folder / "checkpoints"), open_source=open_store_source)


@pytest.mark.parametrize("kind", ["uniform", "walks"])
def test_an_epoch_that_draws_anew_trains_on_other_neighbours_and_scores_on_the_same(folder: Path, kind: str) -> None:
    config = config_of(
        folder, "plain", neighbors=NEIGHBORS[kind], train={**STORE, "resample": "epoch", "batch_size": 64}
    )
    job = job_of(config)
    fixed = replace(job, train=job.train.model_copy(update={"resample": "never"}))
    model = job.model.build()
    with open_store_source(job) as drawn, open_store_source(fixed) as once:
        own = [next(drawn.steps(epoch, since=0)).logits(model.eval()) for epoch in (0, 1, 0)]
        same = [next(once.steps(epoch, since=0)).logits(model.eval()) for epoch in (0, 1)]
        assert torch.equal(own[0], own[2])
        assert not torch.allclose(own[0], own[1])
        assert torch.equal(same[0], same[1])
        np.testing.assert_array_equal(drawn.outputs(model, "valid").logits, once.outputs(model, "valid").logits)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_ranks_take_equally_many_steps_over_shares_that_are_all_targets(folder: Path, num_ranks: int) -> None:
    job = job_of(config_of(folder, "plain", train={**STORE, "batch_size": 2}))
    shares = [job.of_rank(rank, num_ranks) for rank in range(num_ranks)]
    sources = [open_store_source(share) for share in shares]
    model = job.model.build()
    taken = [[step.targets for step in source.steps(1, since=0)] for source in sources]
    scored = np.concatenate([source.outputs(model, "valid").targets for source in sources])
    assert len({len(steps) for steps in taken}) == 1
    held = hold_graph(job.neighbors)
    np.testing.assert_array_equal(
        np.sort(np.concatenate([targets for steps in taken for targets in steps])), held.splits["train"].nodes
    )
    np.testing.assert_array_equal(scored, held.splits["valid"].nodes)


def test_a_process_reads_the_graph_once_while_a_source_holds_it_and_nobody_can_change_it(folder: Path) -> None:
    neighbors = job_of(config_of(folder, "plain", train=STORE)).neighbors
    held = hold_graph(neighbors)
    assert hold_graph(neighbors) is held
    for array in (held.neighborhood.edges.sources, held.neighborhood.features.dense, held.neighborhood.node_ids):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.table(4)
@pytest.mark.parametrize(("kind", "resample"), [("uniform", "never"), ("uniform", "epoch"), ("walks", "epoch")])
def test_a_run_on_the_store_has_no_graphflat_and_is_certified(folder: Path, kind: str, resample: str) -> None:
    config = config_of(
        folder, "plain", neighbors=NEIGHBORS[kind], train={**STORE, "resample": resample, "baseline": True}
    )
    result = pipeline.run_quietly(config)
    assert list(result.stages) == ["ingest", "select", "train", "infer"]
    assert result.metrics["infer.parity_max_difference"] < 1e-4
    assert "baseline.test.accuracy" in result.metrics


@pytest.mark.slow
def test_candidates_are_compared_on_the_store_where_there_are_no_shards(folder: Path) -> None:
    for seed in (0, 1):
        config = config_of(folder, "plain", train=STORE, seed=seed, infer={"parity_samples": 5})
        pipeline.run_quietly(config)
        result = run_stage(StageContext.of(config), "publish")
    assert result.version == 2
    assert "test.accuracy" in result.reason or result.promoted


def test_keys_at_their_defaults_leave_every_fingerprint_as_it_was(folder: Path) -> None:
    plain, said = (config_of(folder, "plain", train=keys) for keys in ({}, {"source": "shards", "resample": "never"}))
    for stage in stages_of(plain):
        assert STAGES[stage].keys(plain) == STAGES[stage].keys(said)
    assert not {"source", "resample"} & set(STAGES["train"].keys(plain)["train"])
    assert STAGES["train"].keys(config_of(folder, "plain", train=STORE))["train"]["source"] == "store"


def test_checkpoints_of_the_store_are_not_those_of_shards_or_of_another_sample(folder: Path) -> None:
    sampled = {"neighbors": SAMPLED}
    jobs = [
        job_of(config_of(folder, "plain", train=STORE)),
        job_of(config_of(folder, "plain", train=STORE, **sampled)),
        job_of(config_of(folder, "plain", train={**STORE, "resample": "epoch"}, **sampled)),
    ]
    shards = Shards(**{field.name: getattr(jobs[0].graph, field.name) for field in fields(Shards)})
    on_shards = replace(jobs[0], graph=shards)
    assert len({fit_digest(job, "train") for job in [*jobs, on_shards]}) == 4


@pytest.mark.parametrize(
    ("sections", "where", "said"),
    [
        ({"train": {"resample": "epoch"}}, "train.resample", "GraphFlat wrote one sample"),
        ({"train": {**STORE, "resample": "epoch"}}, "train.resample", "sampling.kind is none"),
        (
            {"train": {**STORE, "resample": "epoch"}, "neighbors": NEIGHBORS["top_k"]},
            "train.resample",
            "sampling.kind is top_k",
        ),
        ({"train": {**STORE, "resample": "epoch"}, "neighbors": {"kind": "rings"}}, "train.resample", "kind is rings"),
        ({"train": {"source": "graph"}}, "train.source", "'shards' or 'store'"),
    ],
)
def test_what_cannot_be_trained_on_a_store_is_refused(
    folder: Path, sections: dict[str, Any], where: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(folder, "plain", **sections)
    assert where in str(caught.value)
    assert said in str(caught.value)


def test_the_stage_that_is_not_asked_for_says_what_to_set(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"no stage flat.*Set train to \{strategy: mini-batch, source: shards\}"):
        perform(StageContext.of(config_of(folder, "plain", train=STORE)), "flat")


def test_a_store_larger_than_a_worker_is_refused_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_section, "_LEAST_MEMORY", 1)
    write_graph(tmp_path, num_nodes=2000, num_edges=4000, width=300)
    cluster = {"kind": "local", "workers": 1, "memory_limit": "2MiB"}
    config = config_of(tmp_path, "plain", train=STORE, cluster=cluster)
    with pytest.raises(
        ConfigError, match=r"2,000 nodes and 4,000 edges into memory takes about \d MiB, and a worker has 2 MiB.*shards"
    ) as caught:
        run_stage(context_of(config, "ingest", "select"), "train")
    advised = re.search(r"Set it to (\d+)MiB or more", str(caught.value))
    assert advised is not None
    neighbors, enough = neighbors_of(StageContext.of(config)), int(advised[1]) << 20
    check_memory(neighbors, enough)
    with pytest.raises(ConfigError, match=f"Set it to {advised[1]}MiB or more"):
        check_memory(neighbors, enough - (1 << 20))


def test_the_memory_that_is_asked_for_covers_what_is_held(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=3000, num_edges=30000, width=20)
    for kind in ("all", "weighted"):
        neighbors = neighbors_of(
            context_of(config_of(tmp_path, "plain", neighbors=NEIGHBORS[kind]), "ingest", "select")
        )
        held = bytes_of(neighbors)
        assert held < memory_needed(neighbors) < 4 * held
    check_memory(neighbors, 0)


def bytes_of(neighbors: Neighbors) -> int:
    held = read_graph(neighbors).neighborhood
    arrays = [held.node_ids, held.features.dense]
    arrays += [array for each in (held.degrees, held.edges) for array in vars(each).values()]
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def test_a_config_of_mini_batches_may_name_its_strategy_or_leave_it_out(folder: Path) -> None:
    assert isinstance(config_of(folder, "plain", train={"strategy": "mini-batch", **STORE}).train, MiniBatchConfig)
