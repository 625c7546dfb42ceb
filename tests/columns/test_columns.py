"""Fitted columns equal scikit-learn's, and neither chunks nor their order change a state."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MultiLabelBinarizer,
    OneHotEncoder,
    QuantileTransformer,
    StandardScaler,
)

from gnnflow.columns import count_column, encode, merge_samples, merge_values, state_of
from gnnflow.columns.sums import as_fraction, exact_squares, exact_sum
from gnnflow.config.columns_section import (
    CategoricalColumn,
    ColumnSection,
    MulticategoricalColumn,
    NumericalColumn,
    TextColumn,
    TimestampColumn,
    expanded,
)
from gnnflow.graph.encodings import ColumnState

CITIES = ["Oslo", "Lima", "Rome", "Kyoto", "Quito", "Accra"]


def fitted(column: Any, section: ColumnSection, *, pieces: int = 3, tasks: int = 2) -> ColumnState:
    """Return the state of a column that is counted in pieces, whose values several tasks merge."""
    bounds = np.linspace(0, len(column), pieces + 1).astype(int)
    keys = np.arange(len(column)).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    counted = [count_column(column[low:high], section, number=0, keys=keys[low:high]) for low, high in pairwise(bounds)]
    values = pa.concat_tables([each.values for each in counted]).combine_chunks()
    home = np.array([sum(map(ord, value)) % tasks for value in values["value"].to_pylist()], int)
    kept = {0: getattr(section, "values", 0)}
    merged = [merge_values(values.filter(pa.array(home == task)), kept) for task in range(tasks)]
    quantiles = merge_samples(pa.concat_tables([each.samples for each in counted]).combine_chunks())
    return state_of(
        "c",
        section,
        [each.counts for each in counted],
        values=[each["0"] for each in merged if each],
        quantiles=quantiles.get("0", ()),
    )


NUMBERS = st.one_of(st.none(), st.floats(-1e6, 1e6), st.integers(-5, 5).map(float))


@pytest.mark.parametrize("scale", ["none", "standard", "log", "quantile"])
@settings(max_examples=25, deadline=None)
@given(held=st.lists(NUMBERS, min_size=2, max_size=40), later=st.lists(NUMBERS, min_size=1, max_size=10))
def test_numbers_equal_scikit_learn(scale: Any, held: list[Any], later: list[Any]) -> None:
    if sum(each is not None for each in held) == 0:
        return
    steps: dict[str, list[Any]] = {
        "none": [],
        "standard": [StandardScaler()],
        "log": [StandardScaler()],
        "quantile": [],
    }
    first: list[Any] = [FunctionTransformer(lambda x: np.sign(x) * np.log1p(np.abs(x)))] if scale == "log" else []
    known = sum(each is not None for each in held)
    if scale == "quantile":
        first = [QuantileTransformer(n_quantiles=known, output_distribution="normal")]
    fill: dict[str, Any] = {"strategy": "constant", "fill_value": 0.0} if scale == "quantile" else {}
    theirs = make_pipeline(*first, SimpleImputer(**fill), *steps[scale])
    before, after = (np.array(each, float)[:, None] for each in (held, later))
    theirs.fit(before)
    state = fitted(pa.array(held, pa.float64()), NumericalColumn(scale=scale))
    own = encode(pa.array(later, pa.float64()), state)
    np.testing.assert_allclose(own[:, 0], theirs.transform(after)[:, 0], rtol=1e-6, atol=1e-6)
    assert own.shape[1] == 1 + (None in held)
    if None in held:
        np.testing.assert_array_equal(own[:, 1], [each is None for each in later])


@settings(max_examples=25, deadline=None)
@given(
    held=st.lists(st.one_of(st.none(), st.sampled_from(CITIES)), min_size=1, max_size=60),
    later=st.lists(st.sampled_from([*CITIES, "Paris"]), min_size=1),
)
def test_categories_equal_scikit_learn(held: list[Any], later: list[str]) -> None:
    known = [each for each in held if each is not None]
    counts = sorted((known.count(city) for city in set(known)), reverse=True)
    if not known or (len(counts) > 2 and counts[1] == counts[2]):
        return  # scikit-learn breaks ties in another order
    state = fitted(pa.array(held, pa.string()), CategoricalColumn(values=2))
    most = None if len(counts) <= 2 else 3
    theirs = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=most, sparse_output=False)
    expected = theirs.fit(np.array(known)[:, None]).transform(np.array(later)[:, None])
    own = encode(pa.array(later), state)
    np.testing.assert_array_equal(own[:, : expected.shape[1]], expected)
    assert own.shape[1] == expected.shape[1] + (None in held)
    if None in held:
        assert encode(pa.nulls(1, pa.string()), state)[0].tolist() == [0.0] * expected.shape[1] + [1.0]


@pytest.mark.parametrize("as_text", [False, True])
def test_several_values_equal_scikit_learn(as_text: bool) -> None:
    rows = [["a", "b"], ["b"], [], ["c", "a", "a"]]
    column = pa.array(["|".join(row) or None for row in rows]) if as_text else pa.array(rows, pa.list_(pa.string()))
    section = MulticategoricalColumn(separator="|" if as_text else None)
    found = encode(column, fitted(column, section))
    np.testing.assert_array_equal(found[:, :3], MultiLabelBinarizer().fit_transform(rows))
    assert found.shape[1] == 3 + as_text  # an empty text is missing, an empty list is not


@given(st.lists(st.floats(-1e100, 1e100, allow_subnormal=False), max_size=30), st.randoms())
@settings(max_examples=50, deadline=None)
def test_sums_are_exact_in_any_order(held: list[float], rng: Any) -> None:
    from fractions import Fraction

    numbers = [each if abs(each) > 1e-100 else 0.0 for each in held]
    total = sum((Fraction(each) for each in numbers), Fraction(0))
    squares = sum((Fraction(each) ** 2 for each in numbers), Fraction(0))
    rng.shuffle(numbers)
    assert as_fraction(exact_sum(np.array(numbers, float))) == total
    assert as_fraction(exact_squares(np.array(numbers, float))) == squares


@pytest.mark.parametrize(
    ("column", "section"),
    [
        (pa.array(np.random.default_rng(0).normal(size=500) ** 3), NumericalColumn(scale="log")),
        (pa.array(np.random.default_rng(0).normal(size=500)), NumericalColumn(scale="quantile")),
        (pa.array([CITIES[place % 5] for place in range(100)]), CategoricalColumn(values=3)),
        (pa.array(["2024-01-31", "2023-05-01T12:00:00Z", None] * 20), TimestampColumn()),
    ],
)
def test_chunks_do_not_change_a_state(column: Any, section: ColumnSection) -> None:
    assert fitted(column, section, pieces=1, tasks=1) == fitted(column, section, pieces=7, tasks=3)


def test_times_are_ages_and_places_in_day_week_and_year() -> None:
    column = pa.array(["2024-01-01T06:00:00", "2024-01-08", "2024-07-01", None])
    found = encode(column, fitted(column, TimestampColumn()))
    ages = [
        (np.datetime64("2024-07-01") - np.datetime64(day, "s")) / np.timedelta64(86400, "s")
        for day in ("2024-01-01T06:00:00", "2024-01-08", "2024-07-01")
    ]
    np.testing.assert_allclose(found[:3, 0], ages)
    np.testing.assert_allclose(found[0, 1:3], [1, 0], atol=1e-12)  # six o'clock
    np.testing.assert_allclose(found[:3, 3:5], [[0, 1]] * 3, atol=1e-12)  # Mondays
    np.testing.assert_allclose(found[:3, 5:7], [[0, 1], [0, 1], [0, -1]], atol=1e-12)
    assert found[3].tolist() == [0.0] * 7 + [1.0]


@pytest.mark.parametrize("kind", [pa.float64(), pa.string(), pa.null()])
def test_columns_without_any_value(kind: pa.DataType) -> None:
    column = pa.nulls(5, kind)
    for section in (NumericalColumn(scale="standard"), CategoricalColumn(), TimestampColumn()):
        found = encode(column, fitted(column, section))
        assert np.isfinite(found).all()
        assert found[:, -1].tolist() == [1.0] * 5


def test_integers_that_became_floats_are_the_same_values() -> None:
    column = pa.array([1, 20, None, 20])
    state = fitted(column, CategoricalColumn())
    np.testing.assert_array_equal(encode(column.cast(pa.float64()), state), encode(column, state))


def test_text_is_rows_of_length_one_that_share_the_columns_of_their_words() -> None:
    column = pa.array(["A red car", "car, RED; a!", "Ölfass", None, " ... "])
    state = fitted(column, TextColumn(width=32))
    held = encode(column, state)
    np.testing.assert_allclose(np.linalg.norm(held, axis=1), [1, 1, 1, 0, 0])
    np.testing.assert_array_equal(held[0], held[1])
    assert np.count_nonzero(held[2]) == 1
    np.testing.assert_array_equal(encode(column.slice(1), state), held[1:])


@pytest.mark.parametrize(
    ("asked", "exclude", "expected"),
    [
        (["*"], [], ("age", "amt_in", "amt_out", "x*")),
        (["amt_*", "age"], ["*_out"], ("amt_in", "age")),
        (["x*"], ["x*"], ("x*",)),  # a column's own name stands for it
        (["id", "gone"], ["*"], ("id", "gone")),
        (["[ab]*"], ["amt*"], ("age",)),
    ],
)
def test_patterns_stand_for_the_columns_they_match(asked: list[str], exclude: list[str], expected: Any) -> None:
    names = ["id", "age", "amt_in", "amt_out", "x*"]
    assert expanded(asked, names, taken={"id"}, exclude=exclude) == expected


@pytest.mark.parametrize("scale", ["none", "standard", "log", "quantile"])
def test_missing_numbers_become_zero_where_that_is_asked(scale: Any) -> None:
    held = [3.0, None, 5.0, 9.0, None]
    state = fitted(pa.array(held), NumericalColumn(scale=scale, missing="zero"))
    found = encode(pa.array([None, 0.0, 7.0]), state)
    np.testing.assert_allclose(found[0, 0], found[1, 0])
    np.testing.assert_array_equal(found[:, 1], [1, 0, 0])
    if scale == "standard":
        theirs = make_pipeline(SimpleImputer(strategy="constant", fill_value=0.0), StandardScaler())
        theirs.fit(np.array(held, float)[:, None])
        np.testing.assert_allclose(found[:, :1], theirs.transform(np.array([[0.0], [0.0], [7.0]])))
