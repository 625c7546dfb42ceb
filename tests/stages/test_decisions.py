"""Rare classes through every stage: the metric that is chosen, the threshold, and the decisions of predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sklearn import metrics as sk

from gnnflow.api.results import Run
from gnnflow.config.matrix import RunRow
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.stages import pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.comparison import compare_runs
from gnnflow.stages.differences import find_differences
from gnnflow.stages.target_checks import check_labels
from tests.hearing import Heard
from tests.small_graphs import graph_config, write_graph

TRAIN = {"epochs": 4, "batch_size": 32, "threads": 1}


def write_rare(folder: Path, *, num_nodes: int = 240, seed: int = 0, labelled: bool = True) -> pa.Table:
    """Write a graph in which one of eight nodes or so has class 1, which a feature tells in part."""
    write_graph(folder, num_nodes=num_nodes, num_edges=900, seed=seed)
    nodes = pq.read_table(folder / "nodes.parquet")
    x = np.stack(nodes["x"].to_numpy())[:, 0] + np.random.default_rng(seed).normal(size=num_nodes) / 2
    nodes = nodes.set_column(2, "label", pa.array((x > 1.3).astype(np.int64)))
    pq.write_table(nodes if labelled else nodes.drop_columns(["label", "split"]), folder / "nodes.parquet")
    return nodes


def read_parts(uri: str) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted(Path(uri).glob("*.parquet"))])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[StageContext, Any, pa.Table]:
    folder = tmp_path_factory.mktemp("rare")
    nodes = write_rare(folder)
    context = StageContext.of(graph_config(folder, train=TRAIN, publish={"incomparable": "promote"}))
    return context, pipeline.run(context), nodes


def facts_of(context: StageContext) -> TrainFacts:
    return context.artifact("train").facts(TrainFacts)


def decided(table: pa.Table, threshold: float) -> np.ndarray:
    probability = np.stack(table["probabilities"].to_numpy())[:, 1]
    assert probability.dtype == np.float32
    # as a reader compares them: in float32, or in float64
    np.testing.assert_array_equal(probability >= np.float32(threshold), probability.astype(np.float64) >= threshold)
    return np.asarray(probability >= threshold)


def test_a_rare_class_is_judged_by_average_precision(done: tuple[StageContext, Any, pa.Table]) -> None:
    context, result, nodes = done
    assert 0.05 < np.mean(nodes["label"].to_numpy()) < 0.2
    facts = facts_of(context)
    assert context.config.train.metric == "auto"
    assert facts.metric == "average_precision"
    assert facts.history[facts.best_epoch - 1]["valid_average_precision"] == result.metrics["valid.average_precision"]
    page = Path(result.report).read_text()
    assert "Test average precision is" in page
    assert "chosen on valid for the highest F1" in page


def test_decisions_of_a_run_are_scores_from_the_threshold(done: tuple[StageContext, Any, pa.Table]) -> None:
    context, result, nodes = done
    decision, found = facts_of(context).decision, read_parts(result.predictions)
    assert decision is not None
    assert decision.threshold is not None
    saved = json.loads((Path(context.artifact("train").uri) / "model.json").read_text())
    assert saved["decision"] == {"rule": "the highest F1", "threshold": decision.threshold, "why": ""}
    assert "decision" in found.column_names
    np.testing.assert_array_equal(found["decision"].to_numpy(), decided(found, decision.threshold))
    rows = found.select(["id", "decision"]).join(nodes.select(["id", "label", "split"]), "id").to_pydict()
    for split in ("train", "valid", "test"):
        own = [place for place, name in enumerate(rows["split"]) if name == split]
        truth, guess = (np.array(rows[name])[own] for name in ("label", "decision"))
        for name, measure in (
            ("precision", sk.precision_score),
            ("recall", sk.recall_score),
            ("f1", sk.f1_score),
        ):
            assert result.metrics[f"{split}.{name}"] == pytest.approx(measure(truth, guess)), (split, name)


def test_a_published_model_decides_on_later_tables_by_its_own_threshold(
    done: tuple[StageContext, Any, pa.Table], tmp_path: Path
) -> None:
    context, _, _ = done
    publish.run(context)
    write_rare(tmp_path, num_nodes=80, seed=3, labelled=False)
    graph = {side: str(tmp_path / f"{side}.parquet") for side in ("nodes", "edges")}
    later = graph_config(tmp_path, workspace=context.config.workspace, train=TRAIN, graph=graph)
    found = read_parts(score.run(StageContext.of(later)).predictions)
    decision = facts_of(context).decision
    assert decision is not None
    assert decision.threshold is not None
    assert found.num_rows == 80
    np.testing.assert_array_equal(found["decision"].to_numpy(), decided(found, decision.threshold))


def test_a_threshold_that_does_not_exist_decides_nothing_and_says_so(tmp_path: Path) -> None:
    write_rare(tmp_path)
    heard = Heard()
    config = graph_config(tmp_path, train=TRAIN, task={"decide": {"kind": "top_k", "k": 1000}})
    result = pipeline.run(StageContext.of(config, progress=heard))
    assert read_parts(result.predictions)["decision"].null_count == 240
    assert any(
        "no threshold: valid has 60 labelled targets, and task.decide.k is 1,000" in each for each in heard.messages
    )
    assert "test.precision" not in result.metrics


def test_another_rule_is_another_model_and_a_rule_of_one_of_four_classes_names_it(tmp_path: Path) -> None:
    write_graph(tmp_path)
    rule = {"decide": {"kind": "cost", "miss": 5}}
    usual, other = (StageContext.of(graph_config(tmp_path, train=TRAIN, task=task)) for task in ({}, rule))
    assert usual.run.fingerprints["select"] == other.run.fingerprints["select"]
    assert usual.run.fingerprints["train"] != other.run.fingerprints["train"]
    with pytest.raises(TrainingError, match=r"cost decides for one class, and the labels are of 4 classes") as refused:
        pipeline.run(other)
    assert refused.value.where == "task.decide.positive"
    found = read_parts(pipeline.run(usual).predictions)
    assert found["decision"] == found["prediction"]


NAMES = ("fine", "mule", "Ring", "ring")
NAMES_BY_NUMBER = sorted(NAMES)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a graph of four named classes, two of which differ in case alone."""
    folder = tmp_path_factory.mktemp("several")
    write_graph(folder, num_nodes=240, num_edges=900)
    nodes = pq.read_table(folder / "nodes.parquet")
    names = pa.array(NAMES).take(nodes["label"].combine_chunks())
    pq.write_table(nodes.set_column(nodes.column_names.index("label"), "label", names), folder / "nodes.parquet")
    return folder


