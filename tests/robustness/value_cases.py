"""Numbers: what float32 cannot hold is refused with its place; everything else arrives as given."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tests.command_line import Shown
from tests.robustness.case import Case, accepted, either, refused
from tests.robustness.inputs import (
    Inputs,
    Spoil,
    as_type,
    at,
    both,
    command,
    edge,
    expect,
    fixed,
    formats,
    key,
    node,
    typed,
    without,
)
from tests.robustness.stored import differences, predictions_of, store_of

BAD = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "1e39": 1e39,
    "-1e39": -1e39,
    "1e308": 1e308,
    "null": None,
}
NOT_FINITE = "null, NaN, infinite"
EDGE_OF_RANGE = {"the largest float32": 3.4028234e38, "a denormal": 1e-40, "minus zero": -0.0, "1e-300": 1e-300}
SCALARS = ("parquet", "arrow", "csv")
NUMBERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _bad_values()
    yield from _good_values()
    yield from _other_numbers()
    yield from _precision()
    yield from _normalised()


def _bad_values() -> Iterator[Case]:
    for name, value in BAD.items():
        for form in SCALARS:
            nodes, edges = f"nodes.{form}", f"edges.{form}"
            scalar = both(key("graph.features", ["age"]), formats(form))
            is_missing = value is None or value != value  # noqa: PLR0124 - NaN
            refusing = {"kind": "numerical", "missing": "refuse"}
            asked = key("graph.columns", {"age": refusing, "amount": refusing}) if is_missing else both()
            reason = NOT_FINITE if is_missing else "infinite"
            yield refused(
                f"{name} as a feature, {form}",
                both(scalar, asked, at(value, "age")),
                nodes,
                "'age'",
                reason,
                "row 5",
            )
            yield refused(
                f"{name} as a weight, {form}",
                both(formats(form), at(value, "weight", table="edges")),
                edges,
                "'weight'",
                "negative" if value is not None and value < 0 else NOT_FINITE,
                "row 5",
            )
            yield refused(
                f"{name} as an edge attribute, {form}",
                both(scalar, asked, at(value, "amount", table="edges")),
                edges,
                "'amount'",
                reason,
                "row 5",
            )
            if value is not None and value == value:  # noqa: PLR0124 - a target that is null or NaN is no target
                yield refused(
                    f"{name} as a target of regression, {form}",
                    both(regression, formats(form), at(value, "label")),
                    nodes,
                    "label",
                )
        yield refused(
            f"{name} in a list feature", _in_list(value), "nodes.parquet", "'x'", NOT_FINITE, "row group 0", "row 5"
        )
        yield refused(
            f"{name} on a node without label", both(_in_list(value, row=7), _unlabelled(7)), "nodes.parquet", "x"
        )
        if value is not None:
            yield refused(f"{name} in the values of a sparse feature", _in_sparse(value), "nodes.parquet", "x_value")
    yield refused(
        "negative weight", at(-1.0, "weight", table="edges"), "edges.parquet", "'weight'", "negative", "row 5"
    )
    yield refused("weights of text", edge(weight=["a"] * 180), "edges.parquet", "'weight'", "numbers")
    yield refused(
        "no column of an edge attribute",
        without("edges", "amount"),
        "edges.parquet",
        "'amount'",
        "graph.edge_features",
    )


def regression(inputs: Inputs) -> None:
    """Make the labels numbers to be predicted."""
    inputs.nodes["label"] = [number / 7 for number in range(60)]
    inputs.config["train"]["metric"] = "loss"


def _in_list(value: Any, *, row: int = 5) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        rows = [[0.1, 0.2, 0.3] for _ in range(60)]
        rows[row][1] = value
        inputs.nodes["x"] = pa.array(rows, pa.list_(pa.float64()))

    return spoil


def _unlabelled(row: int) -> Spoil:
    return both(at(None, "label", row=row), at(None, "split", row=row))


def _in_sparse(value: float) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        del inputs.nodes["x"]
        inputs.nodes["x_index"] = pa.array([[0, 2]] * 60, pa.list_(pa.int32()))
        inputs.nodes["x_value"] = pa.array([[1.0, value if n == 5 else 2.0] for n in range(60)], pa.list_(pa.float64()))

    return spoil


def _good_values() -> Iterator[Case]:
    for name, value in EDGE_OF_RANGE.items():
        yield accepted(f"{name} as a feature", both(key("graph.features", ["x", "age"]), at(value, "age")))
        yield accepted(f"{name} as an edge attribute", at(value, "amount", table="edges"))
    yield accepted("weights of zero", both(at(0.0, "weight", table="edges"), at(-0.0, "weight", table="edges", row=6)))
    yield accepted("every weight zero", lambda i: i.edges.update(weight=[0.0] * 180))
    for kind in NUMBERS:
        yield accepted(f"a feature of {kind}", both(key("graph.features", ["x", "n"]), _counted(kind)))
        yield accepted(f"weights of {kind}", both(_whole_weights, typed("weight", kind, table="edges")))
    for kind in (pa.float16(), pa.float32()):
        yield accepted(f"a feature of {kind}", both(key("graph.features", ["n"]), _counted(kind)))
        yield accepted(f"weights of {kind}", both(_whole_weights, typed("weight", kind, table="edges")))
    for kind in (pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.int16()), pa.list_(pa.float16())):
        yield accepted(f"a feature of {kind}", _lists(kind))
    yield either(
        "a feature of dictionary values",
        both(key("graph.features", ["n"]), _counted(pa.dictionary(pa.int8(), pa.int64()))),
        "'n'",
    )
    yield refused(
        "a feature of text",
        both(key("graph.features", ["n"]), node(n=[str(n) for n in range(60)])),
        "nodes.parquet",
        "'n'",
        "numbers",
    )
    times = pa.array([[number] for number in range(60)], pa.list_(pa.date32()))
    yield refused("a feature of lists of dates", node(x=times), "nodes.parquet", "'x'")
    for name, row in {"shorter": [0.1], "longer": [0.1] * 4, "empty": [], "null": None}.items():
        yield refused(
            f"one feature list is {name}", _one_list(row), "nodes.parquet", "'x'", "null or not 3 long", "row 5"
        )
    first = [[], *[[0.1, 0.2, 0.3]] * 59]
    yield refused("the first feature list is empty", node(x=pa.array(first)), "nodes.parquet", "'x'", "3 long", "row 0")
    for kind in (pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 0)):
        for table, column in (("nodes", "x"), ("edges", "amount")):
            empty = _empty_lists(table, column, kind)
            yield refused(f"every {column} is an empty {kind}", empty, table, f"'{column}'", "empty in every row")
    yield refused("the first feature list is null and the rest ragged", _ragged_from_null, "nodes.parquet", "'x'")
    yield refused("nested lists", node(x=pa.array([[[0.1]]] * 60)), "nodes.parquet", "'x'")


def _decimals(count: int, kind: pa.DataType) -> pa.Array:
    return pa.array([Decimal(25 * number).scaleb(-2) for number in range(count)], kind)


def _other_numbers() -> Iterator[Case]:
    for kind in (pa.decimal128(7, 2), pa.decimal256(50, 10)):
        yield accepted(f"a feature of {kind}", both(key("graph.features", ["n"]), node(n=_decimals(60, kind))))
        yield accepted(f"an edge attribute of {kind}", edge(amount=_decimals(180, kind)))
        yield accepted(f"weights of {kind}", edge(weight=_decimals(180, kind)))
    yield accepted("a feature of booleans", both(key("graph.features", ["n"]), node(n=[n % 2 == 0 for n in range(60)])))
    yield accepted("weights of booleans", edge(weight=[n % 2 == 0 for n in range(180)]))
    yield refused(
        "a null among booleans",
        both(
            key("graph.features", ["n"]),
            key("graph.columns", {"n": {"kind": "numerical", "missing": "refuse"}}),
            node(n=[None if n == 5 else n % 2 == 0 for n in range(60)]),
        ),
        "nodes.parquet",
        "'n'",
        NOT_FINITE,
        "row 5",
    )
    days = np.arange(60) * 86_400.0
    for name, column in {"days": pa.array(range(60), pa.date32()), "seconds": pa.array(days.astype("M8[s]"))}.items():
        spoil = both(key("graph.features", ["n"]), node(n=column), expect(x=days[:, None]))
        yield accepted(f"a feature of {name} since 1970", spoil)
        yield refused(f"weights of {name} since 1970", edge(weight=column.take([0] * 180)), "'weight'", "numbers")


def _counted(kind: pa.DataType) -> Spoil:
    return node(n=as_type(range(60), kind))


def _whole_weights(inputs: Inputs) -> None:
    inputs.edges["weight"] = [1 + number % 5 for number in range(180)]


def _lists(kind: pa.DataType) -> Spoil:
    return node(x=pa.array([[n, 1, 2] for n in range(60)], pa.list_(pa.int64())).cast(kind))


def _one_list(row: list[float] | None) -> Spoil:
    return node(x=pa.array([row if n == 5 else [0.1, 0.2, 0.3] for n in range(60)]))


def _empty_lists(table: str, column: str, kind: pa.DataType) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        held = getattr(inputs, table)
        held[column] = pa.array([[]] * len(held[column]), kind)

    return spoil


def _ragged_from_null(inputs: Inputs) -> None:
    inputs.nodes["x"] = pa.array([None, [0.1], *[[0.1, 0.2]] * 58])


def _precision() -> Iterator[Case]:
    large = [2**24 + 1 + 2 * n for n in range(60)]
    for form in SCALARS:
        spoil = both(node(age=large), key("graph.features", ["age"]), formats(form))
        yield _rounded(f"integers above 2^24 as a feature, {form}", spoil, "'age'")
    pairs = pa.array([[n, 1] for n in large], pa.list_(pa.int64()))
    yield _rounded("integers above 2^24 in a list", node(x=pairs), "'x'")
    yield _rounded("integers above 2^24 as edge attribute", edge(amount=[2**24 + 1] * 180), "'amount'")
    yield _rounded("integers above 2^24 as weight", edge(weight=[2**24 + 1] * 180), "'weight'")
    yield _rounded("unsigned integers of 64 bits", edge(weight=pa.array([2**64 - 1] * 180, pa.uint64())), "'weight'")
    cents = pa.array([Decimal(123_456_789_01)] * 180, pa.decimal128(38, 2))
    yield _rounded("decimals of many digits", edge(amount=cents), "'amount'")


def _rounded(name: str, spoil: Spoil, column: str) -> Case:
    """A column that float32 rounds: it arrives as the nearest, and a word says so."""

    def check(inputs: Inputs, shown: Shown) -> list[str]:
        said = [line for line in shown.err.splitlines() if "rounded to 24 bits" in line and column in line]
        return differences(inputs) + ([] if len(said) == 1 else [f"said {len(said)} times: {shown.err[-200:]}"])

    return accepted(name, spoil, check=check)


def _normalised() -> Iterator[Case]:
    timestamps = [1_700_000_000.0 + n for n in range(60)]
    big = [3e37 * (1 + n % 5) for n in range(60)]
    for name, values in {"timestamps": timestamps, "large numbers": big, "a constant": [7.25] * 60}.items():
        for form in ("parquet", "csv"):
            yield accepted(
                f"normalize: standard of {name}, {form}",
                both(
                    node(age=values), key("graph.features", ["age"]), key("graph.normalize", "standard"), formats(form)
                ),
                check=_standardised,
            )
    yield accepted(
        "normalize: row where the sum overflows float32",
        both(
            node(x=fixed(np.full((60, 3), 3e38, np.float32))),
            key("graph.normalize", "row"),
            expect(x=np.full((60, 3), np.float32(1 / 3), np.float64)),
        ),
    )
    yield accepted(
        "large features give finite predictions or are refused later",
        both(key("graph.features", ["age"]), command("run"), node(age=[float(n) for n in range(60)])),
        check=_finite_predictions,
    )


def _standardised(inputs: Inputs, shown: Shown) -> list[str]:
    nodes, _ = store_of(inputs.workspace)
    by_id = dict(zip(nodes["id"].to_pylist(), nodes["x"].to_pylist(), strict=True))
    have = np.array([by_id[each][0] for each in inputs.nodes["id"]], np.float64)
    values = np.array(inputs.nodes["age"], np.float64)
    deviation = values.std() or 1.0
    want = (values - values.mean()) / deviation
    return [] if np.allclose(have, want, atol=1e-4) else [f"standardised {want[:3]} is {have[:3]}"]


def _finite_predictions(inputs: Inputs, shown: Shown) -> list[str]:
    scores = np.array(predictions_of(inputs.workspace)["probabilities"].to_pylist())
    return differences(inputs) + ([] if np.isfinite(scores).all() else ["predictions are not finite"])
