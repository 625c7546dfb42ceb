"""Baselines of whole graphs with a planted answer, and runs judged by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gnnflow.config import Config
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.run_facts import BaselineFacts
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.resolve import resolve
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import from_matrix, to_matrix
from tests.command_line import printed
from tests.hearing import Heard
from tests.small_graphs import graph_config, write_graph
from tests.small_links import config_of, write_groups

NODES, EDGES = 1200, 6000
MODEL = {"kind": "sage", "hidden": 16, "dropout": 0.0, "layers": 1}
TRAIN = {"epochs": 20, "batch_size": 128, "lr": 0.02, "baselines": "all"}


def write_planted(folder: Path, label: str, *, seed: int = 0) -> None:
    """Write a graph whose label is a function of a node's own columns, of its in-neighbours', or rare noise."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((NODES, 4)).astype(np.float32)
    src, dst = rng.integers(0, NODES, (2, EDGES))
    sums = np.zeros(NODES)
    np.add.at(sums, dst, x[src, 0])
    labels: dict[str, Any] = {
        # an interval, which trees find at once
        "own": (np.abs(x[:, 0]) > 0.7).astype(np.int64) * 2 + (np.abs(x[:, 1]) > 0.7),
        "neighbors": (sums > 0).astype(np.int64),
        "number": 3 * x[:, 0] + rng.normal(0, 0.1, NODES),
        "rare": (rng.random(NODES) < 0.06).astype(np.int64),
        "several": from_matrix((x[:, :2] > 0).astype(np.int64)),
    }
    split = np.array(["train", "train", "valid", "test"])[np.arange(NODES) % 4]
    folder.mkdir(parents=True, exist_ok=True)
    columns = {"id": np.arange(NODES), "x": from_matrix(x), "label": labels[label], "split": split}
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    pq.write_table(pa.table({"src": src, "dst": dst}), folder / "edges.parquet")


def planted(folder: Path, label: str, **train: Any) -> Config:
    write_planted(folder, label)
    return graph_config(folder, model=MODEL, train={**TRAIN, **train})


def baselines_of(config: Config, said: list[str] | None = None) -> BaselineFacts:
    progress = Heard()
    context = StageContext.of(config, progress=progress)
    make_artifact(context, "ingest")
    found = make_artifact(context, "baselines").facts(BaselineFacts)
    if said is not None:
        said.extend(progress.messages)
    return found


def test_a_label_in_the_neighbours_is_found_by_averages_and_not_by_columns(tmp_path: Path) -> None:
    said: list[str] = []
    found = baselines_of(planted(tmp_path, "neighbors"), said)
    scores = {name: found.metrics[f"{name}.test.accuracy"] for name in ("majority", "trees", "neighbor_trees")}
    assert scores["trees"] < 0.6
    assert scores["majority"] < 0.6
    assert scores["neighbor_trees"] > 0.85
    assert found.metrics["trees.test.roc_auc_low"] < found.metrics["trees.test.roc_auc"]
    assert "trees.valid.accuracy_low" not in found.metrics
    assert (found.train_rows, found.scored) == (600, {"valid": 300, "test": 300})
    assert [line for line in said if line.startswith("baselines: trees in ")]


def test_numbers_have_their_mean_and_trees(tmp_path: Path) -> None:
    found = baselines_of(planted(tmp_path, "number", metric="mae")).metrics
    assert found["trees.test.mae"] < 0.4
    assert found["majority.test.mae"] > 2


def test_trees_of_several_labels_are_left_out_with_a_reason(tmp_path: Path) -> None:
    said: list[str] = []
    found = baselines_of(planted(tmp_path, "several"), said)
    assert found.left_out == dict.fromkeys(("trees", "neighbor_trees"), "nodes have several labels")
    assert "baselines: trees is left out: nodes have several labels" in said
    assert 0 < found.metrics["majority.test.accuracy"] < 1


def test_equal_configs_give_equal_scores_and_threads_do_not_matter(tmp_path: Path) -> None:
    write_planted(tmp_path, "own")
    found = [
        baselines_of(
            graph_config(tmp_path, workspace=str(tmp_path / str(number)), train={**TRAIN, "threads": 1 + number})
        ).metrics
        for number in range(2)
    ]
    assert found[0] == found[1]


def test_another_choice_of_baselines_trains_nothing_again(tmp_path: Path) -> None:
    write_planted(tmp_path, "own")
    before, after = (
        resolve(graph_config(tmp_path, train={"baselines": chosen})) for chosen in (["majority"], ["trees"])
    )
    changed = {stage for stage in before.stages if before.fingerprints[stage] != after.fingerprints[stage]}
    assert changed == {"baselines"}
    other = resolve(graph_config(tmp_path, model={"kind": "gcn"}, train={"baselines": ["trees"], "lr": 0.5}))
    assert other.fingerprints["baselines"] == after.fingerprints["baselines"]
    assert "baselines" not in resolve(graph_config(tmp_path)).stages


