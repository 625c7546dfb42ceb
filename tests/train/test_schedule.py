"""Learning rates are those of torch's own schedulers, and depend on nothing that a checkpoint does not hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from gnnflow.config import MiniBatchConfig
from gnnflow.graph.errors import TrainingError
from gnnflow.train.job import check_job
from gnnflow.train.schedule import Schedule, build_schedule
from gnnflow.train.trainer import train
from tests.train.planted import Recording, job_for, planted

LR = 0.02
EPOCHS, UPDATES = 10, 4
GRAPH = planted()


def schedule(metric: str = "accuracy", **keys: Any) -> Schedule:
    config = MiniBatchConfig.model_validate({"schedule": keys}).schedule
    return build_schedule(config, lr=LR, epochs=EPOCHS, updates_per_epoch=UPDATES, metric=metric)


def torch_rates(make: Any) -> list[float]:
    """Return the rates of all updates under torch's own scheduler."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=LR)
    scheduler, rates = make(optimizer), []
    for _ in range(EPOCHS * UPDATES):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def warmed(optimizer: torch.optim.Optimizer, updates: int) -> lr_scheduler.LinearLR:
    return lr_scheduler.LinearLR(optimizer, start_factor=1 / updates, total_iters=updates - 1)


def cosine(optimizer: torch.optim.Optimizer, updates: int) -> lr_scheduler.CosineAnnealingLR:
    return lr_scheduler.CosineAnnealingLR(optimizer, T_max=updates, eta_min=0.1 * LR)


@pytest.mark.parametrize(
    ("keys", "make"),
    [
        ({"kind": "constant"}, lambda held: lr_scheduler.ConstantLR(held, factor=1.0)),
        ({"kind": "linear", "warmup": 2}, lambda held: warmed(held, 8)),
        ({"kind": "linear", "warmup": 0.5}, lambda held: warmed(held, 2)),
        ({"kind": "cosine", "floor": 0.1}, lambda held: cosine(held, 40)),
    ],
)
def test_curves_are_torchs_own(keys: dict[str, Any], make: Any) -> None:
    ours = schedule(**keys)
    assert [ours.rate(update) for update in range(EPOCHS * UPDATES)] == pytest.approx(torch_rates(make), rel=1e-9)


def test_a_cosine_begins_where_its_warm_up_ends() -> None:
    ours = schedule(kind="cosine", warmup=2, floor=0.1)
    rates = [ours.rate(update) for update in range(EPOCHS * UPDATES)]
    assert rates[:8] == pytest.approx(torch_rates(lambda held: warmed(held, 8))[:8], rel=1e-9)
    assert rates[8:] == pytest.approx(torch_rates(lambda held: cosine(held, 32))[:32], rel=1e-9)
    assert max(rates) == LR
    assert LR * 0.1 < rates[-1] < LR * 0.11


@pytest.mark.parametrize(("metric", "sign"), [("accuracy", 1), ("mae", -1), ("loss", -1)])
def test_a_plateau_is_where_the_metric_no_longer_gets_better(metric: str, sign: int) -> None:
    ours = schedule(metric, kind="plateau", factor=0.1, patience=2, floor=0.01)
    rates = []
    for value in (1, 2, 2, 1, 3, 3, 3, 3, 3, 3):
        ours.validated(10 + sign * value)
        rates.append(ours.rate(0) / LR)
    assert rates == pytest.approx([1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01])


def test_the_rate_of_every_epoch_is_in_the_history() -> None:
    job = job_for(GRAPH, epochs=4, lr=LR, schedule={"kind": "cosine", "warmup": 1})
    rows = train(job, progress=Recording(), open_source=GRAPH.open_source).history
    last = [LR * (1 + math.cos(math.pi * done / 12)) / 2 for done in (3, 7, 11)]
    assert [row["lr"] for row in rows] == pytest.approx([LR, *last])


def test_accumulated_batches_count_once() -> None:
    keys = {"epochs": 4, "lr": LR, "schedule": {"kind": "cosine"}}
    rows = train(job_for(GRAPH, accumulate=4, **keys), progress=Recording(), open_source=GRAPH.open_source).history
    assert [row["lr"] for row in rows] == pytest.approx([LR * (1 + math.cos(math.pi * e / 4)) / 2 for e in range(4)])


def test_the_rate_reaches_the_optimiser() -> None:
    graph = planted(train_shards=1)
    keys = {"epochs": 3, "batch_size": 120, "optimizer": "sgd"}
    rising = job_for(graph, lr=0.4, schedule={"kind": "linear", "warmup": 2}, **keys)
    jobs = (rising, job_for(graph, lr=0.2, **keys), job_for(graph, lr=0.4, **keys))
    found, low, high = (train(job, progress=Recording(), open_source=graph.open_source).history for job in jobs)
    assert [row["lr"] for row in found] == pytest.approx([0.2, 0.4, 0.4])
    assert found[0]["valid_loss"] == low[0]["valid_loss"] != high[0]["valid_loss"]
    assert found[1]["valid_loss"] != low[1]["valid_loss"]


def test_a_plateau_lowers_the_rate_after_the_epoch_that_was_not_better() -> None:
    graph = planted(train_shards=8)
    lowering = {"kind": "plateau", "patience": 1, "factor": 0.5}
    job = job_for(graph, epochs=6, batch_size=8, lr=3.0, metric="loss", schedule=lowering)
    rows = train(job, progress=Recording(), open_source=graph.open_source).history
    best, rate = math.inf, 3.0
    for row in rows:
        assert row["lr"] == rate
        rate = rate if row["valid_loss"] < best else rate / 2
        best = min(best, row["valid_loss"])
    assert rate < 3.0


def test_a_plateau_needs_a_validation_split() -> None:
    job = job_for(GRAPH, schedule={"kind": "plateau"})
    job = replace(
        job, graph=replace(job.graph, entries=[entry for entry in job.graph.entries if entry.split != "valid"])
    )
    with pytest.raises(TrainingError, match=r"train\.schedule\.kind: plateau needs the validation metric"):
        check_job(job)
