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
def test_one_process_and_each_of_a_ring_keep_the_budget(model: str, head: str, budget: int) -> None:
    # the ring's rows lie in memory that both ranks see, which the peak of either counts
    command = [sys.executable, str(BENCHMARK), "--nodes", "300000", "--edges", "3000000", "--rate", "0"]
    command += ["--repeats", "1", "--budget", str(budget), "--only", "one,ring", "--model", model, "--head", head]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])["results"]
    assert {"one", "ring"} == set(found)
    for how, told in found.items():
        assert told["intervals"] > 2, how  # else it was not the budget that cut the graph
        assert told["grown_mib"] <= budget, (how, told)
