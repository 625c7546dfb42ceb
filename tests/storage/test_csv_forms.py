"""CSV files of a config whose form is not the usual one: found where it can be known, refused with the way on else."""

import gzip

import pyarrow as pa
import pytest

from gnnflow.graph.errors import TableError
from gnnflow.storage import csv_blocks
from gnnflow.storage.user_tables import read_whole, scan

USUAL = {"id": ["a;1", "b"], "x": [1.5, -2.25], "n": [1, 2]}


def table(place, text, encoding="utf-8"):
    raw = text.encode(encoding)
    place.write_bytes(gzip.compress(raw) if place.suffix == ".gz" else raw)
    return read_whole(scan(str(place)), ids=["id"])


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("id,x,n\na;1,1.5,1\nb,-2.25,2\n", "utf-8"),
        ('id;x;n\n"a;1";1,5;1\nb;-2,25;2\n', "utf-8"),
        ('id;x;n\r\n"a;1";1,5;1\r\nb;-2,25;2\r\n', "utf-8-sig"),
        ("id\tx\tn\na;1\t1.5\t1\nb\t-2.25\t2\n", "utf-16"),
        ("# made by a program\nid|x|n\na;1|1.5|1\nb|-2.25|2\n", "utf-8"),
    ],
)
def test_a_form_that_can_be_known_is_found(tmp_path, name, text, encoding):
    assert table(tmp_path / name, text, encoding).to_pydict() == USUAL


def test_a_file_with_semicolons_is_cut_like_others(tmp_path, monkeypatch):
    rows = "".join(f"{number};{number},5\n" for number in range(100))
    whole = table(tmp_path / "t.csv", f"id;x\n{rows}")
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 64)
    chunks = scan(str(tmp_path / "t.csv"))
    assert len(chunks) > 5
    assert read_whole(chunks, ids=["id"]) == whole
    assert whole.schema.types == [pa.int64(), pa.float64()]


def test_a_decimal_comma_in_one_file_counts_for_the_table(tmp_path):
    (tmp_path / "a.csv").write_text("id;x\n1;2\n")
    (tmp_path / "b.csv").write_text("id;x\n2;1.000,5\n")
    assert read_whole(scan(str(tmp_path))).to_pydict() == {"id": [1, 2], "x": [2.0, 1000.5]}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("id;key\n", ["id", "key"]),
        ("#id,x\n1,2\n", ["#id", "x"]),
        ("id\n1\n2\n", ["id"]),
        ('"a;b",c\n1,2\n', ["a;b", "c"]),
    ],
)
def test_names_are_those_of_the_header(tmp_path, text, names):
    assert table(tmp_path / "t.csv", text).column_names == names


@pytest.mark.parametrize(
    ("text", "problem"),
    [("id;x\n1;1,234\n2;5,678\n", "may be a fraction or thousands"), ("id,x\n1,2\n3\n", "line 3 has 1 fields")],
)
def test_a_form_that_cannot_be_known_is_refused(tmp_path, text, problem):
    with pytest.raises(TableError, match=problem):
        table(tmp_path / "t.csv", text)


@pytest.mark.parametrize("name", ["t.jsonl", "t.ndjson.gz"])
def test_json_lines_are_a_table(tmp_path, name):
    text = '{"id": "1", "day": "2024-01-01", "x": 1}\n{"id": "2", "x": 2.5, "tags": ["a"]}\n'
    found = table(tmp_path / name, text)
    assert found.to_pydict() == {"id": ["1", "2"], "day": ["2024-01-01", None], "x": [1, 2.5], "tags": [None, ["a"]]}
    (tmp_path / "other.jsonl").write_text('{"id": "1"\n')
    with pytest.raises(TableError, match="cannot be read as JSON lines"):
        scan(str(tmp_path / "other.jsonl"))


def test_json_lines_next_to_a_table_are_skipped(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"seconds": 1}\n')
    (tmp_path / "t.csv").write_text("id\n1\n")
    assert read_whole(scan(str(tmp_path))).to_pydict() == {"id": [1]}
