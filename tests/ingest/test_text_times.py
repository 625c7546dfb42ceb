"""Times written as text of ISO 8601: in every format, and in the names of folders."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from gnnflow.ingest.times import time_faults, time_of, times_of
from gnnflow.storage.user_tables import read_chunk, scan, schema_of
from tests.ingest.test_times import add, config_of, ingested
from tests.ingest.test_times import times_of as times_by_split
from tests.small_graphs import write_graph


def _typed(table: pa.Table, folder: Path, kind: pa.DataType) -> str:
    pq.write_table(table.set_column(2, "when", table["when"].cast(kind)), folder / "typed.parquet")
    return str(folder / "typed.parquet")


def _csv(table: pa.Table, folder: Path) -> str:
    pa_csv.write_csv(table, folder / "edges.csv")
    return str(folder / "edges.csv")


def _folders(table: pa.Table, folder: Path) -> str:
    for when in table["when"].unique().to_pylist():
        (folder / f"edges/when={when}").mkdir(parents=True)
        rows = table.filter(pc.equal(table["when"], when)).drop_columns(["when"])
        pq.write_table(rows, folder / f"edges/when={when}/part-0.parquet")
    return str(folder / "edges")


FORMS: dict[str, Callable[[pa.Table, Path], str]] = {
    "text": partial(_typed, kind=pa.string()),
    "dictionary": partial(_typed, kind=pa.dictionary(pa.int32(), pa.large_string())),
    "views": partial(_typed, kind=pa.string_view()),
    "csv": _csv,
    "folders": _folders,
}


@pytest.mark.parametrize("form", FORMS)
def test_text_of_dates_is_a_time(tmp_path: Path, form: str) -> None:
    write_graph(tmp_path, num_edges=100)
    days = [date(2024, 2, 28) + timedelta(days=number // 34) for number in range(100)]
    add(tmp_path, when=[day.isoformat() for day in days])
    uri = FORMS[form](pq.read_table(tmp_path / "edges.parquet").select(["src", "dst", "when"]), tmp_path)
    times = times_by_split(ingested(config_of(tmp_path, graph={"timestamp": "when", "edges": uri}))[2])
    held = {name: {each.date() for each in held.view("datetime64[us]").tolist()} for name, held in times.items()}
    assert held == {"train": {days[0]}, "valid": {days[34]}, "test": {days[68]}}


def moments(folder: Path, texts: list[str | None]) -> list[object]:
    """Return what a column of texts is read as, null where a row is faulted."""
    pq.write_table(pa.table({"when": pa.array(texts, pa.string())}), folder / "t.parquet")
    chunks = scan(str(folder / "t.parquet"))
    time = time_of(schema_of(chunks[0]).field("when"), chunks)
    table = read_chunk(chunks[0])
    bad = {int(row) for fault in time_faults(table, "when", time=time) for row in fault.rows}
    good = [row for row in range(len(texts)) if row not in bad]
    found: list[object] = [None] * len(texts)
    for row, moment in zip(good, times_of(table["when"].take(good), time=time).view("datetime64[us]"), strict=True):
        found[row] = moment
    return found


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-02-29", "2024-02-29"),
        (" 2024-02-29 05 ", "2024-02-29T05"),
        ("2024-02-29T05:06", "2024-02-29T05:06"),
        ("2024-02-29T05:06:07.123456789", "2024-02-29T05:06:07.123456"),
        ("2024-02-29T05:06:07Z", "2024-02-29T05:06:07"),
        ("2024-02-29 05:06:07.5+0130", "2024-02-29T03:36:07.5"),
        ("2024-02-29T23:06:07-05", "2024-03-01T04:06:07"),
        ("9999-12-31", "9999-12-31"),
        ("0001-01-01T00:00:00", "0001-01-01"),
    ],
)
def test_a_moment_is_what_iso_says(tmp_path: Path, text: str, moment: str) -> None:
    assert moments(tmp_path, [text]) == [np.datetime64(moment)]


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-01 24:00",
        "2024-01-01T05:60",
        "2024-01-01T05:06:07,5",
        "2024-01-01T05+24:00",
        "2024-01-01 05:06:07 UTC",
        "2024-01-01Z",
        "20240101",
        "2024-1-1",
        "1/2/2024",
        "2024-W01-1",
        "1704067200",
        "",
    ],
)
def test_other_text_is_not_a_time(tmp_path: Path, text: str) -> None:
    assert moments(tmp_path, ["2024-01-01", text]) == [np.datetime64("2024-01-01"), None]


def test_days_that_do_not_exist_are_not_times(tmp_path: Path) -> None:
    years = [1, 4, 100, 400, 1900, 2000, 2023, 2024, 9996]
    texts = [f"{y:04}-{m:02}-{d:02}" for y in years for m in range(14) for d in range(33)]
    found = moments(tmp_path, ["2024-01-01", *texts])[1:]
    exist = {(date(y, 1, 1) + timedelta(days=day)).isoformat() for y in years for day in range(366)}
    assert [text for text, moment in zip(texts, found, strict=True) if moment is not None] == [
        text for text in texts if text in exist
    ]


def test_a_column_that_begins_with_nulls_is_judged_by_its_first_time(tmp_path: Path) -> None:
    assert moments(tmp_path, [None, "2024-01-01T00Z", "2024-01-01"]) == [None, np.datetime64("2024-01-01"), None]
