"""Labels, splits and sparse rows: what means something arrives, what cannot is refused at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tests.command_line import Shown
from tests.robustness.case import Case, accepted, either, refused
from tests.robustness.inputs import Inputs, Spoil, at, both, command, key, node, typed, without
from tests.robustness.stored import differences, manifest_of, store_of
from tests.robustness.value_cases import regression

NODES = "nodes.parquet"


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _labels()
    yield from _splits()
    yield from _sparse()


def _labels() -> Iterator[Case]:
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        yield accepted(f"labels of {kind}", typed("label", kind))
    for value in (10**9, 10**12, 2**62):
        yield refused(
            f"label {value}",
            both(at(value, "label"), command("run")),
            NODES,
            "label",
            "row 5|num_classes|classes",
            alone=True,
        )
    yield refused("label below -1", at(-2, "label"), NODES, "'label'", "out of range", "row 5")
    yield refused("label above num_classes", key("graph.num_classes", 1), NODES, "'label'", "out of range")
    yield refused("label above 2^63", node(label=pa.array([2**63 + 1] * 60, pa.uint64())), NODES, "label")
    yield accepted("labels of text", both(node(label=["cat", "dog"] * 30), _expect_labels([0, 1] * 30)))
    yield refused("labels of decimals as text", node(label=[f"{n},5" for n in range(60)]), NODES, "'label'", "'0,5'")
    yield refused("labels of dates", node(label=pa.array(range(60), pa.date32())), NODES, "'label'", "integers from 0")
    yield refused("labels that do not exist", key("graph.label", "risk"), NODES, "'risk'", "graph.label")
    yield either("labels of booleans", node(label=[n % 2 == 0 for n in range(60)]), NODES, "label")
    yield either("classes as floats", node(label=[float(n % 3) for n in range(60)]), NODES, "label")
    whole = both(node(label=[float(n // 3 % 3) for n in range(60)]), command("run"))
    yield accepted("classes as floats in a whole run", whole, check=_classes_not_numbers)
    yield refused(
        "accuracy of a regression", both(regression, key("train.metric", "accuracy"), command("run")), "metric"
    )
    yield refused(
        "publishing by an error of classes", both(key("publish.metric", "rmse"), command("run")), "publish.metric"
    )
    yield refused(
        "focal loss of numbers", both(regression, key("train.loss", {"kind": "focal"}), command("run")), "loss"
    )
    numbers = both(regression, key("train.metric", "mae"), key("train.class_weight", "balanced"))
    yield refused("weights of classes of numbers", both(numbers, command("run")), "train.class_weight", "none")
    yield refused("huber loss of classes", both(key("train.loss", {"kind": "huber"}), command("run")), "train.loss")
    yield refused("error of classes", both(key("train.metric", "mae"), command("run")), "metric", "accuracy")
    yield refused(
        "every label null",
        both(node(label=pa.nulls(60, pa.int64()), split=pa.nulls(60, pa.string())), command("run")),
        "label|split",
    )
    yield refused("no label column", both(without("nodes", "label"), command("run")), "label|split")
    yield accepted("targets of regression", regression)
    yield accepted("one label null, its split too", both(at(None, "label"), at(None, "split")))
    yield accepted("one label -1, its split null", both(at(-1, "label"), at(None, "split")))
    yield accepted("one target NaN, its split null", both(regression, at(float("nan"), "label"), at(None, "split")))
    for kind in (pa.int8(), pa.int64(), pa.float32(), pa.bool_()):
        yield accepted(f"several labels as lists of {kind}", _multi([1, 0], kind))
    for name, row in {
        "of 2": [0, 2],
        "of -1": [0, -1],
        "with a null": [0, None],
        "too long": [0, 1, 1],
        "empty": [],
    }.items():
        yield refused(
            f"several labels, one list {name}",
            _multi(row, pa.int64()),
            NODES,
            "'label'",
            "0 and 1" if len(row) == 2 else "2 long",
        )
    none = node(label=pa.array([[]] * 60, pa.list_(pa.int64())))
    yield refused("several labels, every list empty", none, NODES, "'label'", "empty in every row")
    yield refused("several labels of text", node(label=pa.array([["a", "b"]] * 60)), NODES, "'label'")


def _multi(row: list[Any], kind: pa.DataType) -> Spoil:
    rows = [row if n == 5 else [n % 2, 1] for n in range(60)]
    return both(node(label=pa.array(rows, pa.list_(pa.int64())).cast(pa.list_(kind))), key("train.metric", "micro_f1"))


def _expect_labels(numbers: list[int]) -> Spoil:
    return lambda inputs: inputs.expected.update(label=numbers)


def _classes_not_numbers(inputs: Inputs, shown: Shown) -> list[str]:
    kind = manifest_of(inputs.workspace, "ingest")["facts"]["label_kind"]
    return [] if kind == "single" else [f"three classes became {kind}"]


def _splits() -> Iterator[Case]:
    for text in ("dev", "TRAIN", "train ", "validation", "0", "", "nan", "trainn"):
        yield (
            either(f"split {text!r}", at(text, "split"), NODES, "'split'", check=_null_or_same)
            if not text
            else refused(f"split {text!r}", at(text, "split"), NODES, "'split'", "train, valid, test", text)
        )
    for name, column in {
        "integers": list(range(60)),
        "booleans": [True] * 60,
        "lists": pa.array([["train"]] * 60),
        "floats": [0.5] * 60,
    }.items():
        yield refused(f"splits of {name}", node(split=column), NODES, "'split'", "train, valid, test")
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        yield accepted(f"splits of {kind}", typed("split", kind))
    for missing in ("train", "valid"):
        kept = [each for each in ("train", "valid", "test") if each != missing]
        yield refused(f"no {missing} rows", both(node(split=kept * 30), command("run")), "'split'", f"'{missing}'")
    yield refused("every split null", both(node(split=pa.nulls(60, pa.string())), command("run")), "split")
    missing_split = both(without("nodes", "split"), key("graph.split", "part"), command("run"))
    yield refused("no split column", missing_split, "no split column 'part'", "kind: random")
    yield refused("split without label", at(None, "label"), NODES, "'split'", "no label", "row 5")
    one = node(split=["train", "valid", "test", *[None] * 57])
    yield refused(
        "one training target",
        both(one, command("run")),
        "every train row has class",
        leaves=("runs/artifacts/ingest", "runs/artifacts/select"),
    )


def _null_or_same(inputs: Inputs, shown: Shown) -> list[str]:
    inputs.expected["split"] = [held or None for held in inputs.nodes["split"]]
    return differences(inputs)


def sparse(index: Any, value: Any = None, *, kind: Any = None, values: Any = None, width: int | None = 7) -> Spoil:
    """Replace the features by sparse ones; one row holds these."""

    def spoil(inputs: Inputs) -> None:
        inputs.nodes.pop("x", None)
        rows = [index if row == 5 else [0, 2] for row in range(60)]
        inputs.nodes["x_index"] = pa.array(rows, kind or pa.list_(pa.int32()))
        if value is not None:
            held = [value if row == 5 else [1.0, 2.0] for row in range(60)]
            inputs.nodes["x_value"] = pa.array(held, values or pa.list_(pa.float32()))
        inputs.config["graph"]["feature_dim"] = width

    return spoil


def _sparse() -> Iterator[Case]:
    for kind in (pa.int8(), pa.int16(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        yield accepted(
            f"sparse indices of {kind}", sparse([1, 6], [1.5, 2.5], kind=pa.list_(kind)), check=_sparse_arrives
        )
    yield accepted(
        "sparse indices in large lists",
        sparse([1, 6], [1.5, 2.5], kind=pa.large_list(pa.int32())),
        check=_sparse_arrives,
    )
    yield accepted("sparse indices without values", sparse([1, 6]), check=_sparse_arrives)
    yield accepted("an empty sparse row", sparse([], []), check=_sparse_arrives)
    yield either(
        "sparse indices in fixed lists",
        sparse([1, 6], [1.5, 2.5], kind=pa.list_(pa.int32(), 2)),
        "x_index",
        check=_sparse_arrives,
    )
    yield either(
        "whole sparse indices as floats",
        sparse([1.0, 6.0], [1.5, 2.5], kind=pa.list_(pa.float64())),
        "x_index",
        check=_sparse_arrives,
    )
    yield either("a sparse index twice in a row", sparse([1, 1], [1.5, 2.5]), "x_index", check=_sparse_arrives)
    fractions = pa.list_(pa.float64())
    yield refused("a sparse index is half", sparse([0.5, 2.0], [1.0, 2.0], kind=fractions), NODES, "x_index")
    yield refused("a sparse index is NaN", sparse([float("nan"), 2.0], [1.0, 2.0], kind=fractions), NODES, "x_index")
    yield refused("a sparse index is text", _text_indices, NODES, "x_index")
    outside: dict[str, tuple[list[Any], Any]] = {
        "negative": ([-1, 2], None),
        "as wide as feature_dim": ([0, 7], None),
        "beyond int32": ([0, 2**31], pa.list_(pa.int64())),
        "beyond int64": ([0, 2**63], pa.list_(pa.uint64())),
        "null": ([None, 2], None),
    }
    for name, (row, kind) in outside.items():
        spoil = sparse(row, [1.0, 2.0], kind=kind)
        yield refused(f"a sparse index is {name}", spoil, NODES, "x_index", "0..6", "row 5", "feature_dim")
    yield refused(
        "a sparse index of 2^40 and no feature_dim",
        sparse([0, 2**40], kind=pa.list_(pa.int64()), width=None),
        NODES,
        "x_index|feature_dim",
    )
    yield refused(
        "sparse indices that are no list",
        lambda i: [i.nodes.pop("x"), i.nodes.update(x_index=[1] * 60)],
        NODES,
        "x_index",
    )
    yield refused("a sparse row is null", sparse(None, [1.0, 2.0]), NODES, "x_index", "row 5")
    yield refused("sparse values are null", _null_values, NODES, "x_value", "row 5")
    yield refused("more sparse values than indices", sparse([0], [1.0, 2.0]), NODES, "x_value", "row 5")
    standardised = both(sparse([0, 2]), key("graph.normalize", "standard"))
    yield refused("sparse features standardised", standardised, NODES, "normalize", "sparse")
    yield refused("sparse values of text", _text_values, NODES, "x_value")
    for text in ("abc", "-1", "0", "1e3", "", "7.5", "[7]", "9" * 30):
        yield refused(
            f"feature_dim {text[:5]!r} in the metadata",
            both(sparse([1, 6], width=None), _metadata(text)),
            NODES,
            "feature_dim",
        )
    yield accepted(
        "feature_dim '7' in the metadata", both(sparse([1, 6], width=None), _metadata("7")), check=_sparse_arrives
    )


def _metadata(text: str) -> Spoil:
    return lambda inputs: inputs.metadata.update(feature_dim=text)


def _text_indices(inputs: Inputs) -> None:
    del inputs.nodes["x"]
    inputs.nodes["x_index"] = pa.array([["0", "2"]] * 60)


def _text_values(inputs: Inputs) -> None:
    sparse([0, 2])(inputs)
    inputs.nodes["x_value"] = pa.array([["a", "b"]] * 60)


def _null_values(inputs: Inputs) -> None:
    sparse([0, 2], [1.0, 2.0])(inputs)
    inputs.nodes["x_value"] = pa.array([None if n == 5 else [1.0, 2.0] for n in range(60)])


def _sparse_arrives(inputs: Inputs, shown: Shown) -> list[str]:
    nodes, _ = store_of(inputs.workspace)
    number = {held: row for row, held in enumerate(nodes["id"].to_pylist())}
    found = []
    for row, each in enumerate(inputs.nodes["id"]):
        for column in ("x_index", "x_value"):
            if column not in inputs.nodes:
                continue
            want, have = inputs.nodes[column][row].as_py(), nodes[column][number[each]].as_py()
            if [float(value) for value in want] != [float(value) for value in have]:
                found.append(f"{column} {want} became {have}")
    return found[:3]
