"""What columns of text are read as."""

from __future__ import annotations

import pyarrow as pa
import pytest

from gnnflow.storage.text_types import TextType, agreed, convert, facts_of


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["7", "NULL", "", "null", "12"], [7, None, None, None, 12]),
        (["+7", "NULL"], ["+7", None]),
        (["a", "NULL"], ["a", None]),
        (["007", "null"], ["007", None]),
        (["Null", "7"], ["Null", "7"]),  # a name, as some people have it
    ],
)
def test_null_as_a_word_is_null_in_ids_too(texts: list[str], values: list[object]) -> None:
    column = pa.array(texts, pa.large_string())
    found = TextType("integer id" if facts_of(column).exact else "text id")
    assert convert(column, found).to_pylist() == values


@pytest.mark.parametrize(
    ("texts", "place"),
    [
        (["1", "", " 12345678901234567890123 "], "' 12345678901234567890123 ' in b.csv, row 7"),
        (["9223372036854775807", "+9223372036854775808"], "'+9223372036854775808' in b.csv, row 6"),
        (["-9223372036854775809", "99999999999999999999"], "'-9223372036854775809' in b.csv, row 5"),
        (["1", "12345678901234567890123.0"], ""),
        (["0" * 30 + "7", "-9223372036854775808"], ""),
    ],
)
def test_integers_beyond_64_bits_are_numbers_whose_first_is_named(texts: list[str], place: str) -> None:
    blocks = [("a.csv", 0, ["1", "2"]), ("b.csv", 5, texts)]
    found = agreed([(file, row, facts_of(pa.array(held, pa.large_string()))) for file, row, held in blocks])
    assert found.place == place
    assert found.kind == ("number" if place or "." in texts[1] else "integer")


def test_integers_beyond_64_bits_beside_fractions_are_plain_numbers() -> None:
    blocks = [facts_of(pa.array([text], pa.large_string())) for text in ("12345678901234567890123", "0.5")]
    assert agreed([("a.csv", row, facts) for row, facts in enumerate(blocks)]) == TextType("number")
