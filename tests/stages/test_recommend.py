"""Recommendations of a run: lists of its own embeddings and decoder, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml

import gnnflow as gf
from gnnflow.config import Config, LocalCluster, RecommendConfig, config_from_dict
from gnnflow.graph.errors import ConfigError, ScoringError, StorageError
from gnnflow.graph.run_facts import RecommendFacts
from gnnflow.layers import load_model
from gnnflow.report.judging import Judgement, Outcome
from gnnflow.stages import publish, recommend, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.pipeline import run as run_pipeline
from gnnflow.stages.recommend import judgement_of
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import read_manifest
from gnnflow.storage.run_folder import read_predictions
from gnnflow.storage.writing import remove_tree
from tests.command_line import printed
from tests.conftest import ClusterOf
from tests.small_graphs import graph_config, write_graph
from tests.small_links import run_groups
from tests.typed_graphs import typed_tables
from tests.typed_tasks import PAYS, edges_of
from tests.typed_tasks import config_of as typed_config


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Any, Path]:
    return run_groups(tmp_path_factory.mktemp("groups"))


def test_lists_have_the_scores_of_the_run_s_own_decoder(tmp_path: Path) -> None:
    config = typed_config(tmp_path, typed_tables(), task={"decoder": {"kind": "mlp"}})
    run = gf.Run(run_pipeline(StageContext.of(config)).uri)
    found = gf.recommend(run, 5, out=tmp_path / "lists.parquet", progress=False)
    assert pq.read_table(tmp_path / "lists.parquet") == found.table
    held = read_predictions(run.uri)
    rows = {
        (kind, id_): row
        for kind, id_, row in zip(
            held["type"].to_pylist(), held["id"].to_pylist(), to_matrix(held["embedding"]), strict=True
        )
    }
    users, items = ([id_ for kind, id_ in rows if kind == each] for each in ("account", "merchant"))
    store = GraphStore.of(run.stages["ingest"], read_manifest(run.stages["ingest"]))
    seen = set(edges_of(store)[PAYS])
    model = load_model(run.stages["train"])
    lists: dict[int, list[Any]] = {}
    for row in found.table.to_pylist():
        lists.setdefault(row["user"], []).append((row["item"], row["score"]))
    assert set(lists) == set(users)
    for user, listed in lists.items():
        allowed = [item for item in items if (user, item) not in seen]
        sources, targets = (
            rows["account", user][None].repeat(len(allowed), 0),
            [rows["merchant", item] for item in allowed],
        )
        with torch.no_grad():
            scores = model.score(torch.from_numpy(sources), torch.from_numpy(np.stack(targets)))[:, 0].numpy()
        expected = dict(zip(allowed, scores.tolist(), strict=True))
        assert [each[1] for each in listed] == pytest.approx(sorted(scores.tolist(), reverse=True)[:5], abs=1e-5)
        assert [each[1] for each in listed] == pytest.approx([expected[each[0]] for each in listed], abs=1e-5)


def test_a_second_call_reuses_the_lists_and_the_command_prints_what_they_are_worth(
    done: tuple[Config, Any, Path], tmp_path: Path
) -> None:
    config = done[0]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    first = recommend.run(StageContext.of(config))
    words = ["recommend", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "own.parquet")]
    summary = json.loads(printed([*words, "--json"]))
    assert summary["reused"]
    assert (summary["digest"], summary["lists"]) == (first.digest, str(tmp_path / "own.parquet"))
    shown = printed(words)
    assert f"test.ndcg_at_10: {judgement_of(first.facts).text}" in shown  # type: ignore[union-attr]
    assert "of 90 items are shown to somebody; a list by popularity shows" in shown
    assert "recall, rare third" in shown
    # groups are what the features show and popularity does not: the lists must be better
    assert summary["judgement"]["outcome"] == "better"
    table = pq.read_table(tmp_path / "own.parquet")
    assert table.column_names == ["user", "item", "rank", "score"]
    assert set(table["user"].to_pylist()) == {f"n{number}" for number in range(90)}
    other = json.loads(printed([*words[:2], "--include-seen", "--set", "recommend.top=3", "--json"]))
    assert other["artifact"] != first.artifact
    assert other["rows"] == 3 * other["users"]


def test_metrics_are_the_means_over_the_held_out_links(done: tuple[Config, Any, Path]) -> None:
    found = gf.recommend(gf.Run(done[1].uri), progress=False)
    links = found.held_out.to_pylist()
    for prefix, column in (("", "rank"), ("popularity.", "popularity_rank")):
        hits: dict[str, list[bool]] = {}
        for row in links:
            if row["split"] == "test":
                hits.setdefault(row["user"], []).append(row[column] is not None)
        recall = np.mean([np.mean(each) for each in hits.values()])
        assert found.metrics[f"{prefix}test.recall_at_10"] == pytest.approx(recall)
        rare = [row[column] is not None for row in links if row["split"] == "test" and row["popularity"] == "rare"]
        assert found.metrics[f"{prefix}test.rare.recall_at_10"] <= 1.0
        assert bool(found.metrics[f"{prefix}test.rare.recall_at_10"]) == any(rare)
    assert found.metrics["items_at_10"] == len(set(found.table["item"].to_pylist()))
    assert found.facts.evaluated["test"] == len(hits)


def result_of(facts: RecommendFacts, run_judgement: Judgement | None = None) -> recommend.RecommendResult:
    return recommend.RecommendResult(
        stage="recommend",
        seconds=0.0,
        artifact="a",
        facts=facts,
        digest="",
        out="",
        judgement=judgement_of(facts),
        run_judgement=run_judgement,
    )


@pytest.mark.parametrize("outcome", ["better", "no better", "worse"])
def test_the_best_baseline_of_the_run_is_named_first_where_it_is_not_beaten(outcome: Outcome) -> None:
    """Finds lists praised beside popularity where the run knows a stronger baseline."""
    metrics = {"test.ndcg_at_10": 0.2, "popularity.test.ndcg_at_10": 0.1, "items_at_10": 3, "popularity.items_at_10": 2}
    facts = RecommendFacts(metrics, 10, True, users=5, items=4, rows=50, evaluated={"test": 5}, repeats=0, model="")
    found = result_of(facts, Judgement("test.mrr", 0.1, "item_knn", 0.2, 0.02, outcome)).verdict.split("\n")
    of_run = f"test.mrr of the run: {outcome} than item-kNN: 0.100 beside 0.200"
    assert found[outcome == "better"].startswith(of_run)
    assert ("Lists by item-kNN may be better" in "".join(found)) == (outcome != "better")
    assert found[outcome != "better"].startswith("test.ndcg_at_10: better than popularity")


def test_where_popularity_is_not_beaten_a_sentence_says_so() -> None:
    metrics = {"test.ndcg_at_10": 0.1, "popularity.test.ndcg_at_10": 0.2, "items_at_10": 3, "popularity.items_at_10": 2}
    facts = RecommendFacts(metrics, 10, True, users=5, items=4, rows=50, evaluated={"test": 5}, repeats=0, model="")
    assert "worse than popularity: 0.100 beside 0.200. Popularity is not beaten" in result_of(facts).verdict
    unmeasured = RecommendFacts({}, 10, True, users=5, items=4, rows=50, evaluated={}, repeats=0, model="")
    assert judgement_of(unmeasured) is None


def test_scores_of_a_published_model_give_lists_of_every_edge(done: tuple[Config, Any, Path]) -> None:
    config, result, _ = done
    context = StageContext.of(config)
    publish.run(context)
    scored = score.run(context)
    found = gf.recommend(gf.Run(result.uri), embeddings=scored.predictions, progress=False)
    store = GraphStore.of(scored.reads[0], read_manifest(scored.reads[0]))
    (seen,) = edges_of(store).values()
    own = gf.recommend(gf.Run(result.uri), progress=False)
    for named in (config.name, f"{config.name}@champion", result.uri):
        assert gf.recommend(named, workspace=config.workspace, progress=False).digest == own.digest
    assert str(gf.audit(f"{config.name}@champion", workspace=config.workspace)) == str(gf.audit(result.uri))
    assert own.facts.evaluated
    assert not found.facts.evaluated
    assert "No link is held out" in str(found)
    pairs = set(zip(found.table["user"].to_pylist(), found.table["item"].to_pylist(), strict=True))
    assert not pairs & set(seen)
    # the run's own lists may have held-out links, which the published model has seen
    assert set(zip(own.table["user"].to_pylist(), own.table["item"].to_pylist(), strict=True)) & set(seen)


def test_wrong_options_are_refused(done: tuple[Config, Any, Path], tmp_path: Path) -> None:
    run = gf.Run(done[1].uri)
    with pytest.raises(ConfigError, match=r"recommend\.top: .*1"):
        gf.recommend(run, 0, progress=False)
    with pytest.raises(StorageError, match=r"--out .*lies in the workspace"):
        gf.recommend(run, out=f"{run.uri}/lists.parquet", progress=False)
    with pytest.raises(StorageError, match=r"--out .*\.parquet"):
        gf.recommend(run, out=tmp_path / "lists.csv", progress=False)
    with pytest.raises(ScoringError, match="made by another model"):
        gf.recommend(run, embeddings=run.stages["train"], progress=False)
    with pytest.raises(ScoringError, match=r"--embeddings nowhere: holds no predictions\. Give the folder"):
        gf.recommend(run, embeddings="nowhere", progress=False)
    write_graph(tmp_path)
    with pytest.raises(ConfigError, match=r"task\.kind: node, whose model ranks no items"):
        gf.recommend(graph_config(tmp_path), progress=False)
    fresh = config_from_dict({**done[0].model_dump(mode="json"), "workspace": str(tmp_path / "runs")})
    with pytest.raises(StorageError, match="stage train has not run"):
        gf.recommend(fresh, progress=False)


def test_longer_lists_than_there_are_items_take_no_more_memory(done: tuple[Config, Any, Path]) -> None:
    run = gf.Run(done[1].uri)
    every, longer = (gf.recommend(run, top, progress=False) for top in (90, 10**12))
    assert longer.table == every.table
    assert longer.metrics[f"test.ndcg_at_{10**12}"] == every.metrics["test.ndcg_at_90"]


@pytest.mark.distributed
@pytest.mark.parametrize("workers", [2], scope="session")
def test_workers_give_the_bytes_that_one_process_gives(
    done: tuple[Config, Any, Path], cluster_of: ClusterOf, workers: int
) -> None:
    digests = []
    for cluster in (None, cluster_of(LocalCluster(workers=workers))):
        config = done[0].model_copy(update={"recommend": RecommendConfig(top=7)})
        found = recommend.run(StageContext.of(config, cluster))
        assert not found.reused
        digests.append(found.digest)
        remove_tree(found.artifact)
    assert digests[0] == digests[1]
