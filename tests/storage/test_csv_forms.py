"""CSV files of a config whose form is not the usual one: found where it can be known, refused with the way on else."""

import gzip

import pyarrow as pa
import pytest
from pydantic import ValidationError

from gnnflow.config import GraphConfig
from gnnflow.config.formats_section import CsvFormat
from gnnflow.graph.errors import GnnflowError, TableError
from gnnflow.storage import csv_blocks
from gnnflow.storage.samples import sample_table
from gnnflow.storage.table_files import find_table_files
from gnnflow.storage.user_tables import first_schema, form_of, read_whole, scan

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
    [
        ("id;x\n1;1,234\n2;5,678\n", "may be a fraction or thousands"),
        ("id;x\n1;1.234\n2;567\n", "may be a fraction or thousands"),
        ("id;x;y;z\n1;1.234;0,5;0.5\n", "'1.234', which may be a fraction or thousands"),
        ("id,x\n1,2\n3\n", "line 3 has 1 fields"),
    ],
)
def test_a_form_that_cannot_be_known_is_refused(tmp_path, text, problem):
    with pytest.raises(TableError, match=problem):
        table(tmp_path / "t.csv", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id;x;y\na;950;0,5\nb;12.500;1,5\nc;-1.234.567;2\n", [950, 12500, -1234567]),
        ("id\tx\ty\na\t1.234\t0,5\n", [1234]),
        ("id;x\na;1.234\nb;0.125\n", [1.234, 0.125]),
        ("id;x\na;1.234\nb;1.2345\n", [1.234, 1.2345]),
        ("id;x\na;1.234\nb;12.5\n", [1.234, 12.5]),
        ("id;x;y\na;1.234;0.5\n", [1.234]),
        ("id;x;y\na;0.125;0,5\n", [0.125]),
        ("id,x\na,1.234\nb,950\n", [1.234, 950]),
        ("id\tx\na\t1.234\n", [1.234]),
        ("id;x\na;1.234.567\n", ["1.234.567"]),
    ],
)
def test_points_are_for_thousands_only_in_a_file_with_decimal_commas(tmp_path, text, expected):
    """Finds numbers read a thousand times too small, and fractions read a thousand times too large."""
    assert table(tmp_path / "t.csv", text)["x"].to_pylist() == expected


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.dat"])
@pytest.mark.parametrize(
    ("text", "said", "expected"),
    [
        (
            "1;ü\n2;é\n",
            {"header": False, "columns": ["id", "c"], "encoding": "latin-1"},
            {"id": [1, 2], "c": ["ü", "é"]},
        ),
        ("id;c\n1;ü\n", {"encoding": "cp1252"}, {"id": [1], "c": ["ü"]}),
        ("id,c\n1,x\n", {"header": True, "columns": ["k", "v"]}, {"k": [1], "v": ["x"]}),
        ("1 2\n3 4\n", {"header": False}, {"f0": [1, 3], "f1": [2, 4]}),
        ("id;x\n1;1,234\n", {"decimal": "comma"}, {"id": [1], "x": [1.234]}),
        ("id;x\n1;1,234\n", {"decimal": "point"}, {"id": [1], "x": ["1,234"]}),
        ("id;x\n1;1.234\n", {"decimal": "comma"}, {"id": [1], "x": [1234]}),
        ("id;x\n1;1.234\n", {"decimal": "point"}, {"id": [1], "x": [1.234]}),
        ("1;2,5\n3;4,5\n", {"separator": "semicolon"}, {"1": [3], "2,5": [4.5]}),
        # the number of names says which separator it is
        ("a,1;2;3\nb,1;2;3\n", {"header": False, "columns": ["k", "v"]}, {"k": ["a", "b"], "v": ["1;2;3"] * 2}),
    ],
)
def test_a_form_that_the_config_says_is_read_alike_in_a_sample_and_in_ingest(tmp_path, name, text, said, expected):
    place = tmp_path / name
    raw = text.encode(said.get("encoding", "utf-8"))
    place.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    form = CsvFormat(**said)
    files = find_table_files(str(place), form=form)
    whole, sample = read_whole(scan(files)), sample_table(str(place), form=form)
    assert whole.to_pydict() == expected
    assert read_whole(sample.chunks) == whole
    assert first_schema(files).names == whole.column_names


