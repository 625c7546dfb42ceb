"""Ranks that take an epoch's batches from one queue: each batch once, whatever their speed and through any restart.

The model has a weight per batch, and the gradient of a batch is minus one for its own weight: with steps of one a
weight says how often its batch is in the weights.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gnnflow.config import MiniBatchConfig
from gnnflow.graph.errors import ConfigError, GnnflowError
from gnnflow.train.ranks.pushing import ServedUpdater
from gnnflow.train.ranks.servers import Server
from gnnflow.train.ranks.stealing import BatchQueue
from gnnflow.train.source import DealtBatch
from tests.train.ranks.test_servers import Actor, Repeating
from tests.train.ranks.together import outcomes

SHARES, STEPS, EPOCHS = 3, 5, 3


def config_of(**keys: object) -> MiniBatchConfig:
    updater = {"kind": "parameter_server", "stealing": True, **keys}
    return MiniBatchConfig.model_validate({"optimizer": "sgd", "lr": 1.0, "updater": updater})


def queue_of(done=None, *, ranks=2, shares=SHARES, steps=STEPS):
    return BatchQueue(0, np.zeros((shares, steps), bool) if done is None else done, num_ranks=ranks)


@given(
    ranks=st.integers(1, 4),
    shares=st.integers(1, 4),
    steps=st.integers(1, 7),
    ahead=st.integers(1, 4),
    seed=st.integers(0, 2**31),
)
def test_every_batch_is_taken_once_in_any_order_of_ranks(ranks, shares, steps, ahead, seed):
    ranks, pick = min(ranks, shares), random.Random(seed)
    done = np.array([[pick.random() < 0.3 for _ in range(steps)] for _ in range(shares)])
    queue, seen = queue_of(done, ranks=ranks, shares=shares, steps=steps), []
    assert [queue.come(rank, ahead) for rank in pick.sample(range(ranks), ranks)][-1]
    held = [queue.first(rank) for rank in range(ranks)]
    while any(held):
        rank = pick.choice([rank for rank in range(ranks) if held[rank]])
        batch = held[rank].pop(0)
        assert queue.holds(rank)
        queue.finish(rank, batch)
        seen.append(batch)
        held[rank] += queue.take(rank)
    assert len(seen) == len(set(seen))
    assert set(seen) == {DealtBatch(*place) for place in np.argwhere(~done).tolist()}
    assert queue.done.all()
    assert not any(queue.holds(rank) for rank in range(ranks))


def ticks_of(queue, speeds, *, steals=True):
    """Return when the last batch is done, and how many each rank computed; a rank takes `speed` ticks for one."""
    left = [queue.take(rank) for rank in range(len(speeds))]
    free, counts, now = list(speeds), [0] * len(speeds), 0
    while any(left):
        now += 1
        for rank, speed in enumerate(speeds):
            if left[rank] and free[rank] == now:
                batch = left[rank].pop()
                queue.finish(rank, batch)
                counts[rank] += 1
                free[rank] = now + speed
                if steals or len(queue._left[rank]):
                    left[rank] = queue.take(rank)
    return now, counts


def test_a_slow_rank_costs_less_where_others_take_its_batches():
    speeds = [1, 4]
    planned, own = ticks_of(queue_of(shares=2, steps=20), speeds, steals=False)
    stolen, counts = ticks_of(queue_of(shares=2, steps=20), speeds)
    assert (planned, own) == (80, [20, 20])
    assert counts == [32, 8]
    assert stolen == 32


@given(share=st.lists(st.booleans(), min_size=4, max_size=4), first=st.sampled_from([0, 1]))
def test_no_batch_is_dealt_before_all_ranks_have_come_so_none_reaches_a_rank_that_has_ended(share, first):
    done = np.array([share, [False] * 4])
    server, size = Server(config_of(mode="asynchronous"), 2), (2, 4)

    async def dealt():
        await server.begin(0, [np.zeros(1, np.float32)], done=(3, done))
        early = asyncio.create_task(server.open_epoch(first, 3, size=size, count=3))
        await asyncio.sleep(0)
        assert not early.done()
        late = await server.open_epoch(1 - first, 3, size=size, count=3)
        return [*late, *await early]

    taken = asyncio.run(dealt())
    assert len(taken) == len(set(taken)) == min(6, (~done).sum())


def test_fewer_ranks_take_all_shares():
    queue = queue_of(ranks=2)
    assert [queue.take(0)[0].share for _ in range(2 * STEPS)] == [0] * STEPS + [2] * STEPS


@pytest.mark.parametrize("own", [True, False], ids=["own share left", "own share done"])
def test_every_rank_begins_with_its_own_share_while_there_is_some(own: bool):
    queue = queue_of(np.array([[not own], [False]]))
    assert not queue.come(1, 3)
    assert queue.first(1) is None
    assert queue.come(0, 3)
    assert [queue.first(rank) for rank in range(2)] == [[DealtBatch(0, 0)][:own], [DealtBatch(1, 0)]]


class Counting(nn.Module):
    """A weight per batch in two parameters, so that two servers have one each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.zeros(SHARES, STEPS)) for _ in range(2))

    def loss(self, batch: DealtBatch) -> torch.Tensor:
        return -(self.first[batch] + self.second[batch])

    @property
    def counts(self) -> list[np.ndarray]:
        return [each.detach().numpy().astype(int) for each in (self.first, self.second)]


class PulledError(Exception):
    """The plug was pulled."""


def _end_where(pulled: threading.Event, is_now: bool) -> None:
    if is_now:
        pulled.set()
    if pulled.is_set():
        raise PulledError


