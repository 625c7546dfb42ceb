"""Figures of scored tables: metrics of their labels, the distribution of scores, and both against the month before."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import metrics as sk

from gnnflow import registry
from gnnflow.graph.errors import StorageError
from gnnflow.graph.labels import LabelKind
from gnnflow.registry.scores import find_score, last_score, read_scores
from gnnflow.stages import pipeline, publish, score, score_figures
from gnnflow.stages.base import StageContext
from gnnflow.stages.score_drift import drift_between
from gnnflow.stages.score_figures import Figures, Model, figures_of
from tests.small_graphs import graph_config, write_graph

TRAIN = {"epochs": 20, "batch_size": 64, "threads": 1}
MODEL = {"kind": "sage", "hidden": 8, "layers": 1, "dropout": 0.0}


def relabel(folder: Path, labels: Any, *, split: Any = None) -> pa.Table:
    nodes = pq.read_table(folder / "nodes.parquet")
    nodes = nodes.set_column(2, "label", labels(np.stack(nodes["x"].to_numpy())[:, 0]))
    if split is not None:
        nodes = nodes.set_column(3, "split", split)
    pq.write_table(nodes, folder / "nodes.parquet")
    return nodes


def by_sign(x: np.ndarray) -> pa.Array:
    return pa.array(np.where(x > 0, "fraud", "ok"))


def published(folder: Path, **sections: Any) -> StageContext:
    config = graph_config(folder, **{"model": MODEL, "train": TRAIN, **sections})
    context = StageContext.of(config)
    pipeline.run(context)
    publish.run(context)
    return context


def again(context: StageContext) -> score.ScoreResult:
    return score.run(StageContext.of(context.config))


def test_a_labelled_month_has_metrics_and_its_drift_beside_the_month_before(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=400)
    nodes = relabel(tmp_path, by_sign).to_pandas()
    learned = set(nodes["id"][nodes["split"].isin(["train", "valid"])])
    context = published(tmp_path)
    first = again(context)
    assert first.drift is None
    write_graph(tmp_path, num_nodes=600, seed=1)
    # a month of other labels: half of them are of a class that the model has not seen, or turned round
    nodes = relabel(tmp_path, lambda x: pa.array(np.where(x > 0.5, "new", np.where(x > 0, "ok", "fraud"))))
    second = again(context)
    table = pq.read_table(second.predictions).to_pandas()
    assert sorted(table["label"]) == sorted(nodes["label"].to_pylist())
    # all of the training's ids are there again, most of them in another split
    assert 0 < len(set(table["id"][table["split"] == "train"]) & learned) < len(learned) == 200
    judged = table[~table["id"].isin(learned) & (table["label"] != "new")]
    found = second.figures
    assert found.labelled == len(judged)
    truth = judged["label"] == "ok"
    ours = {name: found.metrics[f"score.{name}"] for name in ("accuracy", "average_precision", "roc_auc", "brier")}
    assert ours["accuracy"] == pytest.approx(sk.accuracy_score(judged["label"], judged["class"]))
    assert ours["average_precision"] == pytest.approx(sk.average_precision_score(truth, judged["probability_ok"]))
    assert ours["roc_auc"] == pytest.approx(sk.roc_auc_score(truth, judged["probability_ok"]))
    assert found.metrics["score.precision"] == pytest.approx(sk.precision_score(truth, judged["decision"]))
    assert found.metrics["score.accuracy_low"] < ours["accuracy"] < found.metrics["score.accuracy_high"]
    assert found.headline == "score.accuracy"
    assert any("classes that the model does not know" in each for each in found.notes)
    assert "100 labels are not counted, since the model was trained on these targets" in found.notes
    assert any("labels are not counted, since their targets are of the split valid" in each for each in found.notes)
    assert found.counts == {name: int((table["class"] == name).sum()) for name in ("fraud", "ok")}
    assert found.mean == pytest.approx(table["probability_ok"].mean(), rel=1e-4)
    assert found.quantiles["50%"] == pytest.approx(table["probability_ok"].median(), rel=0.02)
    drift = second.drift
    assert drift is not None
    assert drift.changes[0].name == "score.accuracy"
    assert drift.changes[0].beyond_noise
    assert drift.shares["ok"][1] == pytest.approx((table["class"] == "ok").mean())
    # the same tables again say the same, and make no new record
    repeated = again(context)
    assert (repeated.figures, repeated.drift) == (found, drift)
    assert list(repeated.lines()) == list(second.lines())  # a document's keys are sorted
    assert [each.number for each in read_scores(context.config.workspace, "small")] == [2, 1]
    kept = find_score(second.predictions)
    assert kept == last_score(context.config.workspace, "small", version=1)
    assert kept is not None
    assert Figures.read(kept.figures) == found


def test_scores_of_another_model_in_the_place_of_the_artifact_are_refused(tmp_path: Path) -> None:
    write_graph(tmp_path)
    context = published(tmp_path, train={"epochs": 1})
    write_graph(tmp_path, num_nodes=80, seed=1)
    first = Path(again(context).predictions.removeprefix("file://")).parent
    config = graph_config(tmp_path, model=MODEL, train={"epochs": 2}, publish={"incomparable": "promote"})
    pipeline.run_quietly(config)
    publish.run(StageContext.of(config))
    registry.promote(config.workspace, "small", 2)
    other = Path(pipeline.run_quietly(config).stages["infer"].artifact.removeprefix("file://"))
    registry.promote(config.workspace, "small", 1)
    shutil.rmtree(first)
    shutil.copytree(other, first)
    with pytest.raises(StorageError, match="holds the scores of another model than version 1"):
        again(context)


@pytest.mark.parametrize("kind", ["multi", "regression"])
def test_other_labels_are_judged_too(tmp_path: Path, kind: str) -> None:
    write_graph(tmp_path, num_nodes=200)

    def labels(x: np.ndarray) -> pa.Array:
        return pa.array(x) if kind == "regression" else pa.array([[int(each > 0), int(each > 1)] for each in x])

    relabel(tmp_path, labels)
    context = published(tmp_path)
    found = again(context).figures
    table = pq.read_table(context.run.uri.removeprefix("file://") + "/predictions").to_pandas()
    judged = table[~table["split"].isin(["train", "valid"])]  # valid chose the model
    if kind == "regression":
        expected = {"mae": sk.mean_absolute_error(judged["label"], judged["value"])}
    else:
        truth, scores = (np.stack(judged[name]) for name in ("label", "probabilities"))
        expected = {
            "roc_auc": sk.roc_auc_score(truth, scores),
            "micro_f1": sk.f1_score(truth, scores > 0.5, average="micro"),
        }
    for name, value in expected.items():
        assert found.metrics[f"score.{name}"] == pytest.approx(value, rel=1e-5)


def test_numbers_are_no_labels_of_classes_with_names(tmp_path: Path) -> None:
    write_graph(tmp_path)
    relabel(tmp_path, by_sign)
    published(tmp_path, train={"epochs": 2})
    relabel(tmp_path, lambda x: pa.array((x > 0).astype(np.int64)))
    # the rule of this config is another one than the version's, which is what is measured
    config = graph_config(
        tmp_path, model=MODEL, train={**TRAIN, "epochs": 2}, task={"decide": {"kind": "top_k", "k": 7}}
    )
    found = score.run(StageContext.of(config)).figures  # class 1 of these may be any class of the model's
    assert found.top == 100
    assert not found.metrics
    assert any("classes that the model does not know" in each for each in found.notes)


def test_tables_without_labels_have_a_distribution_and_no_metric(tmp_path: Path) -> None:
    write_graph(tmp_path)
    context = published(tmp_path, train={"epochs": 2})
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    pq.write_table(nodes.slice(0, 50).drop_columns(["label", "split"]), tmp_path / "nodes.parquet")
    edges, held = pq.read_table(tmp_path / "edges.parquet"), set(nodes["id"].to_pylist()[:50])
    kept = [a in held and b in held for a, b in zip(edges["src"].to_pylist(), edges["dst"].to_pylist(), strict=True)]
    pq.write_table(edges.filter(pa.array(kept)), tmp_path / "edges.parquet")
    found = again(context)
    assert not found.figures.metrics
    assert sum(found.figures.counts.values()) == 50
    # the first scoring is compared with the run of the version
    assert found.drift is not None
    assert found.drift.against == "the predictions of version 1's own run"
    assert not found.drift.changes


def test_a_change_is_judged_by_the_intervals_of_both() -> None:
    def figures(value: float, low: float, high: float) -> Figures:
        return Figures(9, 9, {"score.f1": value, "score.f1_low": low, "score.f1_high": high}, "score.f1")

    now = figures(0.8, 0.7, 0.9)
    for before, beyond in ((figures(0.62, 0.5, 0.74), True), (figures(0.7, 0.5, 0.74), False)):
        assert [each.beyond_noise for each in drift_between(now, before, against="").changes] == [beyond]
        assert [each.beyond_noise for each in drift_between(before, now, against="").changes] == [beyond]
    unknown = replace(now, metrics={"score.f1": 0.1})
    assert drift_between(now, unknown, against="").changes[0].beyond_noise is None


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_means_over_other_classes_are_not_compared(kind: LabelKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A month without one class has a mean over the others; only two such months show that no verdict stands on it."""
    names, rng = ("ok", "mule", "ring"), np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), 300).astype(np.float32)

    def month(held: tuple[str, ...]) -> Figures:
        number = rng.integers(len(held), size=300)
        labels: Any = pa.array(np.array(held)[number])
        if kind == "multi":
            labels = pa.FixedSizeListArray.from_arrays(pa.array(np.eye(3, dtype=np.float32)[number].ravel()), 3)
        rows = pa.FixedSizeListArray.from_arrays(pa.array(probabilities.ravel()), 3)
        table = pa.table({"label": labels, "split": ["test"] * 300, "probabilities": rows})
        monkeypatch.setattr(score_figures, "prediction_files", lambda _: [""])
        monkeypatch.setattr(score_figures, "read_artifact_table", lambda *_: table)
        return figures_of("", Model(kind, names, "average_precision"))

    every, fewer = month(names), month(names[:2])
    assert (every.classes, fewer.classes) == (names, names[:2])
    assert Figures.read(fewer.as_document()) == fewer
    drift = drift_between(fewer, every, against="before")
    means = {each.name for each in drift.changes if each.why_not}
    assert means == {"score.average_precision", "score.macro_f1", "score.roc_auc"}
    assert "before, as a mean over other classes, so the two cannot be compared" in drift.verdict(fewer.headline)
    assert not any(each.is_worse for each in drift.changes if each.why_not)
    alike = drift_between(month(names), every, against="before")
    assert not any(each.why_not for each in alike.changes)
