"""Training on a card: what the CPU learns, the same bits every time, and checkpoints that any device goes on from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from gnnflow.kernels.device import computing_on, find_device
from gnnflow.layers.saved import decode_weights
from gnnflow.train.trainer import TrainResult, train
from tests.train.planted import Recording, job_for, planted, with_model
from tests.train.planted_links import link_job, links

GRAPH, LINKS = planted(), links()


def run(device: str = "cuda", *, graph=GRAPH, dropout: float | None = None, job=None, **keys: Any) -> TrainResult:
    job = job or job_for(graph, device=device, **keys)
    if dropout is not None:
        job = with_model(job, dropout=dropout)
    return train(job, progress=Recording(), open_source=graph.open_source)


def assert_same_history(found: TrainResult, expected: TrainResult, *, within: float) -> None:
    for one, other in zip(found.history, expected.history, strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=within)
        assert one["valid_loss"] == pytest.approx(other["valid_loss"], rel=within)


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat", "gin"])
def test_a_card_learns_what_the_cpu_learns_and_repeats_its_bits(kind):
    keys = {"kind": kind, "dropout": 0.0, "epochs": 8}
    here, there = run("cpu", **keys), run(**keys)
    assert_same_history(there, here, within=1e-3)
    assert there.metrics["test.accuracy"] == pytest.approx(here.metrics["test.accuracy"], abs=0.02)
    assert there.device.startswith("cuda (")
    assert run(**keys).weights == there.weights


@pytest.mark.parametrize("label_kind", ["single", "multi", "regression"])
@pytest.mark.parametrize("keys", [{"class_weight": "balanced"}, {"loss": {"kind": "focal"}}, {"precision": "bfloat16"}])
def test_every_kind_of_label_trains_with_dropout_and_repeats_its_bits(label_kind, keys):
    if label_kind == "regression" and "precision" not in keys:
        pytest.skip("numbers have no classes to weigh")
    graph = planted(label_kind)
    metric = {"single": "accuracy", "multi": "micro_f1", "regression": "rmse"}[label_kind]
    first, again = (run(graph=graph, label_kind=label_kind, metric=metric, epochs=6, **keys) for _ in range(2))
    assert first.weights == again.weights
    assert first.history[-1]["train_loss"] < first.history[0]["train_loss"]


@pytest.mark.parametrize("decoder", [{"kind": "dot"}, {"kind": "mlp", "hidden": 8}])
def test_links_train_on_a_card_as_on_the_cpu(decoder):
    results = {}
    for device in ("cpu", "cuda", "cuda"):
        job = link_job(LINKS, task={"decoder": decoder}, device=device, epochs=6)
        found = train(job, progress=Recording(), open_source=LINKS.open_source)
        assert results.setdefault(device, found).weights == found.weights
    assert_same_history(results["cuda"], results["cpu"], within=1e-3)


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("cache", [0, 1 << 29])
def test_how_far_ahead_batches_are_moved_changes_no_bit(prefetch, cache):
    assert run(prefetch=prefetch, cache=cache, epochs=4).weights == run(epochs=4).weights


class KilledError(Exception):
    pass


class KilledAt(Recording):
    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def step(self, name, done, total, fields):
        if done >= self.left:
            raise KilledError


@pytest.mark.parametrize(("first", "then"), [("cuda", "cuda"), ("cuda", "cpu"), ("cpu", "cuda")])
@pytest.mark.parametrize("keys", [{}, {"optimizer": "sgd"}, {"accumulate": 2}])
def test_a_checkpoint_of_one_device_goes_on_on_another(first, then, keys, tmp_path):
    keys = {"checkpoint_steps": 3, "epochs": 6, **keys}

    def job(device: str, uri: str = ""):
        made = job_for(GRAPH, uri=uri, device=device, **keys)
        return replace(made, model=made.model.model_copy(update={"dropout": 0.0}))

    with pytest.raises(KilledError):
        train(job(first, str(tmp_path)), progress=KilledAt(10), open_source=GRAPH.open_source)
    progress = Recording()
    resumed = train(job(then, str(tmp_path)), progress=progress, open_source=GRAPH.open_source)
    assert any("goes on from epoch" in message for message in progress.messages)
    whole = run(job=job(first))
    if first == then:
        assert resumed.weights == whole.weights
    assert_same_history(resumed, whole, within=1e-3)
    assert all(weights.device.type == "cpu" for weights in decode_weights(resumed.weights).values())


def test_auto_takes_the_card_and_a_full_memory_is_told_with_what_to_do():
    assert find_device("auto", where="train.device", number=torch.cuda.device_count()) == torch.device("cuda", 0)
    from gnnflow.graph.errors import MachineError

    device = find_device("cuda", where="train.device")
    with (
        pytest.raises(MachineError, match=r"train\.device: the memory of cuda \(.*\) is full"),
        computing_on(device, where="train.device"),
    ):
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