def labelled_rows(found: pa.Table, split: str) -> pa.Table:
    return found.filter(pc.and_(pc.equal(found["split"], split), pc.is_valid(found["label"])))


def test_costs_between_classes_decide_alike_in_a_run_and_in_a_later_score(several: Path, tmp_path: Path) -> None:
    """Only a run and a score show that the model keeps what decides: both are the class of least expected cost."""
    rule = {"decide": {"kind": "cost", "costs": {"ring": 50, "mule": {"fine": 0}}}}
    config = graph_config(several, workspace=str(tmp_path), train=TRAIN, task=rule, publish={"incomparable": "promote"})
    context = StageContext.of(config)
    result = pipeline.run(context)
    found = read_parts(result.predictions)
    decision = facts_of(context).decision
    assert decision is not None
    assert found["decision"].type == pa.string()
    row, costs = dict(zip(NAMES_BY_NUMBER, range(4), strict=True)), np.array(decision.costs)
    assert costs[row["ring"], row["fine"]] == 50
    assert costs[row["mule"], row["fine"]] == 0
    assert costs[row["fine"], row["mule"]] == 1
    logs = np.log(np.stack(found["probabilities"].to_numpy()), dtype=np.float64)
    fitted = np.exp(decision.scale * logs + np.array(decision.offsets))
    expected = (fitted / fitted.sum(1, keepdims=True)) @ costs
    assert found["decision"].to_pylist() == [NAMES_BY_NUMBER[number] for number in expected.argmin(1)]
    test = labelled_rows(found, "test")
    pairs = zip(test["label"].to_pylist(), test["decision"].to_pylist(), strict=True)
    paid = [costs[row[true], row[decided]] for true, decided in pairs]
    assert result.metrics["test.cost"] == pytest.approx(np.mean(paid))
    publish.run(context)
    again = read_parts(score.run(StageContext.of(config)).predictions)
    assert again.select(["id", "decision"]).sort_by("id") == found.select(["id", "decision"]).sort_by("id")
    # a later version is compared by the costs of both on the same targets
    train = {**TRAIN, "epochs": 2}
    config = graph_config(several, workspace=str(tmp_path), train=train, task=rule, publish={"metric": "cost"})
    context = StageContext.of(config)
    later = pipeline.run(context)
    compared = publish.run(context)
    assert compared.champion["test.cost"] == result.metrics["test.cost"]
    assert compared.candidate["test.cost"] == later.metrics["test.cost"]
    assert compared.promoted == (later.metrics["test.cost"] <= result.metrics["test.cost"])
    assert "test.cost is " in compared.reason
    usual = graph_config(several, workspace=str(tmp_path), train=train, publish={"metric": "cost"})
    facts = context.artifact("ingest").facts(GraphFacts)
    with pytest.raises(TrainingError, match=r"publish\.metric: cost is of mistakes, and task\.decide gives them no"):
        check_labels(usual, facts=facts, preview=None)


