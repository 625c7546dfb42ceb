"""Mini-batches as a source of steps: resumable, dealt to ranks, scored in stored order."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from gnnflow.graphfeature.shards import read_shard, write_shard
from gnnflow.train.job import Shards
from gnnflow.train.minibatch import MiniBatchSource, open_source, outputs_on_shards
from gnnflow.train.minibatch.source import BatchStep
from tests.fanouts import sampling_of
from tests.train.planted import job_for, planted

GRAPH = planted(train_shards=4)
JOB = job_for(GRAPH, batch_size=10)


def targets_of(steps: list[BatchStep]) -> list[list[int]]:
    return [step.batch.targets.tolist() for step in steps]


def draw(step: BatchStep) -> float:
    step.seed()
    return float(torch.rand(1))


def test_later_steps_do_not_need_the_steps_before() -> None:
    with open_source(JOB, read=GRAPH.read) as source:
        whole = list(source.steps(2, since=0))
        later = list(source.steps(2, since=7))
    assert len(whole) == source.steps_per_epoch == 12
    assert targets_of(later) == targets_of(whole[7:])
    assert [draw(step) for step in later] == [draw(step) for step in whole[7:]]


def test_ranks_share_the_targets_and_draw_differently() -> None:
    steps = []
    for rank in (0, 1):
        with open_source(JOB.of_rank(rank, 2), read=GRAPH.read) as source:
            assert source.steps_per_epoch == 6
            steps.append(list(source.steps(0, since=0)))
    seen = sorted(target for part in steps for targets in targets_of(part) for target in targets)
    assert seen == sorted(np.concatenate([GRAPH.targets[f"train-{place}"] for place in range(4)]).tolist())
    assert len({draw(step) for part in steps for step in part}) == 12


def test_splits_without_targets_are_not_named() -> None:
    entries = [replace(entry, num_targets=0) if entry.split == "test" else entry for entry in GRAPH.entries()]
    with open_source(replace(JOB, graph=replace(JOB.graph, entries=entries[::-1])), read=GRAPH.read) as source:
        assert source.splits == ("train", "valid")


def test_outputs_are_in_stored_order_whatever_the_batch_size() -> None:
    torch.manual_seed(0)
    model = JOB.model.build()

    def outputs(source: MiniBatchSource, size: int) -> tuple[np.ndarray, np.ndarray]:
        found = replace(source, eval_batch_size=size).outputs(model, "test")
        np.testing.assert_array_equal(found.labels, GRAPH.labels[found.targets])
        return found.targets, found.logits

    with open_source(JOB, read=GRAPH.read) as source:
        targets, logits = outputs(source, 80)
        for size in (7, 33):
            again = outputs(source, size)
            np.testing.assert_array_equal(again[0], GRAPH.targets["test-0"])
            np.testing.assert_allclose(again[1], logits, atol=1e-5)
    np.testing.assert_array_equal(targets, GRAPH.targets["test-0"])


@pytest.mark.parametrize("fanouts", [None, (8, 4)])
def test_a_model_scores_stored_shards_as_its_source_does(tmp_path: Path, fanouts: tuple[int, ...] | None) -> None:
    targets = GRAPH.targets["test-0"]
    table = pa.table({"node": targets, "id": targets, "label": GRAPH.labels[targets]})
    entry, _ = write_shard(
        str(tmp_path),
        replace(GRAPH.neighborhood, roots=targets),
        table,
        name="test-0",
        split="test",
        layout="shared",
        sampling=sampling_of(fanouts),
        num_hops=2,
    )
    model = JOB.model.build()
    read = partial(read_shard, str(tmp_path))
    found = outputs_on_shards(model, [entry], read, sampling=sampling_of(fanouts), train=JOB.train)
    with open_source(replace(JOB, graph=Shards(str(tmp_path), [entry], sampling_of(fanouts)))) as source:
        expected = source.outputs(model, "test")
    np.testing.assert_array_equal(found.logits, expected.logits)
    np.testing.assert_array_equal(found.targets, targets)


def test_any_rank_makes_the_batches_of_another_with_the_draws_of_that_one():
    graph = planted(train_shards=3)
    jobs = [job_for(graph, batch_size=16).of_rank(rank, 2) for rank in range(2)]
    first, second = (graph.open_source(job, edges=True) for job in jobs)
    with first, second:
        expected = list(second.steps(4, since=1))
        found = [first.step(4, number, share=1) for number in range(1, second.steps_per_epoch)]
    assert len(found) == len(expected) > 1
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one.targets, other.targets)
        assert (one.seeded, one.epoch, one.share, one.number) == (other.seeded, other.epoch, 1, other.number)
