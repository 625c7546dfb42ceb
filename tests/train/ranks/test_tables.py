"""Tables that are looked up by rows: the weights of a dense optimiser, for the bytes of the rows that a batch reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from gnnflow.config import MiniBatchConfig, SAGEConfig
from gnnflow.layers import FeatureTensors
from gnnflow.layers.encoders import BagEncoder
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.layers.typed import TypedInputs, TypeInputs
from gnnflow.train.objective import build_optimizer
from gnnflow.train.ranks.pushing import ServedUpdater
from gnnflow.train.ranks.server_shard import Push, RowGradients, Shard
from gnnflow.train.ranks.tables import CATCH_UP_STEPS, RowTable
from gnnflow.train.updater import LocalUpdater
from tests.train.ranks.test_servers import Actor, config_of
from tests.train.ranks.together import together

ROWS, WIDTH = 40, 3
OPTIMIZERS = [("adam", 0.0), ("adam", 0.01), ("adamw", 0.1), ("sgd", 0.0), ("sgd", 0.1)]


def touched(step):
    """Some rows that a step reads: the last are read once, and rows 30 and more never."""
    rows = {step % 7, 7 + step % 11, 20 if step == 3 else 19}
    return torch.tensor(sorted(rows))


def rate(step):
    return 0.05 / (1 + step % 5)


@pytest.mark.parametrize(("optimizer", "decay"), OPTIMIZERS)
def test_rows_take_the_steps_that_a_dense_optimiser_would_have_taken(optimizer, decay):
    config = MiniBatchConfig.model_validate({"optimizer": optimizer, "weight_decay": decay})
    random = torch.Generator().manual_seed(0)
    begin = torch.randn(ROWS, WIDTH, generator=random)
    dense = torch.nn.Parameter(begin.clone())
    theirs = build_optimizer(torch.nn.ParameterList([dense]), config)
    table, lent = RowTable(begin.clone(), config), torch.nn.Parameter(begin[:0].clone())
    ours = build_optimizer(torch.nn.ParameterList([lent]), config)
    for step in range(CATCH_UP_STEPS + 220):
        rows = touched(step)
        gradient = torch.randn(len(rows), WIDTH, generator=random)
        dense.grad = torch.zeros_like(dense).index_copy(0, rows, gradient)
        table.lend(rows, lent, ours)
        lent.grad = gradient
        for each in (theirs, ours):
            each.param_groups[0]["lr"] = rate(step)
            each.step()
        table.store_rows(rows, lent, ours)
        if step in {10, 50}:
            torch.testing.assert_close(table.rows(torch.tensor([0, 20, 35])), dense[[0, 20, 35]].detach())
    torch.testing.assert_close(table.whole(), dense.detach(), rtol=1e-5, atol=1e-6)
    kept = table.state()
    for name, value in theirs.state[dense].items():
        if value is not None:
            torch.testing.assert_close(kept[name], value, rtol=1e-5, atol=1e-7)


def test_a_table_that_is_restored_goes_on_with_the_same_bits():
    config = MiniBatchConfig.model_validate({"optimizer": "adam"})

    def steps(shard, numbers):
        for step in numbers:
            rows = touched(step).numpy()
            gradients = np.full((len(rows), WIDTH), np.float32(np.sin(step)))
            push = Push(
                0,
                step,
                np.ones(2, np.float32),
                np.ones(1, bool),
                loss=1.0,
                weight=2.0,
                num_targets=2,
                tables=(RowGradients(rows, gradients),),
            )
            shard.step([push])
        return shard

    begin = [np.zeros(2, np.float32), np.ones((ROWS, WIDTH), np.float32)]
    first = steps(Shard(begin, config, tables=1), range(20))
    second = Shard([first.weights(), first.whole_tables()[0]], config, tables=1)
    second.restore(first.state())
    for shard in (first, second):
        steps(shard, range(20, 30))
    np.testing.assert_array_equal(first.weights(), second.weights())
    np.testing.assert_array_equal(first.whole_tables()[0], second.whole_tables()[0])


class Bag(torch.nn.Module):
    """An embedding bag and a head."""

    def __init__(self, rows, width):
        super().__init__()
        self.bag, self.head = BagEncoder(rows, width), torch.nn.Linear(width, 2)

    def forward(self, features):
        return self.head(torch.relu(self.bag(features)))


@dataclass
class Bags:
    """A step's share: some targets of so many features each."""

    features: FeatureTensors


def bag_of(rows=ROWS, width=WIDTH):
    model = Bag(rows, width)
    random = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=random)
    return model


def share_of(step, *, rank=0, rows=ROWS, targets=4, entries=3):
    random = np.random.default_rng([step, rank])
    index = random.integers(rows, size=targets * entries)
    value = random.normal(size=len(index)).astype(np.float32)
    offsets = np.arange(0, len(index) + 1, entries)
    return Bags(
        FeatureTensors(rows, offsets=torch.tensor(offsets), index=torch.tensor(index), value=torch.tensor(value))
    )


