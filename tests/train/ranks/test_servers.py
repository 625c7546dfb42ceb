"""Parameter servers: synchronous is all-reduce to rounding, bounded keeps its bound, asynchronous waits for nobody."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np
import pytest
import torch

from gnnflow.config import MiniBatchConfig, TrainConfig
from gnnflow.train.objective import Objective
from gnnflow.train.ranks.operations import RankLostError
from gnnflow.train.ranks.pushing import ServedUpdater
from gnnflow.train.ranks.server_shard import Push, dealt
from gnnflow.train.ranks.servers import Server, ServerClosedError
from gnnflow.train.updater import StepLoss
from tests.train.ranks.test_gradients import bounds, model_of, rows_and_labels
from tests.train.ranks.test_gradients import steps as all_reduced
from tests.train.ranks.together import outcomes, together

# One for all servers, since a loop holds sockets until it is closed. Not made when first asked for: two ranks may ask
# at once, and a server's waits belong to one loop.
LOOP = asyncio.new_event_loop()
threading.Thread(target=LOOP.run_forever, daemon=True).start()


class Actor:
    """A server on an event loop, called as a Dask actor is."""

    def __init__(self, train: TrainConfig, num_ranks: int) -> None:
        self.server = Server(train, num_ranks)

    def __getattr__(self, name: str):
        call = getattr(self.server, name)
        return lambda *args, **keys: asyncio.run_coroutine_threadsafe(call(*args, **keys), LOOP)


class Repeating(Actor):
    """An actor whose calls all come twice, as after a lost answer; a call gets the answer to the second."""

    def __getattr__(self, name: str):
        call = super().__getattr__(name)

        def twice(*args, **keys):
            call(*args, **keys)
            return call(*args, **keys)

        return twice


def config_of(**keys: object) -> TrainConfig:
    updater = {"kind": "parameter_server", **keys}
    return MiniBatchConfig.model_validate({"optimizer": "adam", "lr": 0.05, "updater": updater})


def train(group, actors, *, num_steps=5, seconds=0.0, resume=None, seen=None):
    """Return weights after some steps on this rank's targets, losses and the optimiser's state."""
    model = model_of()
    updater = ServedUpdater(model, group, actors, fit=0)
    if resume is not None:
        model.load_state_dict(resume[0])
        updater.restore(resume[1])
    rows, labels = rows_and_labels()
    own = bounds(group.rank, group.size)
    objective = Objective("single")
    losses = []
    for _ in range(num_steps):
        time.sleep(seconds)
        loss, count = objective.loss(model(rows[own]), labels[own])
        taken = updater.step(loss, num_targets=count, weight=objective.weight(labels[own]))
        losses.append((taken.mean, taken.num_targets))
        if seen is not None:
            seen.append(actors[0].clocks().result(timeout=5))
    updater.settle()
    weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
    return weights, losses, updater.state()


@pytest.mark.parametrize("servers", [1, 2, 9])
@pytest.mark.parametrize("size", [2, 3])
def test_synchronous_servers_step_as_all_reduce_does(size, servers):
    config = config_of(mode="synchronous", servers=servers)
    actors = [Actor(config, size) for _ in range(servers)]
    expected, expected_losses = together(lambda group: all_reduced(group, optimizer="adam"), size)[0]
    for weights, losses, _ in together(lambda group: train(group, actors), size):
        np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
        for name, value in expected.items():
            torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-6)


def served(size, *, actor=Actor, **keys):
    actors = [actor(config_of(mode="synchronous"), size)]
    return together(lambda group: train(group, actors, **keys), size)


def test_synchronous_servers_give_the_same_bits_run_after_run():
    runs = [served(3) for _ in range(2)]
    first = runs[0][0][0]
    for weights, _, _ in (rank for run in runs for rank in run):
        assert all(torch.equal(weights[name], first[name]) for name in first)


def test_calls_that_come_twice_count_once():
    first, losses, _ = served(3)[0]
    for weights, found, _ in served(3, actor=Repeating):
        assert found == losses
        assert all(torch.equal(weights[name], first[name]) for name in first)


def test_a_push_that_comes_again_is_answered_and_not_added():
    actor, ones = Actor(config_of(mode="asynchronous"), 2), np.ones(3, np.float32)
    actor.begin(0, [ones]).result(5)
    pushes = [
        Push(rank, step, ones * (step + 1), np.ones(1, bool), loss=rank + step, weight=1.0, num_targets=4)
        for rank, step in [(0, 0), (1, 0), (0, 1)]
    ]
    first = actor.push(pushes[0]).result(5)
    other = actor.push(pushes[1]).result(5)
    again = actor.push(pushes[0]).result(5)
    assert again.loss == first.loss
    assert again.version == other.version == 2
    np.testing.assert_array_equal(again.weights, other.weights)
    assert actor.push(pushes[2]).result(5).loss == StepLoss(1.0, 8)  # that of rank 1 since, and its own
    assert actor.clocks().result(5) == [2, 1]
    with pytest.raises(ServerClosedError, match="rank 0 is past its step 0"):
        actor.push(pushes[0]).result(5)


def test_servers_that_begin_with_a_stored_state_take_the_same_next_steps():
    whole = served(2, num_steps=6)[0][0]
    weights, _, state = served(2, num_steps=3)[0]
    again = served(2, num_steps=3, resume=(weights, state))[0][0]
    assert all(torch.equal(again[name], whole[name]) for name in whole)


def slow_second_rank(config, *, num_steps=12):
    actors, seen = [Actor(config, 2)], []

    def one(group):
        mine = seen if group.rank == 0 else None
        return train(group, actors, num_steps=num_steps, seconds=0.05 * group.rank, seen=mine)

    found = together(one, 2)
    return found, [mine - other for mine, other in seen]


@pytest.mark.table(2)
@pytest.mark.parametrize("staleness", [0, 2])
def test_no_rank_is_more_than_its_bound_ahead_of_a_slow_one(staleness):
    found, ahead = slow_second_rank(config_of(mode="bounded", staleness=staleness))
    assert max(ahead) == staleness
    assert all(torch.equal(found[0][0][name], found[1][0][name]) for name in found[0][0])


def test_asynchronous_servers_let_a_fast_rank_go_on():
    found, ahead = slow_second_rank(config_of(mode="asynchronous"))
    assert max(ahead) > 4
    assert all(torch.equal(found[0][0][name], found[1][0][name]) for name in found[0][0])


@pytest.mark.table(2)
@pytest.mark.parametrize("mode", ["bounded", "asynchronous"])
def test_every_target_is_counted_once(mode):
    found, _ = slow_second_rank(config_of(mode=mode))
    counts = [sum(count for _, count in losses) for _, losses, _ in found]
    _, labels = rows_and_labels()
    assert max(counts) <= 12 * (labels >= 0).sum()
    assert counts[1] == 12 * (labels >= 0).sum()  # the slow rank hears of all


def test_a_server_that_is_closed_lets_ranks_go():
    config = config_of(mode="synchronous")
    actors, over = [Actor(config, 2)], threading.Event()

    def one(group):
        if group.rank == 0:
            threading.Timer(0.3, actors[0].close).start()
            try:
                return train(group, actors)
            finally:
                over.set()
        updater = ServedUpdater(model_of(), group, actors, fit=0)
        updater._begin()
        assert over.wait(60)
        return None

    first, second = outcomes(one, 2)
    assert isinstance(first, RankLostError)
    assert second is None
    assert "parameter server 0 cannot be reached" in str(first)


def test_a_server_of_ranks_that_were_lost_after_their_last_step_has_seen_nothing_stale():
    figures = Actor(config_of(mode="asynchronous"), 2).figures().result()
    assert figures == {"train.mean_staleness": 0.0, "train.max_staleness": 0, "train.stolen_batches": 0}


def test_parameters_are_dealt_to_servers_by_size_and_each_once():
    parameters = [torch.zeros(size) for size in (100, 60, 50, 1, 1)]
    held = dealt(parameters, 2)
    assert sorted(number for numbers in held for number in numbers) == [0, 1, 2, 3, 4]
    assert sorted(sum(parameters[number].numel() for number in numbers) for numbers in held) == [102, 110]
    assert dealt(parameters[:1], 3) == [[0]]