def test_a_baseline_of_another_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"popularity is not a baseline of task\.kind node.*Choose from majority"):
        graph_config(tmp_path, train={"baselines": ["trees", "popularity"]})


def test_a_run_without_gain_over_trees_says_so_last_and_in_json(tmp_path: Path) -> None:
    config = planted(tmp_path, "own")
    file = tmp_path / "config.yaml"
    file.write_text(config.model_dump_json())
    lines = printed(["run", str(file)]).splitlines()
    (said,) = [line for line in lines if line.startswith("test.accuracy: ")]
    assert " trees on the columns" in said
    assert said.startswith(("test.accuracy: worse than", "test.accuracy: no better than"))
    assert any(line.startswith("accuracy neighbor_trees") for line in lines)
    out = json.loads(printed(["run", str(file), "--json"]))
    assert out["judgement"]["outcome"] != "better"
    assert out["judgement"]["beside"] == out["metrics"][f"baseline.{out['judgement']['baseline']}.test.accuracy"]
    assert "trees on the columns" in Path(out["report"].removeprefix("file://")).read_text()


def test_a_run_is_better_than_trees_where_the_label_is_in_the_neighbours(tmp_path: Path) -> None:
    config = planted(tmp_path, "neighbors", baselines=["majority", "trees"])
    result = pipeline.run_quietly(config)
    assert result.judgement is not None
    assert (result.judgement.outcome, result.judgement.baseline in {"majority", "trees"}) == ("better", True)
    assert result.cautions == ()


def test_one_predicted_class_is_said_beside_the_score(tmp_path: Path) -> None:
    result = pipeline.run_quietly(planted(tmp_path, "rare", epochs=10, baselines=["majority"]))
    assert result.judgement is not None
    assert result.judgement.text.startswith("no better than the most frequent class: 0.0")
    constant, few = result.cautions
    assert constant.startswith("The column prediction has one class for every test target.")
    assert "The column decision has both: class 1 from a probability of " in constant
    assert "targets of the test split have class 1" in few


@pytest.mark.parametrize("label", ["neighbors", "number"])
def test_a_run_compares_both_scores_of_each_target(tmp_path: Path, label: str) -> None:
    """Finds noise of other targets than the test split's, or of scores in another order."""
    metrics = pipeline.run_quietly(planted(tmp_path, label, baselines=["majority", "trees"])).metrics
    key = "test.mae" if label == "number" else "test.accuracy"
    low, high = (metrics[f"baseline.trees.{key}_{end}"] for end in ("low", "high"))
    # of the same targets, so within what two independent samples would have; 0 would be one target's at most
    assert 0.1 * (high - low) < metrics[f"baseline.trees.{key}_noise"] < 1.5 * (high - low)
    model = pq.ParquetDataset(str(next((tmp_path / "runs" / "runs").glob("*/*/predictions")))).read().sort_by("id")
    if label == "neighbors":
        is_test = np.arange(NODES) % 4 == 3
        truth = pq.read_table(tmp_path / "nodes.parquet")["label"].to_numpy()[is_test]
        hit = model["prediction"].to_numpy()[is_test] == truth
        most = np.bincount(pq.read_table(tmp_path / "nodes.parquet")["label"].to_numpy()[~is_test]).argmax()
        expected = 1.96 * np.std(hit.astype(float) - (truth == most)) / np.sqrt(len(hit))
        assert metrics["baseline.majority.test.accuracy_noise"] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("attribute", [False, True])
