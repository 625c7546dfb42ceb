"""The simulator gives what can be worked out by hand, and what it is fed with is what training does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulator import (
    Measured,
    Network,
    Placing,
    all_reduced,
    drawn,
    fitted_network,
    from_document,
    speed_ups,
    to_document,
)
from step_times import in_buckets, steps_of
from torch import nn

from gnnflow.train.ranks.gradients import _buckets
from tests.train.planted import job_for, planted

FREE = Network(0.0, 1e18)
DRAWING = {"steps": 50, "seed": 0}


def equal_steps(*, build=0.0, rest=0.02, backward=0.01, sizes=(1000,), ready=(1.0,)) -> Measured:
    return Measured(*(np.full((1, 4), each) for each in (build, rest, backward)), sizes, ready)


def uneven_steps() -> Measured:
    random = np.random.default_rng(3)
    build, rest, backward = (random.uniform(*each, (2, 40)) for each in ((0.0, 0.02), (0.01, 0.03), (0.005, 0.02)))
    return Measured(build, rest, backward, (50_000,), (0.9,))


@pytest.mark.parametrize("ranks", [1, 2, 7, 300])
def test_equal_steps_over_a_free_network_scale_with_the_ranks(ranks):
    assert all_reduced(equal_steps(), FREE, ranks=ranks, **DRAWING) == pytest.approx(0.03)
    assert speed_ups({1: 0.03, ranks: 0.03})[ranks] == pytest.approx(ranks)


def test_a_message_that_is_ready_last_is_added_to_the_step():
    network = Network(1e-3, 1e6)
    ring, doubling = 6 * 1e-3 + 2 * 3 / 4 * 1000 / 1e6, 2 * 1e-3 + 2 * 1000 / 1e6
    assert all_reduced(equal_steps(), network, ranks=4, algorithm="ring", **DRAWING) == pytest.approx(0.03 + ring)
    assert all_reduced(equal_steps(), network, ranks=4, **DRAWING) == pytest.approx(0.03 + doubling)


def test_the_rounds_of_doubling_after_the_first_follow_the_backward_pass():
    early = equal_steps(sizes=(8, 8), ready=(0.0, 0.0))
    assert all_reduced(early, Network(1e-3, 1e18), ranks=8, **DRAWING) == pytest.approx(0.03 + 2e-3)


def test_a_message_that_is_ready_early_travels_during_the_backward_pass():
    early = equal_steps(sizes=(1000, 1000), ready=(0.0, 0.1))
    assert all_reduced(early, Network(1e-4, 1e9), ranks=2, **DRAWING) == pytest.approx(0.03, rel=1e-3)


def test_a_third_large_message_waits_for_one_of_two_threads():
    network, ring = Network(0.02, 1e18), 4 * 0.02
    at_once = equal_steps(backward=1e-9, sizes=(1 << 18,) * 3, ready=(0.0, 0.0, 0.0))
    assert all_reduced(at_once, network, ranks=3, **DRAWING) == pytest.approx(0.02 + 2 * ring, rel=1e-6)


def test_a_step_takes_as_long_as_the_slowest_rank():
    measured = uneven_steps()
    _, rest, backward = drawn(measured, ranks=6, **DRAWING)
    expected = (rest + backward).max(axis=1).mean()
    without = replace(measured, build=np.zeros_like(measured.build))
    assert all_reduced(without, FREE, ranks=6, **DRAWING) == pytest.approx(expected)


def test_a_batch_is_made_while_the_only_round_of_two_ranks_travels():
    slow, network = equal_steps(build=0.02), Network(0.02, 1e18)  # a hop takes as long as a batch
    assert all_reduced(slow, network, ranks=2, **DRAWING) == pytest.approx(0.03 + 0.02, rel=0.01)


@pytest.mark.parametrize(("answer", "rounds"), [(0.0, 0.06), (0.002, 0.06 + 0.002), (1.0, 0.04 + 0.04)])
def test_rounds_go_on_while_batches_are_made_as_late_as_ranks_answer(answer, rounds):
    slow, network = equal_steps(build=0.04), Network(0.02, 1e18)  # three rounds of 0.02
    found = all_reduced(slow, network, ranks=8, answers=[answer], **DRAWING)
    assert found == pytest.approx(0.03 + rounds, rel=0.02)


def test_of_two_ranks_one_that_is_behind_is_waited_for_once_the_other_has_its_batch():
    build = np.array([[0.0, 0.02] * 20, [0.02, 0.0] * 20])
    measured = Measured(build, np.full_like(build, 0.02), np.full_like(build, 0.01), (8,), (1.0,))
    found = all_reduced(measured, FREE, ranks=2, **DRAWING)
    build, *_ = drawn(measured, ranks=2, **DRAWING)
    assert 0.03 + build.mean() <= found < 0.03 + build.max(axis=1).mean() - 0.001


def test_a_reader_hides_what_batches_take_until_they_take_longer_than_steps():
    for build, step in ((0.02, 0.03), (0.05, 0.05)):
        found = all_reduced(
            equal_steps(build=build), FREE, ranks=9, prefetch=2, hosts=Placing(ranks=1, cores=2), **DRAWING
        )
        assert found == pytest.approx(step, rel=0.05)


def test_doubling_takes_fewer_hops_than_the_ring_and_a_large_message_goes_round_it():
    network = Network(1e-3, 1e18)
    assert network.all_reduce(8, ranks=1024) == pytest.approx(10e-3)
    assert network.all_reduce(1 << 18, ranks=1024) == pytest.approx(20e-3)
    assert network.all_reduce(8, ranks=1024, algorithm="ring") == pytest.approx(2.046)
    assert network.all_reduce(1 << 30, ranks=1024) == pytest.approx(2.046)


def test_measured_ranks_are_simulated_themselves_before_any_is_drawn_twice():
    nothing = np.zeros((3, 5))
    measured = Measured(nothing, np.arange(3.0)[:, None] + nothing, nothing, (4,), (1.0,))
    _, rest, _ = drawn(measured, ranks=3, **DRAWING)
    assert sorted(rest[0]) == [0, 1, 2]
    assert (rest == rest[0]).all()


def test_the_first_step_of_an_epoch_is_that_of_all_ranks():
    # three epochs of four steps, the first of each three times as long
    rest = np.tile([0.03, 0.01, 0.01, 0.01], 3)[None]
    measured = Measured(np.zeros_like(rest), rest, np.zeros_like(rest), (8,), (1.0,), per_epoch=4)
    _, found, _ = drawn(measured, ranks=50, **DRAWING)
    assert (found == found[:, :1]).all()
    assert all_reduced(measured, FREE, ranks=50, **DRAWING) == pytest.approx(found.max(axis=1).mean())
    alone = replace(measured, per_epoch=1)
    assert all_reduced(alone, FREE, ranks=50, **DRAWING) > 1.8 * rest.mean()


def test_a_seed_gives_the_same_figures():
    one, two, other = (
        all_reduced(uneven_steps(), Network(1e-4, 1e9), ranks=9, steps=50, seed=seed, spread=0.1) for seed in (1, 1, 2)
    )
    assert one == two != other


def test_a_network_is_fitted_to_its_own_times():
    network, sizes = Network(4e-5, 2e9), (256, 1 << 16, 1 << 22)
    found = fitted_network(sizes, [network.all_reduce(size, ranks=4) for size in sizes], ranks=4)
    assert (found.latency, found.bandwidth) == pytest.approx((4e-5, 2e9))


def test_what_was_measured_is_read_as_it_was_written():
    measured = uneven_steps()
    again = from_document(to_document(measured))
    np.testing.assert_allclose(again.rest, measured.rest, atol=1e-7)
    assert (again.bucket_bytes, again.bucket_ready) == ([50_000], [0.9])


@pytest.mark.parametrize("bucket_bytes", [1, 100, 1000, 1 << 20])
def test_buckets_are_those_that_all_reduce_sends(bucket_bytes):
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 7), nn.Linear(7, 2))
    numbers = {id(each): number for number, each in enumerate(model.parameters())}
    sent = [[numbers[id(each)] for each in bucket.parameters] for bucket in _buckets(model, bucket_bytes)]
    assert in_buckets([each.nbytes for each in model.parameters()], bucket_bytes) == sent


def test_a_rank_alone_is_measured_step_by_step():
    graph = planted()
    steps = steps_of(job_for(graph, epochs=3, batch_size=30, patience=0, prefetch=0), graph.open_source)
    clock, computed = steps.parts[..., 0], steps.parts[..., 1]
    assert clock.shape == (3, 2 * 4)
    assert (clock > 0).all()
    assert computed.sum() <= clock.sum() * 1.01
    assert all(0 < share <= 1 for share in steps.ready)
