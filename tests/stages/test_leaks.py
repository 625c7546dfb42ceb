"""Columns that tell the label are found, and chance is none of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gnnflow.stages.leaks import find_leaks


def _found(column: Any, labels: Any) -> list[str]:
    return [each.how for each in find_leaks(pa.table({"x": pa.array(column), "y": pa.array(labels)}), "y", ["x"])]


@pytest.mark.parametrize("rows", [30, 200, 20_000])
@pytest.mark.parametrize("share", [0.02, 0.5])
def test_columns_by_chance_tell_nothing(rows, share):
    """Finds rules that fit few rows: as many values as rows, one bound, gaps in half of the rows."""
    draw = np.random.default_rng(7)
    for _ in range(40):
        labels = (draw.random(rows) < share).astype(int)
        numbers = draw.random(rows)
        columns = {
            "number": numbers,
            "few": draw.integers(0, 3, rows),
            "many": draw.integers(0, rows // 2, rows).astype(str),
            "own": np.arange(rows).astype(str),
            "gaps": pa.array(numbers, mask=draw.random(rows) < 0.5),
            "constant": np.ones(rows),
            "near": labels + draw.normal(0, 1, rows),  # a strong input, which is no leak
        }
        table = pa.table({"label": labels, **columns})
        assert not find_leaks(table, "label", [*columns])


@pytest.mark.parametrize("share", [0.01, 0.4])
def test_filled_columns_values_and_bounds_that_tell_the_label_are_found(share):
    draw = np.random.default_rng(3)
    labels = draw.random(20_000) < share
    names = np.where(labels, "Yes", "No")
    draw_of = draw.integers(0, 5, len(labels)).astype(str)
    assert _found(np.where(labels, draw_of, " "), names) == ["by being filled or not"]
    assert _found(np.char.add(np.where(labels, "out", "in"), draw_of), names) == ["by its values"]
    assert _found(np.where(labels, 3, 1 + (draw_of == "1")), names) == ["by its values"]
    assert _found(labels + draw.random(len(labels)), names) == ["by one bound of its numbers"]


def test_classes_of_several_names_are_told_by_a_column_of_their_numbers_and_few_rows_tell_nothing():
    classes = np.tile(["a", "b", "c"], 30)
    assert _found(np.tile([5, 1, 2], 30), classes) == ["by its values"]
    assert not _found(np.tile([5, 1, 2], 9), classes[:27])
    assert not _found(np.tile([5, 1, 2], 30), np.repeat("a", 90))


def test_a_column_that_tells_one_class_of_three_is_found():
    classes = np.tile(["a", "b", "c"], 40)
    columns = {"is_b": classes == "b", "chance": np.random.default_rng(0).random(120)}
    (leak,) = find_leaks(pa.table({"y": classes, **columns}), "y", [*columns])
    assert (leak.column, leak.only) == ("is_b", "b")
    assert "tells whether the class is 'b' in 100.0% of the rows" in leak.text
