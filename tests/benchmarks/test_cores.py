"""Ranks that share cores take what can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from simulator import Computing, Measured, Network, Placing, advance, all_reduced, beginning, drawn, stepping

FREE = Network(0.0, 1e18)
DRAWING = {"steps": 60, "seed": 0}
PASS = 0.03


def equal_steps(build=0.0, per_epoch=1) -> Measured:
    parts = (np.full((1, 60), each) for each in (build, 0.02, 0.01))
    return Measured(*parts, (8,), (1.0,), per_epoch=per_epoch)


def uneven_steps() -> Measured:
    random = np.random.default_rng(5)
    parts = (random.uniform(*each, (1, 500)) for each in ((0.005, 0.03), (0.01, 0.03), (0.005, 0.01)))
    return Measured(*parts, (8,), (0.9,))


@pytest.mark.parametrize(("ranks", "cores"), [(1, 1), (2, 2), (4, 2), (6, 2), (12, 8)])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_equal_ranks_take_as_much_longer_as_there_are_more_than_cores(ranks, cores, prefetch):
    found = all_reduced(equal_steps(), FREE, ranks=ranks, prefetch=prefetch, hosts=Placing(ranks, cores), **DRAWING)
    assert found == pytest.approx(PASS * ranks / cores)


def test_more_cores_than_threads_are_of_no_use():
    found = [
        all_reduced(uneven_steps(), FREE, ranks=3, prefetch=2, hosts=Placing(3, cores), **DRAWING) for cores in (6, 60)
    ]
    assert found[0] == found[1]


def test_ranks_with_a_core_each_are_as_fast_on_one_host_as_on_many():
    found = [all_reduced(uneven_steps(), FREE, ranks=4, hosts=hosts, **DRAWING) for hosts in (Placing(), Placing(4, 4))]
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_a_rank_alone_gains_nothing_from_a_reader_on_its_own_core():
    build, rest, backward = drawn(uneven_steps(), ranks=1, **DRAWING)
    found = all_reduced(uneven_steps(), FREE, ranks=1, prefetch=2, hosts=Placing(1, 1), **DRAWING)
    # but two batches at the end, which no step is trained on
    assert found == pytest.approx((build + rest + backward).mean(), rel=0.05)


def test_a_reader_that_shares_the_core_makes_batches_while_its_rank_waits():
    keys = {"ranks": 16, **DRAWING}
    waiting, ahead, own = (
        all_reduced(uneven_steps(), FREE, hosts=hosts, prefetch=prefetch, answers=[answer], **keys)
        for hosts, prefetch, answer in ((Placing(), 0, 1.0), (Placing(), 2, 0.0), (Placing(1, 2), 2, 0.0))
    )
    build, rest, backward = drawn(uneven_steps(), ranks=16, steps=60, seed=0)
    work = (build + rest + backward).mean(axis=0)
    assert work.max() * 0.95 < ahead < waiting
    assert own < ahead


def test_a_waiting_rank_leaves_its_share_to_the_other():
    rest = np.tile([[0.01], [0.03]], (1, 60))
    measured = Measured(np.zeros_like(rest), rest, np.full_like(rest, 1e-9), (8,), (1.0,))
    found = all_reduced(measured, FREE, ranks=2, hosts=Placing(2, 1), **DRAWING)
    assert found == pytest.approx(0.04, rel=1e-5)


def test_events_of_a_step_are_those_of_fair_shares():
    passes = np.array([[[0.1, 0.3]]])
    computing = Computing(np.zeros((1, 1, 2)), 0 * passes, passes, (0.5,), prefetch=0, cores=1, per_epoch=1)
    _, times = advance(stepping(beginning(computing), computing, 0), computing, 0)
    # both at half speed until 0.2, then one alone; half of its pass is over at 0.25
    np.testing.assert_allclose(times.done, [[0.2, 0.4]])
    np.testing.assert_allclose(times.ready, [[[0.1, 0.25]]])
    np.testing.assert_allclose(times.free, [0.4])


def test_ranks_stop_where_they_are_told_to():
    passes = np.full((1, 1, 1), 0.1)
    computing = Computing(passes, 0 * passes, passes, (1.0,), prefetch=2, cores=1, per_epoch=9)
    state, _ = advance(stepping(beginning(computing), computing, 0), computing, 0, until=0.14)
    # a batch, then the second one and the pass at half speed
    np.testing.assert_allclose([state.clock[0], state.left[0, 0], state.batch[0, 0]], [0.14, 0.08, 0.08])
    assert state.made == 1


def test_an_epochs_first_batch_is_not_made_in_the_epoch_before():
    keys = {"ranks": 1, "prefetch": 2, "hosts": Placing(1, 2), **DRAWING}
    through, anew = (all_reduced(equal_steps(build=0.02, per_epoch=each), FREE, **keys) for each in (60, 5))
    assert anew - through == pytest.approx(0.02 * 11 / 60)
