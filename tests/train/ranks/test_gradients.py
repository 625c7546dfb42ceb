"""The gradient of a step on several ranks is that of one rank on all of its targets."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from gnnflow.config import MiniBatchConfig
from gnnflow.train.objective import Objective
from gnnflow.train.ranks.gradients import AllReduce, _buckets
from gnnflow.train.ranks.operations import RankLostError, RankStoppedError
from gnnflow.train.updater import LocalUpdater
from tests.train.ranks.together import outcomes, together

CLASSES = 3
TARGETS = 24


_generator = threading.Lock()  # the ranks are threads, and torch's generator is the process's


def model_of(seed=0):
    with _generator:
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, CLASSES))


def rows_and_labels():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, CLASSES, TARGETS)
    labels[[1, 2, 3, 20]] = -1  # so that the ranks have unequal numbers of labelled targets
    return torch.from_numpy(rng.normal(size=(TARGETS, 5)).astype(np.float32)), labels


def bounds(rank, size):
    return slice(rank * TARGETS // size, (rank + 1) * TARGETS // size)


def steps(group, *, optimizer="sgd", class_weight=None, bucket_bytes=64, num_steps=5):
    """Return the weights after some steps on this rank's targets, and the losses; group None takes all of them."""
    model = model_of()
    objective = Objective("single", class_weight)
    exchange = AllReduce(model, group, bucket_bytes=bucket_bytes) if group else None
    config = MiniBatchConfig.model_validate({"optimizer": optimizer, "lr": 0.05})
    updater = LocalUpdater(model, config, exchange=exchange)
    rows, labels = rows_and_labels()
    own = bounds(group.rank, group.size) if group else slice(None)
    losses = []
    for _ in range(num_steps):
        loss, count = objective.loss(model(rows[own]), labels[own])
        taken = updater.step(loss, num_targets=count, weight=objective.weight(labels[own]))
        losses.append((taken.mean, taken.num_targets))
    return {name: value.detach() for name, value in model.state_dict().items()}, losses


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_ranks_step_as_one_rank_with_all_targets_does(size, optimizer):
    weights, losses = steps(None, optimizer=optimizer)
    for found, found_losses in together(lambda group: steps(group, optimizer=optimizer), size):
        np.testing.assert_allclose(found_losses, losses, rtol=1e-5)
        for name, value in weights.items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)