def test_one_of_several_classes_has_a_list_with_a_threshold(several: Path, tmp_path: Path) -> None:
    rule = {"decide": {"kind": "top_k", "k": 12, "positive": "ring"}}
    config = graph_config(several, workspace=str(tmp_path), train=TRAIN, task=rule, publish={"incomparable": "promote"})
    context = StageContext.of(config)
    result = pipeline.run(context)
    found = read_parts(result.predictions)
    decision = facts_of(context).decision
    assert decision is not None
    assert decision.positive is not None
    assert NAMES_BY_NUMBER[decision.positive] == "ring"
    probability = np.stack(found["probabilities"].to_numpy())[:, decision.positive]
    np.testing.assert_array_equal(found["decision"].to_numpy(), probability >= np.float32(decision.threshold))
    assert labelled_rows(found, "valid")["decision"].to_pylist().count(True) == 12
    test = labelled_rows(found, "test")
    truth = np.array([name == "ring" for name in test["label"].to_pylist()])
    assert result.metrics["test.precision"] == pytest.approx(sk.precision_score(truth, test["decision"].to_numpy()))
    # probabilities of names that differ in case alone have their numbers
    assert {f"probability_{number}" for number in range(4)} < set(found.column_names)
    publish.run(context)
    later = score.run(StageContext.of(config))
    assert later.figures.scored == "probability of ring"  # what months are compared by
    assert read_parts(later.predictions).select(["id", "decision"]).sort_by("id") == found.select(
        ["id", "decision"]
    ).sort_by("id")
    assert {"score.precision", "score.recall_at_12"} < set(later.metrics)
    # lists of runs name the class of these two alike
    areas = [line for line in later.lines() if line.startswith(("score.average_precision", "score.roc_auc"))]
    assert [line.partition(" of class ring ")[0] for line in areas] == ["score.average_precision", "score.roc_auc"]
    assert "Average precision of class ring</th>" in Path(later.report).read_text()


def test_a_named_class_has_the_metric_the_best_epoch_and_the_headline(several: Path, tmp_path: Path) -> None:
    """A mean over four classes can rise while the class that the list is for is found less often."""

    def made(positive: str, **train: Any) -> tuple[StageContext, Any]:
        rule = {"decide": {"kind": "f1", "positive": positive}}
        keys = {**TRAIN, "baselines": ["majority"], **train}
        context = StageContext.of(graph_config(several, workspace=str(tmp_path), train=keys, task=rule))
        return context, pipeline.run(context)

    context, result = made("ring", epochs=6, patience=1)
    facts = facts_of(context)
    assert (facts.metric, facts.metric_class) == ("average_precision", "ring")
    test = labelled_rows(read_parts(result.predictions), "test")
    truth = np.array([name == "ring" for name in test["label"].to_pylist()])
    assert facts.decision is not None
    probability = np.stack(test["probabilities"].to_numpy())[:, facts.decision.positive]
    for name, score_of in (("average_precision", sk.average_precision_score), ("roc_auc", sk.roc_auc_score)):
        assert result.metrics[f"test.{name}"] == pytest.approx(score_of(truth, probability))
    best = max(row["valid_average_precision"] for row in facts.history)
    assert result.metrics["valid.average_precision"] == pytest.approx(best)
    # in random order average precision is the class's share
    assert result.metrics["baseline.majority.test.average_precision"] == pytest.approx(truth.mean())
    assert result.judgement is not None
    assert result.judgement.key == "test.average_precision"
    assert "Test average precision of class ring is" in (Path(result.uri) / "report.html").read_text()
    assert Run(result.uri).score_text().startswith("test.average_precision of class ring ")
    _, other = made("mule", epochs=6, patience=1)
    assert other.uri != result.uri
    unlike = find_differences([result.uri, other.uri]).unlike
    assert {"average_precision", "roc_auc", "f1", "precision"} < set(unlike)
    assert unlike["f1"] == ("of class ring", "of class mule")
    rows = [RunRow(name, name, {"class": name}, 0) for name in ("ring", "mule")]
    found = compare_runs(rows, {"ring": result.uri, "mule": other.uri}, name="sweep", workspace=str(tmp_path))
    assert found.metric == "valid.accuracy"
    assert "measure another class or other costs" in found.verdict
    assert "average_precision" not in Path(found.table).read_text()


def test_a_class_that_labels_do_not_have_is_refused_before_training(several: Path, tmp_path: Path) -> None:
    rule = {"decide": {"kind": "f1", "positive": "rings"}}
    context = StageContext.of(graph_config(several, workspace=str(tmp_path), train=TRAIN, task=rule))
    with pytest.raises(TrainingError, match=r"'rings' is not a class of the labels \(Ring, fine, mule, ring\)"):
        pipeline.run(context)
