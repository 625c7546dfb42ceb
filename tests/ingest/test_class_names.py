"""Labels that are text: names of classes, which the config lists in the order of their numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.command_line import run_cli
from tests.robustness.inputs import FORMATS, Inputs, valid

NAMES = ["ok", "fraud", "not: sure"]


def inputs_of(folder: Path, labels: list[Any], *, classes: Any = NAMES, form: str = "parquet") -> Inputs:
    inputs = valid(folder)
    inputs.nodes["label"], inputs.nodes_format = labels, form
    del inputs.nodes["x"]  # a list, which text cannot hold
    inputs.config["graph"]["features"] = ["age"]
    if classes is not None:
        inputs.config["graph"]["classes"] = classes
    inputs.write()
    return inputs


def stored(inputs: Inputs) -> tuple[dict[str, Any], dict[Any, int]]:
    """Return the facts of the graph store, and each node's class number by its id."""
    shown = run_cli(inputs.arguments())
    assert shown.code == 0, shown.err
    (manifest,) = inputs.workspace.glob("artifacts/ingest/*/manifest.json")
    tables = [pq.read_table(file, columns=["id", "label"]) for file in manifest.parent.glob("nodes-*.parquet")]
    rows = [row for table in tables for row in table.to_pylist()]
    return json.loads(manifest.read_text())["facts"], {row["id"]: row["label"] for row in rows}


@pytest.mark.table(3)
@pytest.mark.parametrize("form", FORMATS)
def test_names_become_numbers_in_the_order_of_the_config(tmp_path: Path, form: str) -> None:
    labels = [NAMES[number * number % 3] for number in range(60)]
    inputs = inputs_of(tmp_path, labels, form=form)
    facts, found = stored(inputs)
    assert found == {node: NAMES.index(name) for node, name in zip(inputs.nodes["id"], labels, strict=True)}
    assert (facts["num_classes"], facts["class_names"], facts["label_kind"]) == (3, NAMES, "single")


def test_a_class_that_no_row_has_is_one_all_the_same(tmp_path: Path) -> None:
    facts, found = stored(inputs_of(tmp_path, ["ok", "fraud"] * 30))
    assert (facts["num_classes"], set(found.values())) == (3, {0, 1})


def test_null_is_no_label(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, ["ok"] * 60)
    inputs.nodes["label"][7] = inputs.nodes["split"][7] = None
    inputs.write()
    facts, found = stored(inputs)
    assert (found[inputs.nodes["id"][7]], facts["labelled"]) == (-1, 59)


def test_numbers_may_have_names_too(tmp_path: Path) -> None:
    facts, found = stored(inputs_of(tmp_path, [number % 2 for number in range(60)]))
    assert (facts["num_classes"], facts["class_names"], set(found.values())) == (3, NAMES, {0, 1})


@pytest.mark.parametrize(
    ("labels", "classes", "words"),
    [
        (["ok"] * 59 + ["okay"], NAMES, ["column 'label': label is none of ok, fraud, not: sure", "row 59", "classes"]),
        (["ok"] * 60, None, ["is string, not a label", "List the names of classes in graph.classes"]),
        ([0, 3] * 30, NAMES, ["label out of range: allowed is -1 (unlabelled) to 2"]),
        ([[0, 1]] * 60, NAMES, ["holds lists of 2, and graph.classes names 3"]),
        (["ok"] * 60, ["ok", "ok"], ["graph.classes: 'ok' is there twice"]),
        (["ok"] * 60, ["ok"], ["graph.classes"]),
    ],
)
def test_what_is_no_class_is_refused(tmp_path: Path, labels: list[Any], classes: Any, words: list[str]) -> None:
    shown = run_cli(inputs_of(tmp_path, labels, classes=classes).arguments())
    assert shown.code == 2
    assert all(word in shown.message for word in words), shown.message


def test_a_count_that_is_another_is_refused(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, ["ok"] * 60)
    inputs.config["graph"]["num_classes"] = 2
    inputs.write()
    assert "graph.num_classes: 2, and graph.classes names 3" in run_cli(inputs.arguments()).message


def test_a_run_says_the_names(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, [NAMES[number % 2] for number in range(60)])
    inputs.config["train"] = {"epochs": 2}
    inputs.command = ["run"]
    inputs.write()
    shown = run_cli(inputs.arguments())
    assert shown.code == 0, shown.err
    (report,) = inputs.workspace.glob("runs/*/*/report.html")
    assert "fraud" in report.read_text()
