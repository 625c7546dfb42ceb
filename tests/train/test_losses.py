"""Losses are those of the papers, go with the labels they are for, and one of a user's own is explained when wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from gnnflow.config import LossConfig, MiniBatchConfig
from gnnflow.graph.errors import ConfigError, TrainingError
from gnnflow.train.job import check_job
from gnnflow.train.losses import load_loss, loss_function
from gnnflow.train.objective import Objective
from gnnflow.train.trainer import TrainResult, train
from tests.train.planted import Recording, job_for, planted

GRAPHS = {kind: planted(kind) for kind in ("single", "multi", "regression")}
WEIGHT = torch.tensor([0.3, 2.0, 1.0])


def config_of(**keys: Any) -> LossConfig:
    return MiniBatchConfig.model_validate({"loss": keys}).loss


def batch(label_kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(2)
    logits = torch.from_numpy(rng.normal(0, 2, (50, 3))).requires_grad_()
    if label_kind == "multi":
        return logits, torch.from_numpy((rng.random((50, 3)) < 0.4).astype(np.float64))
    return logits, torch.from_numpy(rng.integers(0, 3, 50))


def run(label_kind: str = "single", **keys: Any) -> TrainResult:
    graph = GRAPHS[label_kind]
    job = job_for(graph, label_kind=label_kind, **keys)
    return train(job, progress=Recording(), open_source=graph.open_source)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("label_kind", ["single", "multi"])
def test_focal_with_gamma_0_is_cross_entropy(label_kind: Any, weight: torch.Tensor | None) -> None:
    logits, labels = batch(label_kind)
    weight = None if weight is None else weight.double()
    focal = loss_function(config_of(kind="focal", gamma=0), label_kind)(logits, labels, weight)
    torch.testing.assert_close(focal, loss_function(config_of(kind="standard"), label_kind)(logits, labels, weight))


@pytest.mark.parametrize("gamma", [0.5, 2.0, 5.0])
def test_focal_is_equation_4_of_the_paper(gamma: float) -> None:
    logits, labels = batch("single")
    p = torch.softmax(logits, dim=1)[torch.arange(50), labels]
    found = loss_function(config_of(kind="focal", gamma=gamma), "single")(logits, labels, None)
    torch.testing.assert_close(found, (-((1 - p) ** gamma) * p.log()).mean())

    logits, labels = batch("multi")
    p = torch.where(labels > 0, logits.sigmoid(), 1 - logits.sigmoid())
    found = loss_function(config_of(kind="focal", gamma=gamma), "multi")(logits, labels, None)
    torch.testing.assert_close(found, (-((1 - p) ** gamma) * p.log()).mean())


@pytest.mark.parametrize("label_kind", ["single", "multi"])
def test_focal_is_differentiated_right(label_kind: Any) -> None:
    logits, labels = batch(label_kind)
    measure = loss_function(config_of(kind="focal", gamma=1.5), label_kind)
    assert torch.autograd.gradcheck(lambda each: measure(each, labels, WEIGHT.double()), logits)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_sure_targets_have_a_finite_gradient(gamma: float) -> None:
    for label_kind, labels in (("single", torch.tensor([0, 1])), ("multi", torch.tensor([[1.0, 0.0], [0.0, 1.0]]))):
        logits = torch.tensor([[900.0, -900.0], [-900.0, 900.0]], requires_grad=True)
        measure = loss_function(config_of(kind="focal", gamma=gamma), label_kind)  # type: ignore[arg-type]
        loss = measure(logits, labels, None)
        loss.backward()
        assert float(loss.detach()) == 0
        assert logits.grad is not None
        assert logits.grad.abs().max() == 0


def test_huber_is_torchs_own() -> None:
    logits, values = batch("single")[0][:, :1], torch.linspace(-5, 5, 50).double()
    found = loss_function(config_of(kind="huber", delta=0.7), "regression")(logits, values, None)
    torch.testing.assert_close(found, torch.nn.HuberLoss(delta=0.7)(logits[:, 0], values))


@pytest.mark.parametrize("label_kind", ["single", "multi"])
def test_focal_learns(label_kind: str) -> None:
    result = run(label_kind, epochs=30, loss={"kind": "focal"}, class_weight="balanced")
    assert result.metrics["test.micro_f1"] > 0.7


def test_huber_learns() -> None:
    assert run("regression", metric="mae", epochs=60, lr=0.01, loss={"kind": "huber"}).metrics["test.mae"] < 0.6


# Losses of one's own, named as a config names them.
def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    return functional.cross_entropy(logits, labels, weight=weight)


def smoothed(logits: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor | None, *, share: float) -> torch.Tensor:
    return functional.cross_entropy(logits, labels, weight=weight, label_smoothing=share)


def one_per_target(logits: torch.Tensor, labels: torch.Tensor, weight: object) -> torch.Tensor:
    return functional.cross_entropy(logits, labels, reduction="none")


def number(logits: torch.Tensor, labels: torch.Tensor, weight: object) -> float:
    return float(functional.cross_entropy(logits.detach(), labels))


def detached(logits: torch.Tensor, labels: torch.Tensor, weight: object) -> torch.Tensor:
    return functional.cross_entropy(logits, labels).detach()


def counted(logits: torch.Tensor, labels: torch.Tensor, weight: object) -> torch.Tensor:
    return (logits.argmax(dim=1) != labels).sum()


def broken(logits: torch.Tensor, labels: torch.Tensor, weight: object) -> torch.Tensor:
    raise KeyError("classes")


NOT_A_FUNCTION = 3


@pytest.mark.parametrize("class_weight", ["none", "balanced"])
def test_a_loss_of_ones_own_trains_as_the_built_in_one_it_repeats(class_weight: str) -> None:
    own = {"kind": f"{__name__}:cross_entropy"}
    keys: dict[str, Any] = {"epochs": 3, "class_weight": class_weight}
    mine, standard = run(loss=own, **keys), run(**keys)
    assert mine.weights == standard.weights
    assert mine.history[-1]["valid_loss"] == standard.history[-1]["valid_loss"]


def test_a_loss_of_ones_own_is_given_its_options() -> None:
    logits, labels = batch("single")
    config = config_of(kind=f"{__name__}:smoothed", options={"share": 0.1})
    found = loss_function(config, "single")(logits, labels, None)
    torch.testing.assert_close(found, functional.cross_entropy(logits, labels, label_smoothing=0.1))


def test_unlabelled_targets_never_reach_a_loss() -> None:
    logits, labels = batch("single")
    some = labels.numpy().copy()
    some[::3] = -1
    found, count = Objective("single", config=config_of(kind=f"{__name__}:cross_entropy")).loss(logits, some)
    assert count == (some >= 0).sum()
    torch.testing.assert_close(found, functional.cross_entropy(logits, torch.from_numpy(some), ignore_index=-1))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (one_per_target, r"one_per_target returned torch\.float32 of shape \[32\], not a float tensor without dim"),
        (number, "number returned float, not a float tensor without dimensions"),
        (detached, r"detached returned a loss without a gradient\. Compute it from the logits with torch"),
        (counted, r"counted returned torch\.int64 of shape \[\]"),
        (broken, r"broken failed on logits \[32, 3\], labels \[32\] of torch\.int64: KeyError: 'classes'"),
        (smoothed, "missing 1 required keyword-only argument: 'share'"),
    ],
)
def test_a_wrong_loss_of_ones_own_is_explained(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(TrainingError, match=rf"train\.loss: .*{message}"):
        run(epochs=1, loss={"kind": f"{__name__}:{function.__name__}"})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_package.losses:f", r"there is no module 'no_such_package\.losses'.*PYTHONPATH"),
        (f"{__name__}:missing", "has no function 'missing'. Its functions are: config_of, batch"),
        (f"{__name__}:NOT_A_FUNCTION", "has no function 'NOT_A_FUNCTION'"),
        ("torch.nn:CrossEntropyLoss", "has no function 'CrossEntropyLoss'"),
    ],
)
def test_a_loss_that_cannot_be_found_is_explained(name: str, message: str) -> None:
    with pytest.raises(TrainingError, match=rf"train\.loss\.kind: .*{message}"):
        load_loss(name)


@pytest.mark.parametrize(
    ("label_kind", "loss", "message"),
    [
        ("regression", "focal", "focal does not support regression labels. Set it to standard or huber"),
        ("single", "huber", "huber does not support single labels. Set it to standard or focal"),
        ("multi", "huber", "huber does not support multi labels"),
    ],
)
def test_a_loss_that_labels_do_not_have_is_refused(label_kind: str, loss: str, message: str) -> None:
    with pytest.raises(TrainingError, match=rf"train\.loss\.kind: {message}"):
        check_job(job_for(GRAPHS[label_kind], label_kind=label_kind, metric="loss", loss={"kind": loss}))


def test_a_place_decides_whose_losses_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNFLOW_MODULES", "elsewhere")
    with pytest.raises(ConfigError, match=r"train\.loss\.kind: module 'torch\.nn\.functional' may not be imported"):
        load_loss("torch.nn.functional:cross_entropy")
