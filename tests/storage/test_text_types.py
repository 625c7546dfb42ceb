"""What columns of text are read as."""

from __future__ import annotations

import pyarrow as pa
import pytest

from gnnflow.storage.text_types import TextType, convert, facts_of


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
