"""Values that are not what their column's type says are refused: a damaged file of Arrow still opens."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.errors import TableError
from gnnflow.storage.user_tables import iter_chunk, read_chunk, read_whole, scan

CENTS = pa.decimal128(5, 2)
DECIMALS = pa.array([Decimal("7.89"), Decimal("123.45"), Decimal("-1.00")], CENTS)
LISTS = pa.array([[1.0], [2.0], [3.0]])
WORDS = pa.DictionaryArray.from_arrays(pa.array([3, 2, 1, 0], pa.int32()), ["a", "b", "c", "d"])


def offsets(*numbers: int) -> bytes:
    return np.array(numbers, np.int32).tobytes()


# a column, and the bytes of it that are written as others
BROKEN: dict[str, tuple[pa.Array, bytes, bytes]] = {
    "lists beyond their values": (LISTS, offsets(0, 1, 2, 3), offsets(0, 1, 2, 2**30)),
    "lists that end before they start": (LISTS, offsets(0, 1, 2, 3), offsets(0, 1, -5, 3)),
    "a decimal of too many digits": (DECIMALS, (12345).to_bytes(16, "little"), (10**30).to_bytes(16, "little")),
    "a list of such": (
        pa.FixedSizeListArray.from_arrays(DECIMALS, 3),
        (12345).to_bytes(16, "little"),
        (10**30).to_bytes(16, "little"),
    ),
    "a word that its dictionary has not": (WORDS, offsets(3, 2, 1, 0), offsets(3, 2, 100, 0)),
}


def write(path: Path, column: Any, before: bytes = b"", after: bytes = b"") -> str:
    with pa.ipc.new_file(path, pa.schema([("c", column.type)])) as file:
        file.write_batch(pa.record_batch([column], names=["c"]))
    content = path.read_bytes()
    assert not before or content.count(before) == 1
    path.write_bytes(content.replace(before, after) if before else content)
    return str(path)


@pytest.mark.parametrize("name", BROKEN)
def test_values_that_are_not_of_their_type_are_refused(tmp_path: Path, name: str) -> None:
    (chunk,) = scan(write(tmp_path / "t.arrow", *BROKEN[name]))
    with pytest.raises(TableError, match=r"t\.arrow: column 'c' holds values that are not .*\. Write the table again"):
        read_chunk(chunk)


def test_text_that_is_not_utf8_is_refused_as_such(tmp_path: Path) -> None:
    (chunk,) = scan(write(tmp_path / "t.arrow", pa.array(["straight"]), b"straight", b"str\xff\xff\xfeht"))
    with pytest.raises(TableError, match="column 'c' is not UTF-8"):
        read_chunk(chunk)


@pytest.mark.parametrize("column", [LISTS, WORDS, DECIMALS, pa.array([[1], None, []]), pa.array(["é", None])])
def test_values_of_their_type_are_read(tmp_path: Path, column: Any) -> None:
    (chunk,) = scan(write(tmp_path / "t.arrow", column))
    assert read_chunk(chunk)["c"].to_pylist() == column.to_pylist()


def test_moments_of_two_time_zones_are_joined_as_those_of_utc(tmp_path: Path) -> None:
    moment = pa.array([0], pa.timestamp("us", "UTC"))
    files = [
        write(tmp_path / f"{zone[:2]}.arrow", moment.cast(pa.timestamp("us", zone))) for zone in ("Asia/Tokyo", "UTC")
    ]
    found = read_whole([chunk for file in files for chunk in scan(file)])["c"]
    assert found.type == pa.timestamp("us", "UTC")
    assert found.cast(pa.int64()).to_pylist() == [0, 0]


def test_runs_of_a_row_group_are_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnflow.storage.user_tables._RUN_BYTES", 1000)
    table = pa.table({"id": np.arange(999), "x": [[float(row)] * 3 for row in range(999)], "more": ["a"] * 999})
    folder = tmp_path / "t" / "day=3"
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "f.parquet", row_group_size=500)
    for chunk in scan(str(tmp_path / "t")):
        runs = list(iter_chunk(chunk, ["x", "day", "id"]))
        assert len(runs) > 3
        assert pa.concat_tables(runs).combine_chunks() == read_chunk(chunk, ["x", "day", "id"]).combine_chunks()
