"""Amounts and dates as people write them, read by the form that the config names."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from gnnflow.columns import find_forms, numbers_of
from gnnflow.columns.values import times_of
from gnnflow.graph.encodings import ColumnState, NumericalState, TimestampState
from gnnflow.ingest.encodings import _section_of

_AMOUNTS = [
    ("comma", "5.406,79 €", 5406.79),
    ("comma", "-€ 5,5", -5.5),
    ("comma", "1\N{NO-BREAK SPACE}234,5 kr.", 1234.5),
    ("comma", "EUR 4", 4.0),
    ("comma", "1'234", 1234.0),
    ("comma", "1,234.50", None),
    ("comma", "1.23", None),
    ("point", "$1,234.50", 1234.5),
    ("point", "Rs. 500.00", 500.0),
    ("point", "$-7", -7.0),
    ("point", "+12 %", 12.0),
    ("point", "1,23", None),
    ("point", "--5", None),
    ("point", "12 of 13", None),
]


@pytest.mark.parametrize(("decimal", "text", "expected"), _AMOUNTS)
def test_an_amount_is_read_by_its_decimal_sign_or_not_at_all(decimal: str, text: str, expected: float | None) -> None:
    """Finds thousands taken for fractions, which no error would tell."""
    for kind in (pa.string(), pa.large_string()):
        read = numbers_of(pa.array([text, None, ""], kind), decimal)
        assert read.unreadable.tolist() == [expected is None, False, False]
        np.testing.assert_array_equal(read.values, [np.nan if expected is None else expected, np.nan, np.nan])


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("%d.%m.%Y", "31.12.2020", (2020, 12, 31)),
        ("%d.%m.%Y", "1.2.2020", (2020, 2, 1)),
        ("%m/%d/%Y %H:%M", "12/31/2020 5:06", (2020, 12, 31, 5, 6)),
        ("%d %b %Y", "31 jan 2020", (2020, 1, 31)),
        ("%d.%m.%Y", "31.02.2020", None),
        ("%d.%m.%Y", "12/31/2020", None),
        ("%d.%m.%Y", "31.12.20", None),
        ("%d.%m.%Y", "31.12.2020 x", None),
    ],
)
def test_a_date_is_read_by_its_form_or_not_at_all(form: str, text: str, expected: tuple[int, ...] | None) -> None:
    """Finds days that do not exist, which strptime reads as later ones."""
    read = times_of(pa.array([text, None]), form)
    seconds = np.nan if expected is None else datetime(*expected, tzinfo=UTC).timestamp()  # type: ignore[arg-type, misc]
    assert read.unreadable.tolist() == [expected is None, False]
    np.testing.assert_array_equal(read.values, [seconds, np.nan])


def test_a_form_is_found_only_where_it_alone_reads_every_value() -> None:
    """Finds a guess: of day and month, or of fractions and thousands."""
    dates, amounts = pa.array(["03.04.2020", "05.06.2020"]), pa.array(["$1,234", "$5,678"])
    assert [form["format"] for form in find_forms(dates, "timestamp")] == ["%d.%m.%Y", "%m.%d.%Y"]
    assert [form["decimal"] for form in find_forms(amounts, "numerical")] == ["point", "comma"]
    assert find_forms(pa.array(["03.04.2020", "31.12.2020"]), "timestamp") == [
        {"kind": "timestamp", "format": "%d.%m.%Y"}
    ]
    assert find_forms(pa.array(["409,74 €", "5.406,79 €"]), "numerical") == [{"kind": "numerical", "decimal": "comma"}]
    assert find_forms(pa.array(["31.12.2020", "12/31/2020"]), "timestamp") == []


@pytest.mark.parametrize(
    "state",
    [
        NumericalState(name="a", rows=1, missing=0, decimal="comma"),
        TimestampState(name="a", rows=1, missing=0, format="%d.%m.%Y"),
    ],
)
def test_later_tables_are_read_by_the_form_of_the_model(state: ColumnState) -> None:
    """Finds a form that is kept with the state and not asked of later tables."""
    section = _section_of(state)
    assert (getattr(section, "decimal", None), getattr(section, "format", None)) == (
        getattr(state, "decimal", None),
        getattr(state, "format", None),
    )
