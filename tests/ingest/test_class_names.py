"""Labels that are names of classes: listed in the config, or found in their column."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import LabelEncoder

from gnnflow.ingest.classes import numbered
from tests.budget import examples
from tests.command_line import run_cli
from tests.robustness.inputs import FORMATS, Inputs, valid

NAMES = ["ok", "fraud", "not: sure"]


def inputs_of(folder: Path, labels: list[Any], *, classes: Any = NAMES, form: str = "parquet") -> Inputs:
    inputs = valid(folder)
    inputs.nodes["label"], inputs.nodes_format = labels, form
    del inputs.nodes["x"]  # a list, which text cannot hold
    inputs.config["graph"]["features"] = ["age"]
    if classes is not None:
        inputs.config["graph"]["num_classes" if isinstance(classes, int) else "classes"] = classes
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


def named(inputs: Inputs) -> tuple[dict[str, Any], list[Any], str]:
    """Return the facts, the name of each row's class (its number where classes have none), and the line about them."""
    shown = run_cli(inputs.arguments())
    assert shown.code == 0, shown.err
    facts, found = stored(inputs)
    names = dict(enumerate(facts["class_names"]))
    numbers = [found[node] for node in inputs.nodes["id"]]
    (line,) = [line for line in shown.err.splitlines() if "column 'label': " in line]
    return facts, [None if number < 0 else names.get(number, number) for number in numbers], line


@pytest.mark.table(3)
@pytest.mark.parametrize("form", FORMATS)
def test_names_that_nobody_listed_are_found(tmp_path: Path, form: str) -> None:
    labels = [("dog", "cat", "Ant")[number * number % 3 if number % 7 else 2] for number in range(60)]
    facts, held, line = named(inputs_of(tmp_path, labels, classes=None, form=form))
    assert (facts["class_names"], facts["num_classes"], held) == (["Ant", "cat", "dog"], 3, labels)
    assert "3 classes in sorted order, with their rows: Ant (9), cat" in line


@pytest.mark.parametrize(
    ("labels", "graph", "names", "said"),
    [
        (["yes"] * 20 + ["no"] * 40, {}, ["no", "yes"], "class 1 (positive) is the rarer one, yes (20)"),
        (["yes"] * 40 + ["no"] * 20, {}, ["yes", "no"], "class 1 (positive) is the rarer one, no (20)"),
        (["yes"] * 30 + ["no"] * 30, {}, ["no", "yes"], "yes (30), class 0 is no (30)"),
        (["2"] * 40 + ["1"] * 10 + ["10"] * 10, {}, ["1", "2", "10"], "1 (10), 2 (40), 10 (10)"),
        (["2"] * 40 + ["1"] * 10 + ["?"] * 10, {"unlabelled": ["?"]}, ["2", "1"], "10 rows have no label"),
        (["b"] * 40 + ["a"] * 10 + [""] * 5 + [None] * 5, {}, ["b", "a"], "10 rows have no label"),
        (pa.array(["b", "a", None] * 20).dictionary_encode(), {}, ["a", "b"], "20 rows have no label"),
        ([-1] * 40 + [1] * 20, {"classes": "distinct"}, ["-1", "1"], "the rarer one, 1 (20)"),
        ([10**12, 7, 8] * 20, {"classes": "distinct"}, ["7", "8", str(10**12)], "in sorted order"),
        ([7, 8, -9] * 20, {"classes": "distinct", "unlabelled": [-9]}, ["7", "8"], "20 rows have no label"),
        ([2.0, 1.0, None] * 20, {"classes": "distinct"}, ["1", "2"], "class 0 is 1 (20)"),
        ([2.0, 1.0, None] * 20, {}, ["1", "2"], "class 0 is 1 (20)"),
        ([0.0, 1.0, None] * 20, {}, [], "0 (20), 1 (20); 20 rows have no label"),
        ([0.5, 1.0, 7.0] * 20, {"classes": "distinct"}, ["0.5", "1", "7"], "in sorted order"),
        ([True, False, False] * 20, {"classes": "distinct"}, ["false", "true"], "class 0 is false (40)"),
        # these are class numbers already, and what they were named before they keep
        ([0.0, 1.0, None] * 20, {"classes": "distinct"}, [], "0 (20), 1 (20); 20 rows have no label"),
        ([0, 1, 1] * 20, {"classes": "distinct"}, [], "0 (20), 1 (40)"),
    ],
)
def test_labels_are_classes_as_they_are(
    tmp_path: Path, labels: Any, graph: dict[str, Any], names: list[str], said: str
) -> None:
    inputs = inputs_of(tmp_path, labels, classes=None)
    del inputs.nodes["split"]
    inputs.config["graph"] |= graph
    inputs.write()
    facts, held, line = named(inputs)
    assert facts["class_names"] == names
    assert said in line
    given = labels.to_pylist() if isinstance(labels, pa.Array) else labels
    none = [str(value) for value in graph.get("unlabelled", ())] + ["", "None"]
    wanted = [None if str(value) in none else value for value in given]
    texts = [None if value is None else f"{value:g}" if isinstance(value, float) else str(value) for value in wanted]
    assert [None if name is None else str(name) for name in held] == [
        text and (text.lower() if text in {"True", "False"} else text) for text in texts
    ]


