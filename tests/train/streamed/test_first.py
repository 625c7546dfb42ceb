"""Source terms of the first layer that are made whenever they go by are those that would lie in a file."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
import torch

from gnnflow.executions.streamed import FirstTerms
from gnnflow.executions.streamed import first_terms as streamed_first
from gnnflow.layers.saved import decode_weights
from gnnflow.progress import Silent
from gnnflow.train.trainer import train
from tests.train.globalbatch.stored import job_for, write
from tests.train.streamed.cutting import trained_counted

MADE = {
    "gcn": {"kind": "gcn", "hidden": 8, "dropout": 0.5},
    "gcn without dropout": {"kind": "gcn", "hidden": 8, "dropout": 0.0},
    "sage, of which targets have features too": {"kind": "sage", "hidden": 8, "dropout": 0.3},
    "gin, which adds its input": {"kind": "gin", "hidden": 8, "dropout": 0.5, "residual": True},
}
FILED = {
    "an encoder learns": {"kind": "gcn", "hidden": 8, "encoder": "linear"},
    "a map in the terms learns": {"kind": "gat", "hidden": 8, "heads": 2},
    "the same before a maximum": {"kind": "sage", "aggregator": "max", "hidden": 8},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    write(folder)
    return folder


def trained(folder, model):
    """Return weights and losses of a run, the bytes it wrote, and whether terms were made in its passes."""
    made = []
    asked = FirstTerms.computes_on_read.func

    def computes_on_read(self):
        made.append(asked(self))
        return made[-1]

    with mock.patch.object(FirstTerms.computes_on_read, "func", computes_on_read):
        return *trained_counted(job_for(folder, memory="1GiB", epochs=3, model=model)), set(made)


@pytest.mark.table(4)
@pytest.mark.parametrize("model", MADE.values(), ids=MADE)
def test_made_terms_give_the_same_bits_with_less_written(folder, model):
    *found, written, made = trained(folder, model)
    with mock.patch.object(streamed_first, "reads_features", return_value=False):
        *filed, more, none = trained(folder, model)
    assert (made, none) == ({True}, {False})
    assert found == filed
    assert written < more


@pytest.mark.table(4)
@pytest.mark.parametrize("model", FILED.values(), ids=FILED)
def test_terms_with_a_parameter_lie_in_files(folder, model):
    *_, made = trained(folder, model)
    assert made == {False}


@pytest.mark.table(4)
@pytest.mark.parametrize("kind", ["TargetLearns", "GateLearns", "LogitLearns", "MessageLearns"])
def test_features_that_learning_edges_read_lie_in_files_too(folder, kind):
    model = {"kind": f"tests.train.streamed.raw_layers:{kind}", "hidden": 8, "dropout": 0.0}
    weights, losses, _, made = trained(folder, model)
    whole = train(job_for(folder, epochs=3, model=model), progress=Silent())
    assert made == {False}
    assert losses == pytest.approx([row["train_loss"] for row in whole.history], rel=1e-5)
    for name, each in decode_weights(whole.weights).items():
        torch.testing.assert_close(decode_weights(weights)[name], each, rtol=1e-4, atol=1e-5)
