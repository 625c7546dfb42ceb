"""A CSV file read in blocks holds what it holds read whole, or is refused with the line; no cut loses anything."""

from __future__ import annotations

import gzip
import uuid
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnflow.graph.errors import TableError
from gnnflow.storage import csv_blocks
from gnnflow.storage.csv_blocks import open_csv, read_text
from gnnflow.storage.writing import write_atomic
from tests.budget import examples

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [("00012", "a"), ("0x33", "b,c"), ("1e5", ""), ("NA", 'say "hi"'), ("null", "é"), ("-0", " x ")] * 5


def as_csv(rows: list[tuple[str, str]], end: str = "\n") -> str:
    quoted = (
        (left, '"' + right.replace('"', '""') + '"' if any(c in right for c in ',"\n') else right)
        for left, right in rows
    )
    return end.join(["id,text", *(f"{left},{right}" for left, right in quoted)]) + end


def read(uri: str) -> list[tuple[str, str]]:
    file = open_csv(uri)
    tables = [read_text(file, span, ["id", "text"], check=True) for span in file.spans]
    table = pa.concat_tables(tables)
    return list(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("block", [1, 2, 3, 7, 16, 50, 1000])
def test_blocks_hold_every_line_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, end: str) -> None:
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", block)
    path = tmp_path / "t.csv"
    path.write_text(as_csv(ROWS, end), newline="")
    assert len(open_csv(str(path)).spans) > 1 or block == 1000
    assert read(str(path)) == ROWS


def test_blocks_of_an_object_store_are_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 20)
    monkeypatch.setattr(csv_blocks, "read_all", None)
    uri = f"memory://{uuid.uuid4().hex}/t.csv"
    write_atomic(uri, as_csv(ROWS).encode())
    assert read(uri) == ROWS


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(st.sampled_from(["1", "007"]), st.text('a,"\n', max_size=6)), min_size=1, max_size=8),
    block=st.integers(1, 40),
)
def test_a_cut_file_with_line_breaks_in_fields_is_right_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[str, str]], block: int
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(as_csv(rows))
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 1 << 20)
    assert read(str(path)) == rows
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", block)
    with_breaks = any("\n" in right for _, right in rows)
    with pytest.raises(TableError, match=r"quote|fields") if with_breaks else nullcontext():
        assert read(str(path)) == rows
        if with_breaks:  # no cut fell so that it mattered
            raise TableError("quote")


DAMAGED = {
    "empty": (b"", "is empty"),
    "a row too short": (b"id,text\n1,a\n2\n3,c\n", "line 3 has 1 fields, the header has 2"),
    "a row too long": (b"id,text\n1,a\n2,b\n3,c,secret\n", "line 4 has 3 fields"),
    "an open quote in the last column": (b'id,text\n1,a\n2,"b\n3,c\n', "line 3: a quote does not close"),
    "UTF-16": ("id,text\n1,a\n".encode("utf-16"), "UTF-16"),
    "Latin-1": ("id,text\n1,a\n2,é\n".encode("latin-1"), "line 3 is not UTF-8"),
    "gzip by content": (gzip.compress(b"id,text\n1,a\n"), r"ends in \.csv\.gz"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_refused_with_its_line_and_without_content(tmp_path: Path, name: str) -> None:
    content, expected = DAMAGED[name]
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(TableError, match=expected) as caught:
        read(str(path))
    assert "secret" not in str(caught.value)


def test_lines_are_counted_from_the_start_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 30)
    path = tmp_path / "t.csv"
    path.write_text("id,text\n" + "1,a\n" * 50 + "2\n" + "1,a\n" * 50)
    with pytest.raises(TableError, match="line 52 has 1 fields"):
        read(str(path))


@pytest.mark.parametrize("cut", [-3, -9, 20])
def test_a_broken_gzip_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(as_csv(ROWS).encode())[:cut])
    with pytest.raises(TableError, match="not a whole gzip file"):
        read(str(path))
