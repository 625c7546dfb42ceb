"""Every benchmark whose needs are here runs on its small sizes, and its table has its columns and finite figures."""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import HERE, line_of, missing, names


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(names()))
def test_a_small_run_has_its_columns_and_finite_figures(name: str, tmp_path: Path) -> None:
    bench = importlib.import_module(name).BENCH
    if absent := missing(bench.needs, data=os.environ.get("GNNFLOW_DATA", "data")):
        pytest.skip(f"needs {', '.join(absent)}")
    command = [sys.executable, str(HERE / f"{name}.py"), "--small", "--json", str(tmp_path / "rows.json")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    head, _, *lines = done.stdout.splitlines()
    assert head == line_of(bench.columns)
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert len(rows) == len(lines) > 0
    for row in rows:
        assert len(row) == len(bench.columns)
        # those of several seeds stand in a list
        figures = [each for cell in row for each in (cell if isinstance(cell, list) else [cell])]
        figures = [each for each in figures if isinstance(each, int | float)]
        assert figures
        assert all(math.isfinite(each) for each in figures)


def test_every_benchmark_says_what_it_measures_in_a_line() -> None:
    assert len(names()) > 20
    assert all(line.endswith(".") for line in names().values())
