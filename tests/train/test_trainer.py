"""Training a small model: it learns, stops when told, and says what it did."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from gnnflow.graph.errors import TrainingError
from gnnflow.graph.sampling import EVERY_EDGE
from gnnflow.graphfeature.shards import Layout, write_shard
from gnnflow.layers.saved import decode_weights
from gnnflow.layers.start import Start
from gnnflow.train.job import Shards, check_job, fit_digest
from gnnflow.train.trainer import TrainResult, train
from tests.train.planted import Planted, Recording, job_for, planted, with_model

GRAPH = planted()


def run(graph: Planted = GRAPH, **keys: object) -> tuple[TrainResult, Recording]:
    progress = Recording()
    return train(job_for(graph, **keys), progress=progress, open_source=graph.open_source), progress


def test_neighbours_are_learned_and_beat_the_baseline() -> None:
    result, _ = run(epochs=25, baseline=True)
    assert result.metrics["test.accuracy"] > 0.75
    assert result.metrics["test.accuracy"] > result.metrics["baseline.test.accuracy"] + 0.1
    assert {"valid.roc_auc", "train.macro_f1", "baseline.valid.micro_f1"} <= set(result.metrics)
    assert result.confusion["test"].sum() == 80


def test_the_test_metrics_have_intervals() -> None:
    metrics = run(epochs=3, baseline=True)[0].metrics
    bounded = {key.rpartition("_")[0] for key in metrics if key.endswith("_low")}
    names = ("accuracy", "micro_f1", "macro_f1", "roc_auc", "average_precision", "brier")
    assert bounded == {f"test.{name}" for name in names}
    for key in bounded:
        assert metrics[f"{key}_low"] < metrics[key] < metrics[f"{key}_high"]


def test_every_epoch_is_in_the_history() -> None:
    result, _ = run(epochs=4)
    assert [row["epoch"] for row in result.history] == [1, 2, 3, 4]
    assert {key for key in result.history[0] if not key.endswith("_seconds")} == {
        "epoch", "train_loss", "lr", "valid_loss", "valid_accuracy", "seconds", "samples_per_second",
    }  # fmt: skip
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    assert result.metrics["train.epochs"] == 4
    assert result.metrics["train.seconds_per_epoch"] == pytest.approx(result.metrics["train.seconds"] / 4)


def test_the_best_epoch_is_kept() -> None:
    result, _ = run(epochs=15, lr=0.1)
    best = result.history[result.best_epoch - 1]
    assert best["epoch"] == result.best_epoch == result.metrics["train.best_epoch"]
    assert best["valid_accuracy"] == max(row["valid_accuracy"] for row in result.history)
    assert result.metrics["valid.accuracy"] == pytest.approx(best["valid_accuracy"])


def test_patience_stops_early_and_says_so() -> None:
    result, progress = run(epochs=200, patience=3, lr=0.1)
    assert len(result.history) == result.best_epoch + 3 < 200
    ended = f"train: stopped after epoch {len(result.history)} of 200, 3 epochs without a better one"
    best = f"the best valid accuracy was in epoch {result.best_epoch}, whose weights are kept"
    assert f"{ended}; {best}" in progress.messages
    name, done, total, _ = progress.steps[-1]
    assert (name, done) == ("train", total)


@pytest.mark.parametrize("kind", ["gcn", "gat", "gin"])
def test_equal_jobs_give_equal_bytes(kind: str) -> None:
    first, second = (run(kind=kind, epochs=3)[0] for _ in range(2))
    assert first.weights == second.weights


def test_a_start_moves_the_model_and_not_the_baseline() -> None:
    fresh, _ = run(epochs=2, baseline=True)
    job = job_for(GRAPH, epochs=2, baseline=True)
    started = replace(job, start=Start("other/1", "ab" * 32, run(epochs=20)[0].weights))
    result = train(started, progress=Recording(), open_source=GRAPH.open_source)
    assert result.history[0]["train_loss"] < 0.8 * fresh.history[0]["train_loss"]
    baseline = [name for name in fresh.metrics if name.startswith("baseline.")]
    assert [result.metrics[name] for name in baseline] == [fresh.metrics[name] for name in baseline]
    assert fit_digest(started, "train") != fit_digest(job, "train")


def test_speed_settings_do_not_change_the_weights() -> None:
    plain, _ = run(epochs=3)
    for keys in ({"prefetch": 0}, {"cache": 0}, {"eval_batch_size": 7}, {"checkpoint_steps": 1}):
        assert run(epochs=3, **keys)[0].weights == plain.weights


def test_training_leaves_torch_as_it_was() -> None:
    torch.manual_seed(3)
    before = (torch.get_num_threads(), torch.get_deterministic_debug_mode(), torch.get_rng_state())
    run(epochs=1)
    assert before[:2] == (torch.get_num_threads(), torch.get_deterministic_debug_mode())
    assert torch.equal(before[2], torch.get_rng_state())


def test_other_seeds_give_other_weights() -> None:
    job = job_for(GRAPH, epochs=1)
    weights = {
        train(replace(job, seed=seed), progress=Recording(), open_source=GRAPH.open_source).weights for seed in (1, 2)
    }
    assert len(weights) == 2


def test_accumulated_batches_train_as_one_large_batch() -> None:
    graph = planted(train_shards=1)
    keys = {"epochs": 3, "optimizer": "sgd", "lr": 0.3}
    jobs = [job_for(graph, batch_size=120, **keys), job_for(graph, batch_size=32, accumulate=100, **keys)]
    jobs = [with_model(job, dropout=0.0) for job in jobs]
    one, many = (train(job, progress=Recording(), open_source=graph.open_source) for job in jobs)
    for name, weights in decode_weights(one.weights).items():
        torch.testing.assert_close(decode_weights(many.weights)[name], weights, atol=1e-5, rtol=1e-4)
    assert many.history[-1]["train_loss"] == pytest.approx(one.history[-1]["train_loss"], rel=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_optimisers_learn(optimizer: str) -> None:
    result, _ = run(epochs=8, optimizer=optimizer, lr=0.3 if optimizer == "sgd" else 0.02)
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]


def test_multi_label() -> None:
    result, _ = run(planted("multi"), label_kind="multi", metric="micro_f1", epochs=25, class_weight="balanced")
    assert result.metrics["test.micro_f1"] > 0.7
    assert result.metrics["test.roc_auc_micro"] > 0.8
    assert result.confusion["test"].shape == (3, 2, 2)


@pytest.mark.table(4)
@pytest.mark.parametrize("metric", ["loss", "mae", "rmse"])
def test_regression_keeps_the_epoch_with_the_smallest_error(metric: str) -> None:
    result, _ = run(planted("regression"), label_kind="regression", metric=metric, epochs=60, lr=0.01)
    assert result.metrics["test.rmse"] < 0.75
    errors = [row[f"valid_{metric}"] for row in result.history]
    assert errors[result.best_epoch - 1] == min(errors) < errors[0]


def test_patience_waits_for_a_smaller_error() -> None:
    graph = planted("regression")
    result, progress = run(graph, label_kind="regression", metric="mae", epochs=200, patience=3, lr=0.05)
    assert len(result.history) == result.best_epoch + 3 < 200
    assert any("the best valid mae was in epoch" in text for text in progress.messages)


def test_training_stops_early_by_default_and_zero_takes_all_epochs() -> None:
    stopped, _ = run(epochs=200, lr=0.1)
    assert len(stopped.history) == stopped.best_epoch + 20 < 200
    assert len(run(epochs=stopped.best_epoch + 25, patience=0, lr=0.1)[0].history) == stopped.best_epoch + 25


def test_progress_is_reported_with_speed_and_remaining_time() -> None:
    _, progress = run(epochs=3)
    name, done, total, fields = progress.steps[-1]
    assert (name, done, total) == ("train", 12, 12)
    waits = {"reader_waits_percent", "trainer_waits_percent"} & set(fields)
    assert {"epoch", "epochs", "train_loss", "samples_per_second", "valid_accuracy", *waits} == set(fields)
    assert len(waits) == 1, "the side that waits longer is named"
    assert 0 <= fields[waits.pop()] <= 100
    assert (fields["epoch"], fields["epochs"]) == (3, 3)
    assert {figures["epoch"] for *_, figures in progress.steps} <= {1, 2, 3}
    assert all("eta_seconds" in figures for *_, figures in progress.steps[:-1])


def test_without_a_validation_split_the_last_weights_are_kept() -> None:
    job = job_for(GRAPH, epochs=3)
    entries = [entry for entry in job.graph.entries if entry.split != "valid"]
    result = train(
        replace(job, graph=replace(job.graph, entries=entries)), progress=Recording(), open_source=GRAPH.open_source
    )
    assert result.best_epoch == 3
    assert "valid_loss" not in result.history[0]
    assert "test.accuracy" in result.metrics


def test_unlabelled_targets_do_not_count() -> None:
    partly = Planted(GRAPH.neighborhood, GRAPH.labels.copy(), GRAPH.targets)
    partly.labels[GRAPH.targets["train-0"]] = -1
    result, _ = run(partly, epochs=3)
    assert all(math.isfinite(row["train_loss"]) for row in result.history)
    assert result.confusion["train"].sum() == 60


def test_a_rare_class_weighs_more_when_balanced() -> None:
    rare = Planted(GRAPH.neighborhood, (GRAPH.labels == 0).astype("int64"), GRAPH.targets)
    plain, _ = run(rare, epochs=10, kind="gcn")
    balanced, _ = run(rare, epochs=10, kind="gcn", class_weight="balanced")
    assert balanced.confusion["test"][1, 1] > plain.confusion["test"][1, 1]


def test_an_undefined_metric_is_absent_and_named() -> None:
    one = Planted(GRAPH.neighborhood, GRAPH.labels * 0, GRAPH.targets)
    result, progress = run(one, epochs=1)
    assert "test.roc_auc" not in result.metrics
    assert "train: test: roc_auc is undefined: the labels hold one class only" in progress.messages


def test_a_model_that_predicts_one_class_says_so_once_of_the_test_split() -> None:
    result, progress = run(GRAPH, epochs=1, lr=1e-9, optimizer="sgd")
    assert not result.constant
    rare = Planted(GRAPH.neighborhood, (np.arange(len(GRAPH.labels)) % 30 == 0).astype("int64"), GRAPH.targets)
    result, progress = run(rare, epochs=10)
    said = "the model predicts class 0 for every test target, and their labels differ"
    assert result.constant == said
    assert [each for each in progress.messages if "predicts" in each] == [
        f"train: {said}. Try train.class_weight, more epochs or another train.lr."
    ]


@pytest.mark.parametrize(
    ("label_kind", "keys", "where"),
    [
        (
            "regression",
            {"metric": "accuracy"},
            "train.metric: accuracy is not defined for regression labels. Set it to mae or rmse or loss",
        ),
        ("single", {"metric": "mae"}, "mae is not defined for single labels. Set it to accuracy or micro_f1"),
        ("single", {"metric": "roc_auc_micro"}, "train.metric: roc_auc_micro is not defined for single labels"),
        ("regression", {"metric": "loss", "class_weight": "balanced"}, "train.class_weight: balanced needs classes"),
    ],
)
def test_a_job_that_its_labels_do_not_allow_says_why(label_kind: str, keys: dict[str, object], where: str) -> None:
    with pytest.raises(TrainingError, match=where):
        check_job(job_for(planted(label_kind), label_kind=label_kind, **keys))


def test_a_metric_that_one_class_leaves_undefined_is_named() -> None:
    with pytest.raises(TrainingError, match=r"train\.metric: roc_auc is undefined"):
        run(Planted(GRAPH.neighborhood, GRAPH.labels * 0, GRAPH.targets), metric="roc_auc")


def test_a_loss_that_is_not_finite_is_named() -> None:
    with pytest.raises(TrainingError, match="train: the training loss is nan"):
        run(lr=1e30, optimizer="sgd")


@pytest.mark.parametrize(("missing", "where"), [("train", "graph.split"), ("valid", "train.patience")])
def test_missing_splits_are_named(missing: str, where: str) -> None:
    job = job_for(GRAPH, patience=2)
    job = replace(
        job, graph=replace(job.graph, entries=[entry for entry in job.graph.entries if entry.split != missing])
    )
    with pytest.raises(TrainingError, match=where):
        check_job(job)


def test_scores_that_are_not_finite_are_refused() -> None:
    with pytest.raises(TrainingError, match="train: the model's scores are not finite"):
        run(planted(train_shards=1), epochs=1, lr=1e38, optimizer="sgd", batch_size=120)


@pytest.mark.parametrize("metric", ["loss", "accuracy"])
def test_a_validation_loss_that_is_no_number_is_refused_and_not_taken_for_the_best(metric: str) -> None:
    labels = GRAPH.labels.copy()
    labels[:] = labels % 2
    valid = np.concatenate([targets for name, targets in GRAPH.targets.items() if name.startswith("valid")])
    labels[valid] = 2  # a class that no target of the train split has, so that its balanced weight is zero
    graph = Planted(GRAPH.neighborhood, labels, GRAPH.targets)
    with pytest.raises(TrainingError, match="the validation loss is nan in epoch 1") as caught:
        run(graph, epochs=3, class_weight="balanced", metric=metric)
    assert "Balanced weights need a class of this split in the train split" in str(caught.value)


@pytest.mark.parametrize("layout", ["shared", "inline"])
def test_shards_are_read_from_the_artifact(layout: Layout, tmp_path: Path) -> None:
    job = job_for(GRAPH, epochs=2)
    written = []
    for entry in job.graph.entries:
        targets = GRAPH.targets[entry.name]
        table = pa.table({"node": targets, "id": targets, "label": GRAPH.labels[targets]})
        neighborhood = replace(GRAPH.neighborhood, roots=targets)
        written.append(
            write_shard(
                str(tmp_path),
                neighborhood,
                table,
                name=entry.name,
                split=entry.split,
                layout=layout,
                sampling=EVERY_EDGE,
                num_hops=2,
            )[0]
        )
    stored = train(replace(job, graph=Shards(str(tmp_path), written)), progress=Recording())
    assert stored.weights == train(job, progress=Recording(), open_source=GRAPH.open_source).weights


def test_weights_are_a_plain_safetensors_file() -> None:
    result, _ = run(epochs=1)
    assert all(tensor.dtype == torch.float32 for tensor in decode_weights(result.weights).values())
