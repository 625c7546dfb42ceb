"""Mini-batches of pairs from the graph store: the scores of shards, without GraphFlat, and no leak."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnflow.graph.errors import TrainingError
from gnnflow.graph.facts import FlatFacts
from gnnflow.graphfeature.shards import read_pair_shard
from gnnflow.progress import Silent
from gnnflow.stages import pipeline, publish
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.train.minibatch import in_memory, open_store_source, open_task_source, outputs_on_shards
from gnnflow.train.trainer import train
from tests.train.on_stores import job_of, resumes_to_the_same_weights
from tests.train.pairs_on_stores import CASES, config_of

STORE = {"source": "store"}
TIMES = {"task": {"split": {"kind": "time", "valid": 0.15, "test": 0.15}}}
SAMPLED = {"neighbors": {"sampling": {"kind": "uniform", "fanout": [4, 3]}}}


@pytest.mark.table(7)
@pytest.mark.parametrize(
    ("case", "sections"), [*((case, {}) for case in CASES), ("labels", TIMES), ("hidden labels", SAMPLED)]
)
def test_scores_are_those_of_shards(tmp_path: Path, case: str, sections: dict[str, Any]) -> None:
    config = config_of(tmp_path, case, train=STORE, **sections)
    job = job_of(config)
    model = job.model.build(seed=0)
    with open_store_source(job) as source:
        found = {split: source.outputs(model, split) for split in ("valid", "test")}
    context = StageContext.of(config_of(tmp_path, case, **sections))
    flat = [make_artifact(context, stage) for stage in ("ingest", "select", "flat")][-1]
    shards = flat.facts(FlatFacts)
    for split, outputs in found.items():
        expected = outputs_on_shards(
            model,
            [entry for entry in shards.shards if entry.split == split],
            partial(read_pair_shard, flat.artifact),
            sampling=job.graph.sampling,
            train=context.config.train,
            task=job.task,
            seed=job.seed,
        )
        assert np.array_equal(np.sort(outputs.targets), np.sort(expected.targets))
        # the first column is of the pair itself, whatever it is ranked among
        scores = (np.sort(each.logits[:, 0]) for each in (outputs, expected))
        np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-5)


@pytest.mark.table(4)
@pytest.mark.parametrize("sections", [{}, SAMPLED], ids=["every edge", "a sample per epoch"])
def test_a_killed_training_ends_on_the_same_weights(tmp_path: Path, sections: dict[str, Any]) -> None:
    keys = {**STORE, "batch_size": 64, "checkpoint_steps": 1, **({"resample": "epoch"} if sections else {})}
    config = config_of(tmp_path, "links", train=keys, **sections)
    resumes_to_the_same_weights(config, str(tmp_path / "checkpoints"), open_source=open_task_source)


def test_an_epoch_of_its_own_sample_sees_other_edges(tmp_path: Path) -> None:
    config = config_of(tmp_path, "links", train={**STORE, "resample": "epoch"}, **SAMPLED)
    with open_store_source(job_of(config)) as source:
        seen = [
            sum(
                int(step.batch.tensors.blocks[0].relations[0].block.csr.sources.sum())
                for step in source.steps(epoch, since=0)
            )
            for epoch in (0, 1)
        ]
    assert seen[0] != seen[1]


def test_ranks_score_a_split_in_parts_that_follow_each_other(tmp_path: Path) -> None:
    job = job_of(config_of(tmp_path, "links", train=STORE))
    model = job.model.build()
    with open_store_source(job) as source:
        whole = source.outputs(model, "valid")
    parts = []
    for rank in range(3):
        with open_store_source(job.of_rank(rank, 3)) as source:
            parts.append(source.outputs(model, "valid"))
    np.testing.assert_array_equal(np.concatenate([part.targets for part in parts]), whole.targets)
    np.testing.assert_allclose(np.concatenate([part.logits for part in parts]), whole.logits, rtol=1e-4, atol=1e-5)


def test_a_held_out_edge_that_carries_messages_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = in_memory.read_pairs

    def leaking(*given: Any) -> Any:
        pairs = read(*given)
        splits = pairs.splits.copy()
        splits[[np.flatnonzero(splits == code)[-1] for code in (0, 1)]] = [1, 0]
        return replace(pairs, splits=splits)

    monkeypatch.setattr(in_memory, "read_pairs", leaking)
    with pytest.raises(TrainingError, match=r"valid edge from node number .* its score is computed from"):
        train(job_of(config_of(tmp_path, "links", train=STORE)), progress=Silent())


@pytest.mark.slow
@pytest.mark.parametrize("case", ["links", "typed labels"])
def test_runs_are_certified_and_compared(tmp_path: Path, case: str) -> None:
    published = []
    for seed in (0, 1):
        config = config_of(tmp_path, case, train={**STORE, "baseline": True}, seed=seed)
        metrics = pipeline.run_quietly(config).metrics
        assert metrics["infer.parity_max_difference"] < 1e-4
        assert any(name.startswith("baseline.test.") for name in metrics)
        published.append(publish.run(StageContext.of(config)))
    assert published[0].promoted
    assert any(name.startswith("test.") for name in published[1].champion)