@dataclass
class Ran:
    """What the ranks have left behind: the last checkpoint, and how many batches each has computed."""

    checkpoint: tuple[int, dict[str, Any], dict[str, Any]] | None = None
    computed: dict[int, int] = field(default_factory=dict)


def epochs_on_ranks(
    ran: Ran,
    *,
    size: int,
    slow: float = 0.0,
    every: int = 0,
    pull: Any = None,
    servers: int = 2,
    actor: type[Actor] = Actor,
    **keys: object,
) -> list[Any]:
    """Train for some epochs, from the checkpoint where there is one. every: steps of rank 0 between checkpoints."""
    config = config_of(servers=servers, **keys)
    actors = [actor(config, size) for _ in range(servers)]
    begun = ran.checkpoint
    pulled = threading.Event()

    def one(group):
        model = Counting()
        updater = ServedUpdater(model, group, actors, fit=0)
        first = 0
        if begun is not None:
            first, weights, state = begun
            model.load_state_dict(weights)
            updater.restore(state)
        try:
            for epoch in range(first, EPOCHS):
                group.agree("epoch", epoch)
                for step, batch in enumerate(updater.take(epoch, size=(SHARES, STEPS), ahead=1)):
                    _end_where(pulled, pull is not None and pull(group.rank))
                    time.sleep(slow if group.rank else 0.0)
                    updater.step(model.loss(batch))
                    ran.computed[group.rank] = ran.computed.get(group.rank, 0) + 1
                    if every and group.rank == 0 and step % every == 0:
                        state = updater.state()
                        weights = {name: each.clone() for name, each in model.state_dict().items()}
                        ran.checkpoint = (epoch, weights, state)
                updater.settle()
            return model.counts, updater.figures()
        except PulledError:
            for each in actors:
                each.close()
            raise

    return outcomes(one, size)


@pytest.mark.table(2)
@pytest.mark.parametrize("actor", [Actor, Repeating])
@pytest.mark.parametrize("mode", ["bounded", "asynchronous"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_batch_of_an_epoch_is_in_the_weights_once(mode: str, size: int, actor: type[Actor]):
    ran = Ran()
    for counts, _ in epochs_on_ranks(ran, size=size, slow=0.01, mode=mode, actor=actor):
        assert all((each == EPOCHS).all() for each in counts)
    assert sum(ran.computed.values()) == SHARES * STEPS * EPOCHS


def test_a_slow_rank_computes_fewer_batches():
    ran = Ran()
    figures = [figures for _, figures in epochs_on_ranks(ran, size=3, slow=0.1, mode="asynchronous")]
    assert ran.computed[0] > 2 * max(ran.computed[1], ran.computed[2])
    # a rank holds two that nobody takes from it: the one that it computes and the one that it prepares
    assert min(ran.computed[1], ran.computed[2]) >= EPOCHS
    assert figures[0]["train.stolen_batches"] >= ran.computed[0] - STEPS * EPOCHS > 0


@pytest.mark.table(2)
@pytest.mark.parametrize("staleness", [0, 1])
def test_no_gradient_is_older_than_the_bound(staleness: int):
    found = epochs_on_ranks(Ran(), size=3, slow=0.05, mode="bounded", staleness=staleness, servers=1)
    free = epochs_on_ranks(Ran(), size=3, slow=0.05, mode="asynchronous", servers=1)
    # those that passed the bound last may all push before the one that they then wait for
    most = 3 * staleness + 3 - 1
    assert found[0][1]["train.max_staleness"] <= most < free[0][1]["train.max_staleness"]
    assert all((each == EPOCHS).all() for each in found[0][0])


def test_a_checkpoint_is_of_one_moment_on_all_servers():
    ran, told = Ran(), []

    class Kept(Ran):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "checkpoint" and value is not None:
                told.append(value)

    ran = Kept()
    epochs_on_ranks(ran, size=3, slow=0.01, every=1, mode="asynchronous")
    assert len(told) > EPOCHS
    for epoch, weights, state in told:
        assert int(state["queue/epoch"]) == epoch
        for each in weights.values():
            assert torch.equal(each, epoch + state["queue/done"].to(each.dtype))
    assert any(0 < int(state["queue/done"].sum()) < SHARES * STEPS for _, _, state in told)


@pytest.mark.table(2)
@pytest.mark.parametrize("seed", range(6))
def test_ranks_that_are_killed_lose_no_batch_and_repeat_none(seed: int):
    pick, ran, kills = random.Random(seed), Ran(), 0
    mode = pick.choice(["bounded", "asynchronous"])
    for _attempt in range(4):
        left, victim, size = count(), pick.randrange(2), pick.choice([2, 3])
        at = pick.randrange(1, 5)
        pull = lambda rank, at=at, victim=victim, left=left: rank == victim and next(left) >= at  # noqa: E731
        found = epochs_on_ranks(ran, size=size, slow=0.004, every=2, pull=pull, mode=mode)
        kills += any(isinstance(each, Exception) for each in found)
    assert kills >= 2
    for counts, _ in epochs_on_ranks(ran, size=2, every=2, mode=mode):
        assert all((each == EPOCHS).all() for each in counts)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"updater": {"kind": "parameter_server", "stealing": True}}, "stealing"),
        (
            {"accumulate": 2, "updater": {"kind": "parameter_server", "mode": "bounded", "stealing": True}},
            "accumulate",
        ),
    ],
)
def test_stealing_is_refused_where_ranks_wait_or_updates_have_several_batches(keys, key):
    with pytest.raises((GnnflowError, ConfigError, ValueError), match=key):
        MiniBatchConfig.model_validate(keys)
