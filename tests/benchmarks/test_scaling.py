"""What was measured decides what is simulated: speed-ups by rank count, and real steps beside simulated ones."""

from __future__ import annotations

from argparse import Namespace
from copy import deepcopy

import numpy as np
import pytest
from ranks import joined, validation
from scaling import equal, merged, simulated
from simulator import Measured
from step_times import Apart

CLUSTER = Namespace(bandwidth=10.0, latency=50.0, steps=40, seed=0, spread=0.0, longer=10.0, to=100)


def tail(random):
    """Return by how much each step is late where one in ten takes three times as long."""
    return 1 + 2 * (random.random((1, 20)) < 0.1)


@pytest.fixture(scope="module")
def measured():
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
        "1": {"steps": list(turns), "real": [(0.03, 0.03), (0.031, 0.03)]},
        "2": {"steps": list(turns), "network": network, "real": [(0.033, 0.03)]},
        "4": {"steps": list(turns), "network": network, "real": [(0.066, 0.03)]},
    }
    return {"cores": 2, "load": 0.0, "prefetch": 0, "ranks": ranks}


@pytest.fixture
def found(measured):
    return deepcopy(measured)


@pytest.fixture(scope="module")
def table(measured):
    return simulated(measured, CLUSTER)


def test_steps_of_all_turns_are_drawn_from(found):
    assert joined(found["ranks"]["1"]["steps"]).rest.shape == (1, 40)


@pytest.mark.slow
def test_one_rank_is_the_unit_of_every_way(table):
    assert all(row[1] == pytest.approx(1) for row in table.values())
    assert all(row[ranks] <= ranks * 1.05 for row in table.values() for ranks in row)


def test_what_costs_less_scales_further(table):
    equal_steps, _, own, ahead, held_up, apart, ring, longer, beside = (row[100] for row in table.values())
    assert beside < own < equal_steps
    assert ring < own < longer
    assert held_up < ahead
    assert apart < own  # its steps are shorter, and wait as long


def test_equal_steps_are_as_long_as_the_measured_ones(found):
    steps = joined(found["ranks"]["1"]["steps"])
    assert equal(steps).rest.mean() == pytest.approx(steps.rest.mean())
    assert equal(steps).backward.std() == pytest.approx(0)


def test_real_runs_stand_beside_simulated_ones(found):
    pairs = validation(found, steps=50, seed=0)
    assert list(pairs) == [1, 2, 4]
    assert [real for _, real in pairs.values()] == pytest.approx([0.0305, 0.033, 0.066])
    assert all(guess / real == pytest.approx(1, abs=0.2) for guess, real in pairs.values())


def test_ranks_that_share_cores_are_simulated_on_them(found):
    four, _ = validation(found, steps=50, seed=0)[4]
    alone, _ = validation(found | {"pinned": 1}, steps=50, seed=0)[4]
    assert four == pytest.approx(2 * 0.03, rel=0.1)
    assert alone < 0.65 * four


def test_runs_are_joined(found):
    again = deepcopy(found)
    both = merged([found, again])
    assert joined(both["ranks"]["1"]["steps"]).rest.shape == (1, 80)
    assert len(both["ranks"]["2"]["real"]) == 2
