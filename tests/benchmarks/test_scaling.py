"""What was measured decides what is simulated: speed-ups by rank count, and real steps beside simulated ones."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest
from scaling import draw, equal, joined, report, simulated, validation
from simulator import Measured
from step_times import Apart

CLUSTER = Namespace(bandwidth=10.0, latency=50.0, steps=40, seed=0, spread=0.0, longer=10.0, servers=2, ranks=128)


def tail(random):
    """Return by how much each step is late where one in ten takes three times as long."""
    return 1 + 2 * (random.random((1, 20)) < 0.1)


@pytest.fixture
def found():
    random = np.random.default_rng(0)
    turns = []
    for _ in range(2):
        parts = [random.gamma(50, seconds, (1, 20)) for seconds in (1e-4, 3e-4, 2e-4)]
        computed, clock = (
            Measured(*(each * late for each in parts), (40_000,), (0.9,)) for late in (1.0, tail(random))
        )
        turns.append(Apart(clock, computed).to_document())
    network = {"latency": 1e-5, "bandwidth": 1e9}
    ranks = {
        "1": {"steps": turns, "real": [0.03, 0.031], "served": []},
        "2": {"steps": turns, "network": network, "real": [0.033], "served": [0.04]},
    }
    return {"cores": 2, "load": 0.0, "model": "sage", "ranks": ranks, "push": {"alone": 2e-3, "many": 5e-4}} | {
        "answers": [0.0, 1e-6]
    }


def test_steps_of_all_turns_are_drawn_from(found):
    assert joined(found["ranks"]["1"]["steps"]).rest.shape == (1, 40)


def test_one_rank_is_the_unit_of_every_way(found):
    table = simulated(found, CLUSTER)
    assert all(row[1] == pytest.approx(1) for row in table.values())
    assert all(row[ranks] <= ranks * 1.05 for row in table.values() for ranks in row)


def test_what_costs_less_scales_further(found):
    table = simulated(found, CLUSTER)
    equal_steps, own, _, ahead, held_up, ring, longer, beside, _, stale, *_ = (row[128] for row in table.values())
    assert beside < own < equal_steps
    assert ring < own < longer
    assert held_up < ahead
    assert beside < stale  # what staleness hides


def test_equal_steps_are_as_long_as_the_measured_ones(found):
    measured = joined(found["ranks"]["1"]["steps"])
    assert equal(measured).rest.mean() == pytest.approx(measured.rest.mean())
    assert equal(measured).backward.std() == pytest.approx(0)


def test_real_runs_stand_beside_simulated_ones(found):
    pairs = validation(found, steps=50, seed=0)
    assert list(pairs) == ["1, all-reduce", "2, all-reduce", "2, one server"]
    assert [real for _, real in pairs.values()] == pytest.approx([0.0305, 0.033, 0.04])
    assert all(guess / real == pytest.approx(1, abs=0.2) for guess, real in pairs.values())


def test_the_report_and_the_plot_hold_every_way(found, tmp_path):
    table = simulated(found, CLUSTER)
    said = report(found, table, CLUSTER)
    assert all(f"| {name} |" in said for name in table)
    draw(table, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
