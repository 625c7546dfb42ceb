"""Runs on small graphs whose fault is planted: the headline, the cautions and the advice name it, and nothing else.

The tests of hints give figures that a person made up; these find rules whose figures a real run does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import gnnflow
from gnnflow.report import ReportInputs
from gnnflow.report.headline import verdict
from gnnflow.report.hints import Hint, find_hints
from gnnflow.stages.report import report_inputs
from gnnflow.storage.run_folder import read_metrics, read_run

NODES = 600
SHARES = (0.5, 0.25, 0.25)
SPLITS = np.array(["train", "valid", "test"])


def drawn(rng: np.random.Generator, rows: int = NODES, shares: tuple[float, ...] = SHARES) -> np.ndarray:
    return SPLITS[rng.choice(3, rows, p=shares)]


def nodes_of(x: np.ndarray, label: np.ndarray, split: np.ndarray) -> pa.Table:
    rows = pa.FixedSizeListArray.from_arrays(pa.array(x.astype(np.float32).ravel()), x.shape[1])
    return pa.table({"id": np.arange(len(x)), "x": rows, "label": label.astype(np.int64), "split": split})


def edges_of(rng: np.random.Generator, groups: np.ndarray, *, share: float, degree: int = 8) -> pa.Table:
    """Return edges of which a share comes from the same group."""
    dst = np.repeat(np.arange(len(groups)), degree)
    src = rng.integers(0, len(groups), len(dst))
    same = np.argsort(groups, kind="stable")
    first, count = np.searchsorted(groups[same], groups), np.bincount(groups)[groups]
    mates = same[first[dst] + rng.integers(0, 2**31, len(dst)) % count[dst]]
    src = np.where(rng.random(len(dst)) < share, mates, src)
    kept = src != dst
    return pa.table({"src": src[kept], "dst": dst[kept]})


def inputs_of(folder: Path, nodes: pa.Table, edges: pa.Table, **keys: Mapping[str, Any]) -> ReportInputs:
    """Run a config on tables and return what its report shows."""
    config: dict[str, Any] = {
        "name": "planted",
        "workspace": str(folder),
        "graph": {"features": ["x"]},
        "model": {"kind": "sage", "hidden": 16, "layers": 2, "dropout": 0.1, **keys.pop("model", {})},
        "train": {"epochs": 30, "patience": 10, "batch_size": 64, "lr": 0.01, "baselines": "all", "threads": 1}
        | dict(keys.pop("train", {})),
        "infer": {"parity_samples": 16},
        **keys,
    }
    done = gnnflow.run(config, nodes=nodes, edges=edges, progress=False)
    return report_inputs(done.uri, read_run(done.uri), read_metrics(done.uri))


def grave(inputs: ReportInputs) -> dict[str, Hint]:
    """Return the problems and warnings by title."""
    return {hint.title: hint for hint in find_hints(inputs) if hint.kind != "idea"}


def test_an_overfitted_model_is_told_to_remember_less(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, NODES)
    x = rng.normal(0, 1, (NODES, 150))
    x[:, 0] += label
    split = drawn(rng, shares=(0.15, 0.4, 0.45))
    keys = {"model": {"hidden": 64, "dropout": 0.0}, "train": {"epochs": 40, "patience": 0}}
    found = inputs_of(tmp_path, nodes_of(x, label, split), edges_of(rng, label, share=0.0), **keys)
    assert found.losses["train"] < 0.1 < found.losses["valid"]
    hints = grave(found)
    hint = hints.pop("The model remembers the train split")
    assert "raise model.dropout (now 0.0)" in hint.text.lower()
    assert "without dropout" in hint.text
    assert "set train.patience" in hint.text
    assert all(title.startswith("The model is") for title in hints), hints  # worse than trees, no better


def test_an_underfitted_model_is_told_to_learn_more(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    label = rng.integers(0, 2, NODES)
    x = rng.normal(0, 1, (NODES, 6))
    x[:, :2] += 2 * label[:, None]
    keys = {"model": {"dropout": 0.5}, "train": {"epochs": 2, "lr": 1e-4, "metric": "accuracy"}}
    found = inputs_of(tmp_path, nodes_of(x, label, drawn(rng)), edges_of(rng, label, share=0.0), **keys)
    hints = grave(found)
    hint = hints.pop("The model has not learned the train split")
    assert "train.epochs (now 2), train.lr (now 0.0001)" in hint.text
    assert "lower model.dropout (now 0.5)" in hint.text
    (beaten,) = [hints.pop(title) for title in [*hints] if title.startswith("The model is worse than trees")]
    assert beaten.text.endswith(".")
    assert "Trees are faster" not in beaten.text  # nothing is known yet of what the graph says
    assert set(hints) <= {"The model predicts the same for every target"}


def test_a_good_model_is_better_than_all_baselines_and_gets_no_advice(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    label = rng.integers(0, 3, NODES)
    x = rng.normal(0, 1, (NODES, 6))
    x[:, :3] += 0.6 * np.eye(3)[label]
    found = inputs_of(
        tmp_path,
        nodes_of(x, label, drawn(rng)),
        edges_of(rng, label, share=0.6),
        model={"dropout": 0.5},
        train={"weight_decay": 1e-3},
    )
    assert found.judgement is not None
    assert found.judgement.outcome == "better"
    assert ", better than " in verdict(found)
    assert (grave(found), list(found.cautions)) == ({}, [])


@pytest.mark.parametrize("class_weight", ["none", "balanced"])
def test_a_model_of_one_class_is_told_apart_from_one_whose_decision_has_both(tmp_path: Path, class_weight: str) -> None:
    rng = np.random.default_rng(3)
    label = (rng.random(NODES) < 0.12).astype(np.int64)
    x = rng.normal(0, 1, (NODES, 4))
    x[:, 0] += 0.6 * label
    keys = {"model": {"hidden": 4}, "train": {"epochs": 8, "lr": 0.01, "class_weight": class_weight}}
    found = inputs_of(
        tmp_path,
        nodes_of(x, label, drawn(rng, shares=(0.4, 0.2, 0.4))),
        edges_of(rng, label, share=0.0),
        **keys,
    )
    assert found.headline_key == "test.average_precision"
    if class_weight == "balanced":
        assert all("Try train.class_weight" not in hint.text for hint in find_hints(found))
        return
    assert any("The column decision has both: class " in caution for caution in found.cautions)
    (hint,) = [hint for hint in find_hints(found) if "column `prediction`" in hint.title]
    assert "of class 1 with precision" in hint.text
    assert "The model predicts the same for every target" not in grave(found)


def test_a_model_no_better_than_trees_is_sent_to_trees(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(0, 1, (NODES, 4))
    label = ((x[:, 0] > 0) ^ (rng.random(NODES) < 0.1)).astype(np.int64)
    found = inputs_of(tmp_path, nodes_of(x, label, drawn(rng)), edges_of(rng, label, share=0.0))
    assert found.judgement is not None
    assert found.judgement.outcome == "no better"
    assert ", no better than trees on the columns" in verdict(found)
    (hint,) = [hint for title, hint in grave(found).items() if title.startswith("The model is no better than trees")]
    assert "Trees are faster to train and to explain" in hint.text
    assert "The model has not learned the train split" not in grave(found)


def test_links_that_follow_popularity_alone_are_told_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    share = 1 / np.arange(1, 301) ** 0.9
    src, dst = rng.integers(0, 300, 2500), 300 + rng.choice(300, 2500, p=share / share.sum())
    ends = np.unique(np.stack([src, dst], axis=1), axis=0)
    nodes = pa.table({"id": np.arange(600), "x": nodes_of(rng.normal(0, 1, (600, 4)), src[:600], src[:600])["x"]})
    found = inputs_of(
        tmp_path,
        nodes,
        pa.table({"src": ends[:, 0], "dst": ends[:, 1]}),
        task={"kind": "link", "split": {"kind": "random"}, "negatives": {"evaluation": 100}},
        train={"epochs": 8, "metric": "mrr"},
    )
    assert found.judgement is not None
    assert found.judgement.outcome != "better"
    assert f", {found.judgement.outcome} than popularity" in verdict(found)
    assert any("among 100 sampled candidates" in caution for caution in found.cautions)
    assert "the same for everyone" in grave(found)[f"The model is {found.judgement.against}"].text


@pytest.mark.parametrize("classes", [2, 3])
def test_a_column_that_is_the_label_is_asked_for(tmp_path: Path, classes: int) -> None:
    rng = np.random.default_rng(6)
    label = rng.integers(0, classes, NODES)
    x = rng.normal(0, 1, (NODES, 4))
    # of three classes it tells one alone, so no score is near 1
    x[:, 3] = 4 * (label == 1)
    found = inputs_of(tmp_path, nodes_of(x, label, drawn(rng)), edges_of(rng, label, share=0.0), train={"epochs": 60})
    hint = grave(found)["Too good to be true?"]
    assert ("The features alone predict" if classes == 2 else "predicts 1 without a mistake") in hint.text
    assert "repeats the label" in hint.text


@pytest.mark.parametrize("fault", ["few", "one class"])
def test_a_test_split_that_says_little_is_said_beside_its_score(tmp_path: Path, fault: str) -> None:
    rng = np.random.default_rng(7)
    label = rng.integers(0, 2, NODES)
    x = rng.normal(0, 1, (NODES, 4))
    x[:, 0] += 1.5 * label
    split = drawn(rng)
    if fault == "few":
        split[np.flatnonzero(split == "test")[20:]] = "train"
    else:
        split[(split == "test") & (label == 1)] = "train"
    found = inputs_of(
        tmp_path,
        nodes_of(x, label, split),
        edges_of(rng, label, share=0.3),
        train={"metric": "roc_auc" if fault == "one class" else "accuracy"},
    )
    words = {
        "few": "The test split has 20 targets, too few",
        "one class": "All targets of the test split have one class",
    }
    assert any(words[fault] in caution for caution in found.cautions), found.cautions
    if fault == "few":
        assert found.judgement is not None
        assert found.judgement.outcome == "no better"
        assert "Test falls behind valid" not in grave(found)
    else:
        assert found.headline_key == "valid.roc_auc"