def loss_of(model, share):
    return model(share.features).square().mean()


def served(group, actors, *, num_steps=12, rows_bytes=0, parts=1):
    """Return the weights after some steps, and the updater."""
    model = bag_of()
    updater = ServedUpdater(model, group, actors, fit=0, rows_bytes=rows_bytes)
    for step in range(num_steps):
        share = share_of(step, rank=group.rank)
        updater.look_up([share])
        figures = {"num_targets": 4, "weight": 4.0}
        if (step + 1) % parts:
            updater.hold(loss_of(model, share), **figures)
        else:
            updater.step(loss_of(model, share), **figures)
    updater.settle()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}, updater


def alone(config, *, size, num_steps=12):
    """Return the weights of one rank that takes all shares in each step."""
    model = bag_of()
    updater = LocalUpdater(model, config)
    for step in range(num_steps):
        losses = [loss_of(model, share_of(step, rank=rank)) for rank in range(size)]
        updater.step(torch.stack(losses).mean())
    return model.state_dict()


@pytest.mark.table(2)
@pytest.mark.parametrize(("servers", "clip_norm"), [(1, None), (1, 0.3), (3, None)])
@pytest.mark.parametrize(("optimizer", "decay"), OPTIMIZERS)
def test_synchronous_servers_that_send_rows_give_the_weights_of_one_rank(optimizer, decay, servers, clip_norm):
    config = config_of(mode="synchronous", servers=servers).model_copy(
        update={"optimizer": optimizer, "weight_decay": decay, "clip_norm": clip_norm}
    )
    actors = [Actor(config, 2) for _ in range(servers)]
    expected = alone(config, size=2)
    for found, _ in together(lambda group: served(group, actors), 2):
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


def test_rows_and_whole_tables_give_the_same_weights_where_batches_accumulate():
    config = config_of(mode="synchronous")

    def weights(rows_bytes):
        actors = [Actor(config, 2)]
        return together(lambda group: served(group, actors, parts=3, rows_bytes=rows_bytes), 2)[0][0]

    by_rows, whole = weights(0), weights(1 << 20)
    for name, value in whole.items():
        torch.testing.assert_close(by_rows[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["bounded", "asynchronous"])
def test_servers_that_do_not_wait_send_rows_too(mode):
    actors = [Actor(config_of(mode=mode), 2)]
    first, second = together(lambda group: served(group, actors), 2)
    assert all(torch.equal(first[0][name], second[0][name]) for name in first[0])


def test_a_checkpoint_holds_the_whole_table():
    actors = [Actor(config_of(mode="synchronous"), 1)]

    def one(group):
        model = bag_of()
        updater = ServedUpdater(model, group, actors, fit=0, rows_bytes=0)
        for step in range(5):
            updater.look_up([share_of(step)])
            updater.step(loss_of(model, share_of(step)), num_targets=4, weight=4.0)
        kept = model.state_dict()  # as the loop does: first this, then the updater's
        updater.state()
        return kept

    (found,) = together(one, 1)
    torch.testing.assert_close(found["bag.weight"], alone(config_of(), size=1, num_steps=5)["bag.weight"])


def test_a_step_of_512_targets_moves_the_rows_of_its_batch_of_a_table_of_a_million():
    rows, width, targets, entries = 1_000_000, 8, 512, 10
    actors = [Actor(config_of(mode="synchronous"), 1)]

    def one(group):
        model = bag_of(rows, width)
        updater = ServedUpdater(model, group, actors, fit=0)
        for step in range(3):
            share = share_of(step, rows=rows, targets=targets, entries=entries)
            updater.look_up([share])
            updater.step(loss_of(model, share), num_targets=targets, weight=targets)
        return updater.figures()

    (found,) = together(one, 1)
    row = width * 4 + 8
    assert found["train.pulled_bytes_per_step"] < targets * entries * row
    assert found["train.pushed_bytes_per_step"] < 2 * targets * entries * row
    assert rows * width * 4 > 100 * found["train.pulled_bytes_per_step"]


def test_tables_of_a_typed_graph_travel_whole():
    typed = TypedInputs((TypeInputs("a", 5, sparse=True), TypeInputs("b", ROWS, sparse=True)), ("b__to__a",))
    model = build_model(SAGEConfig(hidden=4, layers=1), ModelInputs(5, 2, sparse=True, typed=typed))
    bags = [each for each in model.modules() if isinstance(each, BagEncoder)]
    actors = [Actor(config_of(mode="synchronous"), 1)]
    together(lambda group: ServedUpdater(model, group, actors, fit=0, rows_bytes=0), 1)
    assert len(bags) == 2
    assert not any(each.by_rows for each in bags)