def test_trees_on_edges_read_both_ends_and_the_attributes(tmp_path: Path, attribute: bool) -> None:
    """Finds columns of another end than the edge's, and attributes that are left out."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((NODES, 4)).astype(np.float32)
    src, dst = rng.integers(0, NODES, (2, EDGES))
    amount = rng.standard_normal(EDGES).astype(np.float32)
    score = amount if attribute else np.abs(x[src, 0]) - np.abs(x[dst, 1])
    pq.write_table(pa.table({"id": np.arange(NODES), "x": from_matrix(x)}), tmp_path / "nodes.parquet")
    columns = {"src": src, "dst": dst, "amount": amount, "label": (score > 0).astype(np.int64)}
    pq.write_table(pa.table(columns), tmp_path / "edges.parquet")
    task = {"kind": "edge", "split": {"kind": "random"}}
    graph = {"edge_features": ["amount"]} if attribute else {}
    found = baselines_of(graph_config(tmp_path, task=task, graph=graph, model=MODEL, train=TRAIN))
    assert found.metrics["trees.test.accuracy"] > 0.85
    assert found.metrics["majority.test.accuracy"] < 0.65


@pytest.mark.parametrize("targets", ["all", ["test"]])
def test_a_run_compares_both_scores_of_each_labelled_edge(tmp_path: Path, targets: Any) -> None:
    """Finds outputs of other edges than the baseline's: parallel ones, other partitions, or where a part is scored."""
    write_planted(tmp_path, "neighbors")
    rng = np.random.default_rng(5)
    src, dst = rng.integers(0, 300, (2, EDGES))  # some edges are parallel, with other labels
    x = to_matrix(pq.read_table(tmp_path / "nodes.parquet")["x"])
    label = (x[src, 0] + rng.normal(0, 1, EDGES) > 0.5).astype(np.int64)
    columns = {"src": src, "dst": dst, "label": label}
    pq.write_table(pa.table(columns), tmp_path / "edges.parquet")
    task = {"kind": "edge", "split": {"kind": "random"}}
    train = {**TRAIN, "epochs": 3, "baselines": ["majority"]}
    config = graph_config(tmp_path, task=task, model=MODEL, train=train, infer={"targets": targets})
    metrics = pipeline.run_quietly(config).metrics
    model = pq.ParquetDataset(str(next((tmp_path / "runs" / "runs").glob("*/*/predictions")))).read()
    model = model.filter(pc.equal(model["split"], "test"))
    truth = model["label"].to_numpy()
    hit = model["prediction"].to_numpy() == truth
    assert hit.mean() > np.mean(truth == 0) + 0.02
    expected = 1.96 * np.std(hit.astype(float) - (truth == 0)) / np.sqrt(len(truth))
    assert metrics["baseline.majority.test.accuracy_noise"] == pytest.approx(expected, rel=1e-3)


def links_of(folder: Path, **train: Any) -> Config:
    return config_of(folder, train={"baselines": "all", **train})


def write_popular(folder: Path) -> None:
    """Write links whose targets are drawn by a power law, whatever the source and the features."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 301) ** 1.2
    src, dst = rng.integers(0, 300, 5000), rng.choice(300, 5000, p=share / share.sum())
    folder.mkdir(parents=True, exist_ok=True)
    columns = {"id": np.arange(300), "x": from_matrix(rng.standard_normal((300, 6)).astype(np.float32))}
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    pq.write_table(pa.table({"src": src, "dst": dst}).filter(pa.array(src != dst)), folder / "edges.parquet")


def test_popularity_wins_where_only_it_decides(tmp_path: Path) -> None:
    write_popular(tmp_path)
    result = pipeline.run_quietly(links_of(tmp_path, epochs=2))
    assert result.judgement is not None
    assert (result.judgement.outcome, result.judgement.baseline) == ("worse", "popularity")
    assert "Each link is ranked among 30 sampled candidates, not among all 298 others." in result.cautions
    metrics = result.metrics
    # the same list for every source shows few targets, the other one follows the source
    assert metrics["baseline.popularity.test.mrr"] > metrics["baseline.item_knn.test.mrr"] - 0.05
    assert 10 <= metrics["baseline.popularity.test.items_at_10"] <= 300


@pytest.mark.parametrize("source", ["store", "shards"])
def test_a_run_of_links_compares_both_scores_of_each_link(tmp_path: Path, source: str) -> None:
    """Finds noise of other candidates than the model's, and a model whose coverage is not of its own scores."""
    write_groups(tmp_path)
    metrics = pipeline.run_quietly(links_of(tmp_path, source=source)).metrics
    # a model of groups shows a user a third of the nodes, and all nodes to all users
    assert metrics["baseline.popularity.test.items_at_10"] < metrics["test.items_at_10"] <= 90
    # from shards the model's candidates are another draw; with its own, its score is found again before it is compared
    assert ("baseline.item_knn.test.mrr_noise" in metrics) == (source == "store")


def test_popularity_loses_where_targets_follow_from_the_source(tmp_path: Path) -> None:
    write_groups(tmp_path)
    found = baselines_of(links_of(tmp_path))
    assert found.metrics["item_knn.test.mrr"] > found.metrics["popularity.test.mrr"] + 0.1
    assert found.left_out == {"most_recent": "edges have no times (graph.timestamp)"}
    assert found.candidates == 31


def test_a_pair_of_few_targets_has_no_noise_of_its_own(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=40)  # of one target it would be 0, and any difference certain
    train = {"epochs": 1, "threads": 1, "baselines": ["majority"]}
    metrics = pipeline.run_quietly(graph_config(tmp_path, train=train)).metrics
    assert "baseline.majority.test.accuracy" in metrics
    assert not any(key.endswith("_noise") for key in metrics)
