"""Steps over the whole graph: on one rank they are full batches of GraphFlat's shards, on several they are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gnnflow.config import config_from_dict
from gnnflow.graph.run_facts import STAGE_PARTS
from gnnflow.layers.saved import decode_weights
from gnnflow.progress import Silent
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.train.globalbatch import open_source
from gnnflow.train.objective import Objective, balanced_weights
from gnnflow.train.ranks.gradients import AllReduce
from gnnflow.train.ranks.source import open_shares
from gnnflow.train.trainer import train
from gnnflow.train.updater import LocalUpdater
from tests.hearing import Heard
from tests.train.globalbatch.stepping import fresh, opened, stepped
from tests.train.globalbatch.stored import config_of, job_for, write
from tests.train.ranks.together import outcomes, together

SAMPLES = {
    "every edge": None,
    "uniform": {"kind": "uniform", "fanout": [4, 3]},
    "weighted": {"kind": "weighted", "fanout": [4, 4]},
}
MODELS = {
    "gcn": {"kind": "gcn", "hidden": 8, "dropout": 0.0},
    "gat": {"kind": "gat", "hidden": 8, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0},
    "deep": {"kind": "sage", "hidden": 8, "layers": 5, "dropout": 0.0, "norm": "layer", "residual": True},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    write(folder)
    return folder


def close(found, expected, *, tolerance=1e-4):
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=tolerance, atol=tolerance, msg=name)


@pytest.mark.table(2)
@pytest.mark.parametrize("sample", SAMPLES)
def test_training_on_the_whole_graph_equals_full_batches_of_shards(folder: Path, sample: str):
    config = config_of(folder, sampling=SAMPLES[sample])
    keys = {"strategy": "mini-batch", "epochs": 8, "lr": 0.05, "batch_size": 1000}
    mini = config_from_dict({**config.model_dump(mode="json"), "train": keys})
    trained = []
    for each in (config, mini):
        context = StageContext.of(each)
        stages = ("ingest", "select", "train") if each is config else ("ingest", "select", "flat", "train")
        made = [make_artifact(context, stage) for stage in stages][-1]
        weights = Path(made.artifact, "model.safetensors").read_bytes()
        trained.append((decode_weights(weights), made.manifest.rows_in))
    (found, targets), (expected, expected_targets) = trained
    close(found, expected)
    assert targets == expected_targets


def losses_and_weights(source, job, updater_of):
    """Return the losses of three steps, the weights after them, and the outputs of each split."""
    model = fresh(job)
    weights = balanced_weights(source.train_labels(), label_kind="single", num_classes=job.num_classes)
    return stepped(source, model, Objective("single", weights), updater_of(model), epochs=3)


@pytest.mark.table(8)
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("model", MODELS)
def test_ranks_take_the_steps_of_one(folder: Path, model: str, size: int):
    keys = {"optimizer": "sgd", "lr": 0.5, "recompute": size == 3}
    sampling = SAMPLES["uniform"] if model == "gcn" else None
    job = job_for(folder, model=MODELS[model], sampling=sampling, workers=size, **keys)

    def on(group):
        with opened(open_source, job, group) as source:
            return losses_and_weights(
                source, job, lambda made: LocalUpdater(made, job.train, exchange=AllReduce(made, group, is_joint=True))
            )

    with open_source(job) as source:
        losses, weights, outputs = losses_and_weights(source, job, lambda made: LocalUpdater(made, job.train))
    ran = together(on, size)
    for found in ran:
        np.testing.assert_allclose(found[0], losses, rtol=1e-5)
        close(found[1], weights)
        assert all(torch.equal(found[1][name], ran[0][1][name]) for name in weights)
        for split, (targets, labels, logits) in outputs.items():
            assert np.array_equal(found[2][split][0], targets)
            assert np.array_equal(found[2][split][1], labels)
            np.testing.assert_allclose(found[2][split][2], logits, rtol=1e-3, atol=1e-4)


def test_layers_computed_again_give_the_same_weights(folder: Path):
    dropped = {**MODELS["gat"], "dropout": 0.5, "attention_dropout": 0.3}
    kept, again = (
        train(job_for(folder, model=dropped, recompute=recompute), progress=Silent()).weights
        for recompute in (False, True)
    )
    assert kept == again


def test_a_killed_training_goes_on_to_the_same_bytes(folder: Path, tmp_path: Path):
    class KilledError(Exception):
        pass

    class KilledAt(Silent):
        def step(self, name, done, total, fields):
            if done >= 5:
                raise KilledError

    dropped = {**MODELS["gcn"], "dropout": 0.5}
    keys = {"model": dropped, "epochs": 12, "checkpoint_steps": 2}
    undisturbed = train(job_for(folder, **keys), progress=Silent())
    with pytest.raises(KilledError):
        train(job_for(folder, uri=str(tmp_path), **keys), progress=KilledAt())
    heard = Heard()
    again = train(job_for(folder, uri=str(tmp_path), **keys), progress=heard)
    assert any("goes on from epoch" in text for text in heard.messages)
    assert again.weights == undisturbed.weights


def test_a_baseline_is_the_same_nodes_without_edges(folder: Path):
    job = job_for(folder, baseline=True)
    with open_source(job, edges=False) as source:
        (step,) = source.steps(0, since=0)
    assert step.batch.tensors.layers[0].block.relations[0].block.csr.num_edges == 0
    assert not any(each.any() for each in (step.batch.tensors.nodes.in_degree, step.batch.tensors.nodes.out_degree))
    assert "baseline.test.accuracy" in train(job, progress=Silent()).metrics


def test_the_baseline_is_that_of_full_batches(folder: Path):
    whole = job_for(folder, baseline=True)
    mini = job_for(folder, strategy="mini-batch", source="store", baseline=True, batch_size=1000)
    found, expected = (train(each, progress=Silent()).metrics for each in (whole, mini))
    for name, value in expected.items():
        if name.startswith("baseline."):
            assert found[name] == pytest.approx(value, abs=1e-4), name


def test_more_ranks_than_partitions_are_refused_with_the_fix(folder: Path):
    job = job_for(folder, partitions=2)
    (found,) = {str(each) for each in outcomes(lambda group: open_shares(open_source, job, edges=True, group=group), 3)}
    assert "3 ranks share 2 partitions" in found
    assert "Set graph.partitions to 3 or more" in found


def test_the_stages_of_layers_are_in_every_epoch_and_in_the_metrics(folder: Path):
    trained = train(job_for(folder, epochs=4), progress=Silent())
    for row in trained.history:
        stages = [row.get(f"{stage}_seconds", 0.0) for stage in STAGE_PARTS]
        assert 0 < sum(stages) <= row["forward_seconds"] + row["backward_seconds"]
    for stage in STAGE_PARTS:
        expected = trained.profiles[0].get(f"{stage}_seconds", 0.0)
        assert trained.metrics[f"train.{stage}_seconds_per_epoch"] == expected
    assert trained.metrics["train.mirrors_seconds_per_epoch"] == 0


def test_ranks_tell_how_long_they_waited_for_mirrors(folder: Path):
    job = job_for(folder, model=MODELS["gcn"], workers=2)

    def on(group):
        with opened(open_source, job, group) as source:
            losses_and_weights(
                source, job, lambda made: LocalUpdater(made, job.train, exchange=AllReduce(made, group, is_joint=True))
            )
            return source.spent()

    for spent in together(on, 2):
        assert all(spent[f"{stage}_seconds"] > 0 for stage in STAGE_PARTS)
