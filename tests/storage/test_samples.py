"""A sample is the first whole lines of a text file, also of a zipped one, and never ends inside of a quoted field."""

from __future__ import annotations

import gzip

import pytest

from gnnflow.storage.csv_blocks import head_span, open_csv, read_text
from gnnflow.storage.samples import sample_table


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
def test_a_head_of_text_ends_with_a_line(tmp_path, name):
    text = "id,f\n" + "".join(f"{number},{number}.5\n" for number in range(1000))
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    file = open_csv(str(path))
    rows = read_text(file, head_span(file, most=100), ["id", "f"], check=True)
    assert 0 < rows.num_rows < 20
    assert rows["f"].to_pylist() == [f"{number}.5" for number in range(rows.num_rows)]
    assert sample_table(str(path)).is_whole


def test_a_head_with_quotes_is_the_whole_file(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("id,f\n" + "".join(f'{number},"a\nb"\n' for number in range(100)))
    file = open_csv(str(path))
    assert read_text(file, head_span(file, most=50), ["id"], check=True).num_rows == 100
