"""The page of recommendations is run as it stands: its commands, its lines of Python and the claims between them."""

from __future__ import annotations

import re

import pyarrow.parquet as pq
import pytest

from tests.command_line import run_block
from tests.conftest import REPOSITORY

_PAGE = REPOSITORY / "docs" / "recommendations.md"


@pytest.mark.slow  # the training that the page shows: twenty seconds
@pytest.mark.merge
def test_the_page_of_recommendations_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```bash\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    shown = run_block(block)
    # users of the generated shop prefer two categories: the data has structure, and lists must show it
    assert "test.ndcg_at_10: better than popularity" in shown["recommend"]
    assert "test.mrr of the run: worse than item-kNN" in shown["recommend"]
    table = pq.read_table("lists.parquet")
    assert table.column_names == ["user", "item", "rank", "score"]
    assert table.num_rows == 10 * len(table["user"].unique())
    (code,) = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    names = {}
    exec(code, names)
    assert names["found"].reused
    assert names["found"].table == table
    # the figures that the page shows are printed with these names
    (figures,) = re.findall(r"```text\n(test: .*?)```", _PAGE.read_text(), re.DOTALL)
    for line in figures.splitlines()[2:8]:
        assert re.search(rf"^{re.escape(re.split(r'  +', line)[0])}  ", shown["recommend"], re.MULTILINE), line
