"""The profile of an epoch: what each side of the pipeline does, and which of them waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gnnflow.graph.errors import StorageError
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.run_facts import READER_PARTS, READER_WAIT, TRAINER_PARTS
from gnnflow.graphfeature.shards import Shard
from gnnflow.train.minibatch import open_source
from gnnflow.train.profile import Stopwatch, longer_wait, mean_profile, profile_of
from gnnflow.train.trainer import TrainResult, train
from tests.train.planted import Recording, job_for, planted, without_times

GRAPH = planted("single")
SECONDS = 0.02


def trained(read: Callable[[ShardEntry], Shard] = GRAPH.read, *, uri: str = "", **settings: object) -> TrainResult:
    job = job_for(GRAPH, uri=uri, **{"epochs": 3, "cache": 0, **settings})
    return train(job, progress=Recording(), open_source=partial(open_source, read=read))


def slow(entry: ShardEntry) -> Shard:
    time.sleep(SECONDS)
    return GRAPH.read(entry)


def test_a_slow_store_makes_the_trainer_wait() -> None:
    num_shards = sum(entry.split == "train" for entry in job_for(GRAPH).graph.entries)
    result = trained(slow, epochs=1)
    (row,) = result.history
    # a reader that does not tell when it has read counts as decoding
    assert row["decode_seconds"] >= num_shards * SECONDS
    assert row["wait_seconds"] >= SECONDS, "nothing can be computed before the first shard is there"
    assert result.metrics["train.wait_seconds_per_epoch"] == row["wait_seconds"]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_parts_add_up_to_the_epoch(prefetch: int) -> None:
    for row in trained(slow, prefetch=prefetch).history:
        known = [row.get(f"{part}_seconds", 0.0) for part in TRAINER_PARTS]
        assert all(part >= 0 for part in known)
        assert 0.5 * row["seconds"] < sum(known) <= row["seconds"]
        made = [row.get(f"{part}_seconds", 0.0) for part in (*READER_PARTS, READER_WAIT)]
        assert sum(made) == pytest.approx(row["seconds"], rel=0.3)


def test_scoring_is_no_part_of_the_profile() -> None:
    with_valid, entries = [0], job_for(GRAPH).graph.entries

    def read(entry: ShardEntry) -> Shard:
        if entry.split == "valid":
            with_valid[0] += 1
            time.sleep(10 * SECONDS)
        return GRAPH.read(entry)

    assert any(entry.split == "valid" for entry in entries)
    result = trained(read)
    assert with_valid[0] >= 1
    assert all(row["decode_seconds"] < 10 * SECONDS for row in result.history)


def test_a_killed_epoch_goes_on_with_its_profile(tmp_path: Path) -> None:
    undisturbed = trained(slow)
    reads = [0]

    def unplugged(entry: ShardEntry) -> Shard:
        reads[0] += 1
        if reads[0] == 3:
            raise StorageError("unplugged", where="here")
        return slow(entry)

    with pytest.raises(StorageError, match="unplugged"):
        trained(unplugged, uri=str(tmp_path), checkpoint_steps=1)
    resumed = trained(slow, uri=str(tmp_path), checkpoint_steps=1)
    for one, two in zip(resumed.history, undisturbed.history, strict=True):
        assert without_times(one) == without_times(two)
        assert one["wait_seconds"] <= one["seconds"]
    assert resumed.history[0]["update_seconds"] > 0


def test_a_checkpoint_without_a_profile_is_read() -> None:
    from gnnflow.train.state import FitState

    old = {key: value for key, value in FitState(epoch=2, step=1, seconds=3.0).to_json().items() if key != "spent"}
    assert FitState.from_json(old) == FitState(epoch=2, step=1, seconds=3.0)


def test_the_first_epoch_counts_only_where_it_is_alone() -> None:
    first, second = ({"seconds": seconds, "wait_seconds": seconds / 2} for seconds in (9.0, 1.0))
    assert mean_profile([first, second]) == second
    assert mean_profile([first]) == first


def test_what_the_reader_does_not_work_it_waits() -> None:
    profile = profile_of({"read_seconds": 1.0, "build_seconds": 0.5, "wait_seconds": 0.2}, seconds=4.0)
    assert profile["reader_wait_seconds"] == 2.5
    assert longer_wait(profile) == ("reader", 0.625)
    assert longer_wait({**profile, "wait_seconds": 3.0}) == ("trainer", 0.75)


def test_where_nothing_is_made_ready_nobody_is_said_to_wait() -> None:
    profile = profile_of({"forward_seconds": 1.0, "read_seconds": 0.0}, seconds=2.0)
    assert "reader_wait_seconds" not in profile
    assert longer_wait(profile) is None


def test_a_profile_costs_less_than_half_a_percent_of_a_short_step() -> None:
    watch, laps = Stopwatch(), 12

    def cost() -> float:
        begin = time.perf_counter()
        for _ in range(100 * laps):
            watch.lap("wait")
        return (time.perf_counter() - begin) / 100

    assert min(cost() for _ in range(50)) < 0.005 * 2e-3, "under 0.5 % of a step"


def test_metrics_of_two_equal_jobs_differ_in_seconds_alone() -> None:
    one, two = trained(), trained()
    assert one.weights == two.weights
    differing = {key for key in one.metrics if one.metrics[key] != two.metrics[key]}
    assert all("second" in key for key in differing)
    assert replace(one, history=(), metrics={}, profiles=(), confusion={}) == replace(
        two, history=(), metrics={}, profiles=(), confusion={}
    )