def test_class_weights_count_as_on_one_rank():
    class_weight = torch.tensor([0.2, 1.0, 5.0])
    weights, losses = steps(None, class_weight=class_weight)
    for found, found_losses in together(lambda group: steps(group, class_weight=class_weight), 3):
        np.testing.assert_allclose(found_losses, losses, rtol=1e-5)
        torch.testing.assert_close(found["0.weight"], weights["0.weight"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bucket_bytes", [1, 1 << 20])
def test_all_ranks_hold_the_same_bits_run_after_run(bucket_bytes):
    runs = [together(lambda group: steps(group, bucket_bytes=bucket_bytes), 4) for _ in range(2)]
    first, _ = runs[0][0]
    for weights, _ in (rank for run in runs for rank in run):
        assert all(torch.equal(weights[name], first[name]) for name in first)


def process_group(group):
    """The ranks' connection in the form that torch's own wrapper asks for."""
    held = torch.distributed.ProcessGroup(torch.distributed.HashStore(), group.rank, group.size)
    kind = torch.distributed.ProcessGroup.BackendType.GLOO
    held._set_default_backend(kind)
    held._register_backend(torch.device("cpu"), kind, group.backend)
    return held


@pytest.mark.keeps("descriptors", "threads")  # torch's wrapper lets go of its connection when it likes
def test_it_agrees_with_torchs_own_data_parallel_training():
    def theirs(group):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        parallel = torch.nn.parallel.DistributedDataParallel(model, process_group=process_group(group))
        rows, labels = rows_and_labels()
        own = bounds(group.rank, group.size)
        for _ in range(5):
            optimizer.zero_grad()
            # its gradient is the mean over ranks: a sum over targets times ranks, divided by all labelled targets
            loss = torch.nn.functional.cross_entropy(
                parallel(rows[own]), torch.from_numpy(labels[own]), ignore_index=-1, reduction="sum"
            )
            (loss * group.size / (labels >= 0).sum()).backward()
            optimizer.step()
        return model.state_dict()

    ours = together(steps, 2)
    for found, (weights, _) in zip(together(theirs, 2), ours, strict=True):
        for name, value in weights.items():
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def test_a_parameter_that_no_rank_used_gets_no_gradient_and_one_that_some_used_gets_theirs():
    def gradients(group):
        model = torch.nn.ParameterList([torch.zeros(2) for _ in range(3)])
        exchange = AllReduce(model, group)
        exchange.begin(loss=1.0, weight=1.0 + group.rank, num_targets=1)
        model[group.rank].sum().backward()  # number 2 is used by nobody
        exchange.finish()
        return [each.grad for each in model]

    for first, second, third in together(gradients, 2):
        torch.testing.assert_close(first, torch.full((2,), 1 / 3))
        torch.testing.assert_close(second, torch.full((2,), 2 / 3))
        assert third is None


def test_ranks_that_begin_at_different_weights_are_refused():
    def apart(group):
        model = model_of(seed=group.rank)
        AllReduce(model, group).begin(loss=1.0, weight=1.0, num_targets=1)

    for error in outcomes(apart, 2):
        assert isinstance(error, RankLostError)
        assert "do not have the same weights" in str(error)


def test_a_bucket_is_sent_before_the_backward_pass_ends():
    sent = []

    class Watched(AllReduce):
        def _send(self, *, everything):
            before = self._sent
            super()._send(everything=everything)
            sent.extend([everything] * (self._sent - before))

    def one_step(group):
        model = model_of()
        exchange = Watched(model, group, bucket_bytes=1)
        loss = model(torch.ones(2, 5)).sum()
        exchange.begin(loss=1.0, weight=1.0, num_targets=2)
        loss.backward()
        exchange.finish()

    assert together(one_step, 1) == [None]
    assert sent == [False] * 4


def test_buckets_hold_every_parameter_once_the_last_first():
    model = model_of()
    parameters = [parameter for bucket in _buckets(model, 50) for parameter in bucket.parameters]
    assert [id(each) for each in parameters] == [id(each) for each in reversed(list(model.parameters()))]


@pytest.mark.parametrize("size", [4, 5, 6])
def test_a_sum_ends_on_all_ranks_while_one_of_them_still_makes_its_next_batch(size):
    others = threading.Semaphore(0)

    def one(group):
        model = model_of()
        exchange = AllReduce(model, group)
        exchange.begin(loss=1.0, weight=1.0, num_targets=1)
        model(torch.full((1, 5), float(group.rank))).sum().backward()
        exchange.send()
        if group.rank == 0:
            ended = [others.acquire(timeout=10) for _ in range(size - 1)]
        exchange.finish()
        others.release()
        return model[0].weight.grad, group.rank or ended

    (first, ended), *rest = together(one, size)
    assert all(ended)
    assert all(torch.equal(first, found) for found, _ in rest)


def test_rounds_that_are_taken_beside_leave_the_bits_they_leave_otherwise(monkeypatch):
    ahead = together(steps, 5)
    monkeypatch.setattr("gnnflow.train.ranks.gradients._ONE_ROUND", 5)  # as where one round is all there is
    for (found, losses), (expected, expected_losses) in zip(ahead, together(steps, 5), strict=True):
        assert losses == expected_losses
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_rounds_end_when_their_rank_is_told_to_stop():
    def one(group):
        if group.rank == 3:
            return "left"
        model = model_of()
        exchange = AllReduce(model, group)
        exchange._agreed = True
        exchange.begin(loss=1.0, weight=1.0, num_targets=1)
        model(torch.ones(1, 5)).sum().backward()
        exchange.send()
        group.position.stop = True
        exchange.finish()
        return "finished"

    *found, left = outcomes(one, 4)
    assert left == "left"
    assert all(isinstance(each, RankStoppedError | RankLostError) for each in found)