def test_labels_of_edges_are_classes_as_they_are(tmp_path: Path) -> None:
    inputs = valid(tmp_path)
    rows = len(inputs.edges["src"])
    inputs.edges["label"] = [("fine", "fraud", "unknown")[n % 5 // 2] for n in range(rows)]
    inputs.config["task"] = {"kind": "edge", "split": {"kind": "random", "valid": 0.2}}
    inputs.config["graph"]["unlabelled"] = ["unknown"]
    inputs.write()
    shown = run_cli(inputs.arguments())
    assert shown.code == 0, shown.err
    (manifest,) = inputs.workspace.glob("artifacts/ingest/*/manifest.json")
    facts = json.loads(manifest.read_text())["facts"]
    assert (facts["class_names"], facts["labelled"]) == (["fine", "fraud"], rows * 4 // 5)


def test_values_that_mean_no_label_are_none_where_labels_are_numbers(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, [9.5, -999.0, 0.25] * 20, classes=None)
    del inputs.nodes["split"]
    inputs.config["graph"]["unlabelled"] = [-999, "unknown"]
    inputs.config["train"] = {"metric": "mae"}
    inputs.write()
    facts, _ = stored(inputs)
    assert (facts["label_kind"], facts["labelled"]) == ("regression", 40)


def test_more_labels_than_a_model_should_tell_apart_are_refused(tmp_path: Path) -> None:
    rows = 1001
    nodes = {"id": list(range(rows)), "age": [1.0] * rows, "label": [f"name {n}" for n in range(rows)]}
    inputs = inputs_of(tmp_path, ["a"] * 60, classes=None)
    inputs.nodes = nodes
    inputs.write()
    assert "column 'label' holds more than 1,000 different labels" in run_cli(inputs.arguments()).message


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=3),
        min_size=1,
        max_size=40,
    )
)
def test_numbers_are_those_of_scikit_learn(labels: list[str]) -> None:
    assume(len(set(labels)) > 2)
    assume(not all(re.fullmatch("-?[0-9]+", label) for label in labels))
    encoder = LabelEncoder().fit(labels)
    found = numbered(Counter(labels), column="label", unlabelled=0, is_text=True)
    assert list(found.labels) == encoder.classes_.tolist()


@pytest.mark.parametrize(
    ("labels", "classes", "words"),
    [
        (["ok"] * 59 + ["okay"], NAMES, ["column 'label': label is none of ok, fraud, not: sure", "row 59", "classes"]),
        ([f"{n}" for n in range(60)], 59, ["holds 60 different labels, and graph.num_classes is 59"]),
        ([["a", "b"]] * 60, None, ["not a label", "Write classes as text or as integers from 0"]),
        ([[0, 1]] * 60, "distinct", ["holds lists, and graph.classes: distinct is of labels that are single values"]),
        (["x" * 201, "y"] * 30, None, ["holds text of more than 200 letters", "graph.label"]),
        ([-5, 1] * 30, None, ["label out of range", "set graph.classes: distinct"]),
        ([float(n % 21) for n in range(60)], None, ["holds floats, numbers to predict"]),
        ([0.5, 1.0] * 30, None, ["holds floats, numbers to predict", "set graph.classes: distinct"]),
        ([0, 3] * 30, NAMES, ["label out of range: allowed is -1 (unlabelled) to 2"]),
        ([[0, 1]] * 60, NAMES, ["holds lists of 2, and graph.classes names 3"]),
        (["ok"] * 60, ["ok", "ok"], ["graph.classes: 'ok' is there twice"]),
        (["ok"] * 60, ["ok"], ["graph.classes"]),
    ],
)
def test_what_is_no_class_is_refused(tmp_path: Path, labels: list[Any], classes: Any, words: list[str]) -> None:
    inputs = inputs_of(tmp_path, labels, classes=classes)
    inputs.config.setdefault("train", {})["metric"] = "accuracy"  # floats are numbers to predict by default
    inputs.write()
    shown = run_cli(inputs.arguments())
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
