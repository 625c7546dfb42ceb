"""The places of columns among encoded numbers: no run has lists beside numbers, encodings and degrees at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gnnflow.graph.made_features import DEGREE_FEATURES, ID_FEATURES
from gnnflow.stages.table_columns import MOST_APART, places_of_columns


def facts_of(*read: str, **encoded: int) -> Any:
    """Return the facts of a table whose encoded columns have these numbers of outputs."""
    states = [SimpleNamespace(state=SimpleNamespace(name=name, outputs=range(size))) for name, size in encoded.items()]
    return SimpleNamespace(columns_read={"nodes": read}, encodings={"nodes": states})


def test_a_list_has_what_the_other_columns_leave() -> None:
    facts = facts_of("city", "age", "x", *DEGREE_FEATURES, city=3, age=1)
    found = places_of_columns(facts, "nodes", 8, most_apart=MOST_APART)
    assert found == {
        "city": range(3),
        "age": range(3, 4),
        "x[0]": range(4, 5),
        "x[1]": range(5, 6),
        "log1p(in_degree)": range(6, 7),
        "log1p(out_degree)": range(7, 8),
    }
    long = places_of_columns(facts, "nodes", 6 + MOST_APART + 1, most_apart=MOST_APART)
    assert long is not None
    assert long["x"] == range(4, 4 + MOST_APART + 1)


@pytest.mark.parametrize(
    ("read", "width", "expected"),
    [
        (("a", "b"), 2, {"a": range(1), "b": range(1, 2)}),
        (("a", "b"), 5, None),  # two lists
        ((), 3, None),  # a reversed relation
        (ID_FEATURES, 200, {"id": range(200)}),
    ],
)
def test_places_that_are_open_are_not_guessed(read: tuple[str, ...], width: int, expected: object) -> None:
    assert places_of_columns(facts_of(*read), "nodes", width, most_apart=MOST_APART) == expected
