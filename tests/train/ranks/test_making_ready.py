"""A rank makes its next batch ready while its gradients travel, and trains on the same steps as one that does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gnnflow.config import MiniBatchConfig
from gnnflow.train.ranks.operations import Position
from gnnflow.train.ranks.source import JointStep, SharedSource
from gnnflow.train.updater import LocalUpdater, StepLoss


def source_of(numbers, *, shares=1, begun=None):
    """Shares whose steps are numbers; `begun` hears of each as it is made ready."""

    def step(epoch, number):
        if begun is not None:
            begun.append((epoch, number))
        return number

    group = SimpleNamespace(position=Position(), agree=lambda *_: None, check=lambda: None)
    share = SimpleNamespace(steps_per_epoch=len(numbers), step=step, ahead=0, is_held=lambda *_, **__: False)
    return SharedSource([share] * shares, group)


@pytest.mark.parametrize("since", [0, 2, 4])
def test_every_step_comes_once_and_in_order_whenever_it_was_made_ready(since):
    begun = []
    source = source_of(range(4), begun=begun)
    found = []
    for step in source.steps(7, since=since):
        source.make_ready()
        source.make_ready()
        found.append(step)
    assert found == list(range(4))[since:]
    assert begun == [(7, step) for step in found]


def test_an_epoch_that_was_left_leaves_nothing_to_the_next():
    source = source_of(range(4))
    steps = source.steps(0, since=0)
    assert next(steps) == 0
    source.make_ready()
    assert list(source.steps(1, since=1)) == [1, 2, 3]


def test_several_shares_of_a_step_are_made_ready_together():
    source = source_of(range(3), shares=2)
    source.make_ready()
    assert [step.shares for step in source.steps(0, since=1) if isinstance(step, JointStep)] == [(1, 1), (2, 2)]


def test_the_next_batch_is_made_ready_between_sending_and_waiting():
    calls = []

    class Told:
        def part(self, loss, weight):
            return loss, weight

        def begin(self, *, loss, weight, num_targets):
            calls.append("begin")

        def send(self):
            calls.append("send")

        def finish(self):
            calls.append("finish")
            return StepLoss(0.0, 1)

    model = torch.nn.Linear(2, 1)
    config = MiniBatchConfig.model_validate({"lr": 0.1})
    updater = LocalUpdater(model, config, exchange=Told(), meanwhile=lambda: calls.append("meanwhile"))
    updater.step(model(torch.ones(1, 2)).sum())
    assert calls == ["begin", "send", "meanwhile", "finish"]
    assert updater.spent()["wait_seconds"] >= 0
