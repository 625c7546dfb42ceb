"""Training steps in bfloat16: what they change, and what stays float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gnnflow.layers.saved import decode_weights
from gnnflow.train.trainer import TrainResult, train
from tests.train.planted import Recording, job_for, planted

GRAPH = planted()


def run(precision: str, **keys: Any) -> TrainResult:
    job = job_for(GRAPH, precision=precision, **keys)
    return train(job, progress=Recording(), open_source=GRAPH.open_source)


@pytest.mark.table(4)
@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_bfloat16_learns_what_float32_learns_and_repeats_its_bits(kind: str) -> None:
    wide, narrow = (run(precision, kind=kind, epochs=20) for precision in ("float32", "bfloat16"))
    assert narrow.weights == run("bfloat16", kind=kind, epochs=20).weights
    assert narrow.weights != wide.weights
    assert {weights.dtype for weights in decode_weights(narrow.weights).values()} == {torch.float32}
    # Small differences grow with the steps, as those of another seed would: first epochs of small steps tell.
    first, second = (run(precision, kind=kind, epochs=2, lr=0.004) for precision in ("float32", "bfloat16"))
    for epoch in (0, 1):
        assert second.history[epoch]["train_loss"] == pytest.approx(first.history[epoch]["train_loss"], rel=0.02)
    assert narrow.history[-1]["train_loss"] < 0.9 * narrow.history[0]["train_loss"]
    assert narrow.metrics["test.accuracy"] > wide.metrics["test.accuracy"] - 0.1


def test_scoring_computes_in_float32_whatever_training_does() -> None:
    # a rate that float32 rounds to zero: both precisions score the same weights
    still = {"optimizer": "sgd", "lr": 1e-300, "epochs": 1}
    wide, narrow = (run(precision, **still) for precision in ("float32", "bfloat16"))
    assert narrow.weights == wide.weights
    assert narrow.history[0]["train_loss"] != wide.history[0]["train_loss"]
    assert narrow.history[0]["valid_loss"] == wide.history[0]["valid_loss"]
    assert narrow.metrics["test.roc_auc"] == wide.metrics["test.roc_auc"]


def in_float32(logits: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
    """Return cross entropy; raise where the loss would not be computed in float32."""
    assert logits.dtype == torch.float32
    assert not torch.is_autocast_enabled("cpu")
    return functional.cross_entropy(logits, labels, weight=weight)


def test_a_loss_of_ones_own_is_given_float32_and_may_use_it() -> None:
    own = {"kind": "tests.train.test_precision:in_float32"}
    assert run("bfloat16", loss=own, epochs=2).weights == run("bfloat16", epochs=2).weights