def test_a_table_of_several_relations_has_one_form():
    tables = {
        "nodes": {"user": "u.csv", "item": "i.csv"},
        "edges": {"user__buys__item": {"table": "e.csv", "where": {"kind": "buys"}}, "user__rates__item": "e.csv"},
        "target": "user",
    }
    said = {"user__rates__item": {"separator": "tab"}, "user": {"encoding": "latin-1"}}
    graph = GraphConfig(**tables, formats=said)
    assert graph.format_at("e.csv").separator == "\t"
    assert graph.format_at("u.csv").encoding == "latin-1"
    assert graph.format_at("i.csv") is None
    with pytest.raises(ValidationError, match="read the same table, which has one form"):
        GraphConfig(**tables, formats={**said, "user__buys__item": {"separator": "comma"}})


def test_the_form_of_a_file_is_told(tmp_path):
    (tmp_path / "t.csv").write_text("1;ü;2,5\n", encoding="latin-1")
    form = CsvFormat(header=False, columns=["id", "c", "x"], encoding="latin-1")
    (chunk,) = scan(find_table_files(str(tmp_path / "t.csv"), form=form))
    assert form_of([chunk]) == "separator semicolon, latin-1; decimal commas in x; no header"
    (tmp_path / "t.csv").write_text("id,x\n1,2\n")
    assert not form_of(scan(str(tmp_path)))


@pytest.mark.parametrize(
    ("name", "said", "problem"),
    [
        ("t.csv", {"header": False, "columns": ["a", "b", "c"]}, "has 2 columns .*names 3"),
        ("t.csv", {"encoding": "utf-77"}, "is no encoding"),
        ("t.parquet", {}, "is parquet, and graph.formats is for CSV"),
    ],
)
def test_a_form_that_does_not_fit_the_file_is_refused(tmp_path, name, said, problem):
    (tmp_path / name).write_text("1,2\n3,4\n")
    with pytest.raises(GnnflowError, match=problem):
        scan(find_table_files(str(tmp_path / name), form=CsvFormat(**said)))


@pytest.mark.parametrize("name", ["t.jsonl", "t.ndjson.gz"])
def test_json_lines_are_a_table(tmp_path, name):
    text = '{"id": "1", "day": "2024-01-01", "x": 1}\n{"id": "2", "x": 2.5, "tags": ["a"]}\n'
    found = table(tmp_path / name, text)
    assert found.to_pydict() == {"id": ["1", "2"], "day": ["2024-01-01", None], "x": [1, 2.5], "tags": [None, ["a"]]}
    assert first_schema(find_table_files(str(tmp_path / name))) == found.schema  # by which a split is drawn or not
    (tmp_path / "other.jsonl").write_text('{"id": "1"\n')
    (tmp_path / "array.jsonl").write_text('[{"id": 1}]')
    with pytest.raises(TableError, match="is one JSON array"):
        scan(str(tmp_path / "array.jsonl"))
    (tmp_path / "excel.csv").write_text("sep=;\nid;x\n1;2\n")
    with pytest.raises(TableError, match=r"first line is 'sep=;'.*Take the line out"):
        scan(str(tmp_path / "excel.csv"))
    with pytest.raises(TableError, match="cannot be read as JSON lines"):
        scan(str(tmp_path / "other.jsonl"))


def test_json_lines_next_to_a_table_are_skipped(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"seconds": 1}\n')
    (tmp_path / "t.csv").write_text("id\n1\n")
    assert read_whole(scan(str(tmp_path))).to_pydict() == {"id": [1]}
