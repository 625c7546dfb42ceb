"""Tables within a database or a workbook are read by name, as a config names them."""

import sqlite3
import tracemalloc
from contextlib import closing
from zipfile import ZipFile

import pyarrow as pa
import pytest

from gnnflow.config import GraphConfig
from gnnflow.graph.errors import TableError
from gnnflow.stages.resolve import stamps_of
from gnnflow.storage.inner_tables import inner_schema, read_inner, tables_of
from gnnflow.storage.samples import sample_table
from gnnflow.storage.table_files import find_table_files
from gnnflow.storage.user_tables import first_schema, read_whole, scan

USERS = {"Käufer id": [1, 2], "age": [30, None], "city": ["Köln", "Rom"]}


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "my shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE "users 1" ("Käufer id" INTEGER, age INTEGER, city TEXT)')
        connection.executemany('INSERT INTO "users 1" VALUES (?, ?, ?)', [*zip(*USERS.values(), strict=True)])
        connection.execute("CREATE TABLE orders (user INTEGER)")
        connection.commit()
    return str(path)


def test_a_table_of_a_database_is_read_by_its_name(database):
    place = f"{database}#users 1"
    assert tables_of(database) == [place, f"{database}#orders"]
    assert read_whole(scan(place)).to_pydict() == USERS
    assert read_whole(scan(place), columns=["city"]).to_pydict() == {"city": ["Köln", "Rom"]}
    assert first_schema(find_table_files(place)).types == [pa.int64(), pa.int64(), pa.string()]
    assert sample_table(place).is_whole
    assert [each.name for each in stamps_of(GraphConfig(nodes=place, edges=place))["nodes"]] == ["my shop.db#users 1"]


@pytest.mark.parametrize(
    ("name", "problem"), [("", "has 2 tables: users 1, orders"), ("#sales", "has no table 'sales'")]
)
def test_a_database_whose_table_is_not_named_asks(database, name, problem):
    with pytest.raises(TableError, match=rf"{problem}.*Name one: .*my shop\.db#NAME"):
        scan(database + name)


def test_types_are_those_of_all_values_and_rows_are_read_as_asked(tmp_path):
    values = {"i": [1, None, 3], "r": [1, None, 2.5], "t": [None, "x", "y"], "n": [None] * 3, "b": [b"x", b"", None]}
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute("CREATE TABLE t (i, r, t INTEGER, n, b)")  # what is declared says little
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", [*zip(*values.values(), strict=True)])
        connection.execute("CREATE TABLE mixed AS SELECT 1 AS a UNION ALL SELECT 'x'")
        connection.commit()
    schema, rows = inner_schema("sqlite", f"{tmp_path}/t.db", "t")
    assert (schema, rows) == (pa.table(values).schema, 3)
    assert read_inner("sqlite", f"{tmp_path}/t.db", "t") == pa.table(values)
    some = read_inner("sqlite", f"{tmp_path}/t.db", "t", columns=["r", "n"], rows=1)  # 1 is an integer
    assert some == pa.table(values).select(["r", "n"]).slice(0, 1)
    with pytest.raises(TableError, match="'a' holds values of several kinds"):
        scan(f"{tmp_path}/t.db#mixed")


def test_a_file_whose_name_has_the_mark_is_that_file(tmp_path):
    (tmp_path / "a.db#b.csv").write_text("id\n1\n")
    assert read_whole(scan(str(tmp_path / "a.db#b.csv"))).to_pydict() == {"id": [1]}


def test_names_of_tables_and_files_may_hold_the_mark_quotes_and_brackets(tmp_path):
    file = str(tmp_path / "c#1 [2].db")
    names = ["Order #1", 'x"; DROP TABLE y; --', "t.db"]
    with closing(sqlite3.connect(file)) as connection:
        for number, name in enumerate(names):
            quoted = name.replace('"', '""')
            connection.execute(f'CREATE TABLE "{quoted}" AS SELECT {number} AS id')
        connection.commit()
    assert [read_whole(scan(place))["id"][0].as_py() for place in tables_of(file)] == [0, 1, 2]
    assert tables_of(file) == [f"{file}#{name}" for name in names]


def test_a_sheet_is_read_by_its_name_with_columns_that_have_none(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="needs gnnflow[excel]")
    book = openpyxl.Workbook()
    for row in ([None, "age", None], [7, 30, None], [8, None, None]):
        book.active.append(row)
    book.create_sheet("Käufe")
    book.save(tmp_path / "t.xlsx")
    assert tables_of(str(tmp_path / "t.xlsx")) == [f"{tmp_path}/t.xlsx#{name}" for name in ("Sheet", "Käufe")]
    assert read_whole(scan(f"{tmp_path}/t.xlsx#Sheet")).to_pydict() == {"Unnamed: 0": [7, 8], "age": [30, None]}
    with pytest.raises(TableError, match="has no columns"):
        scan(f"{tmp_path}/t.xlsx#Käufe")


def test_a_cell_far_from_the_others_makes_no_row_as_wide(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="needs gnnflow[excel]")
    book = openpyxl.Workbook()
    for row in (["id", "age"], *([number, 30] for number in range(2000))):
        book.active.append(row)
    book.active.cell(row=900_000, column=16_000, value="x")
    book.save(tmp_path / "t.xlsx")
    tracemalloc.start()
    try:
        table = read_whole(scan(f"{tmp_path}/t.xlsx"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (table.column_names, table.num_rows) == (["id", "age", "Unnamed: 15999"], 2001)
    assert peak < 64 << 20  # as rows of 16,000 cells it takes 256 MiB


def test_a_database_of_duckdb_is_known_by_its_bytes(tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="needs gnnflow[duckdb]")
    for name in ("t.duckdb", "t.db"):
        with duckdb.connect(str(tmp_path / name)) as connection:
            connection.execute("CREATE TABLE users AS SELECT 1 AS id, 'a' AS city")
        assert read_whole(scan(str(tmp_path / name))).to_pydict() == {"id": [1], "city": ["a"]}


def test_a_database_of_duckdb_reads_no_other_files(tmp_path, monkeypatch):
    duckdb = pytest.importorskip("duckdb", reason="needs gnnflow[duckdb]")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key.csv").write_text("id\n7\n")
    with duckdb.connect("t.duckdb") as connection:
        connection.execute("CREATE VIEW v AS SELECT * FROM read_csv('key.csv')")
        connection.execute('CREATE SCHEMA other; CREATE TABLE other."key.csv" (id INTEGER)')
    assert tables_of("t.duckdb") == ["t.duckdb#v"]
    with pytest.raises(TableError, match="cannot be read as DuckDB"):
        scan("t.duckdb#v")


def test_a_workbook_with_charts_or_a_damaged_cell(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="needs gnnflow[excel]")
    book = openpyxl.Workbook()
    for row in (["id"], [7]):
        book.active.append(row)
    chart = openpyxl.chart.BarChart()
    chart.add_data(openpyxl.chart.Reference(book.active, min_col=1, min_row=1, max_row=2))
    book.create_chartsheet("Chart").add_chart(chart)
    book.create_sheet("More").append(["id"])  # a single sheet is called as its file
    whole, damaged = tmp_path / "t.xlsx", tmp_path / "d.xlsx"
    book.save(whole)
    assert tables_of(str(whole)) == [f"{whole}#Sheet", f"{whole}#More"]
    with ZipFile(whole) as source, ZipFile(damaged, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(b"<v>7</v>", b"<v>x</v>"))
    with pytest.raises(TableError, match="cannot be read as Excel"):
        scan(f"{damaged}#Sheet")
