"""A budget of memory is kept by processes as their peak is measured, alone and on a ring."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "streamed_ring.py"


@pytest.mark.parametrize(
    ("model", "head", "budget"), [("gcn", "direct", 130), ("gcn", "jumping", 130), ("ggcn", "direct", 200)]
)
def test_one_process_and_each_of_a_ring_keep_the_budget(model: str, head: str, budget: int, tmp_path: Path) -> None:
    # the ring's rows lie in memory that both ranks see, which the peak of either counts
    command = [sys.executable, str(BENCHMARK), "--nodes", "300000", "--edges", "3000000", "--rate", "0"]
    command += ["--repeats", "1", "--budget", str(budget), "--only", "one,ring", "--model", model, "--head", head]
    subprocess.run([*command, "--json", str(tmp_path / "rows.json")], check=True, stdout=subprocess.PIPE)
    found = json.loads((tmp_path / "rows.json").read_text())
    told = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    assert [each["form"] for each in told] == ["one", "ring"]
    for each in told:
        assert each["intervals"] > 2, each  # else it was not the budget that cut the graph
        assert each["grown MiB"] <= budget, each
