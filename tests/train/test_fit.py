"""The loop trains on any source with any updater: here on the whole graph at once, without a shard."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pytest
import torch

from gnnflow.config import TrainConfig
from gnnflow.executions.minibatch import forward
from gnnflow.executions.tensors import BatchTensors, batch_tensors
from gnnflow.graph.arrays import Array
from gnnflow.graph.errors import StorageError
from gnnflow.graph.sampling import EVERY_EDGE
from gnnflow.graphfeature.blocks import build_minibatch
from gnnflow.layers import FeatureTensors
from gnnflow.layers.model import Model
from gnnflow.train.fit import FitOptions, Fitted, fit
from gnnflow.train.objective import Objective
from gnnflow.train.outputs import Outputs
from gnnflow.train.reproducible import seed_step
from gnnflow.train.updater import LocalUpdater, StepLoss
from tests.train.planted import Recording, job_for, planted

GRAPH = planted()
STEPS = 3


@dataclass(frozen=True)
class WholeGraphStep:
    tensors: BatchTensors
    labels: Array
    epoch: int
    step: int

    @property
    def targets(self) -> Array:
        return np.arange(len(self.labels))

    @property
    def features(self) -> FeatureTensors:
        return self.tensors.features

    def seed(self) -> None:
        seed_step(5, epoch=self.epoch, step=self.step, rank=0)

    def logits(self, model: Model) -> torch.Tensor:
        return forward(model, self.tensors)


class WholeGraph:
    """Three equal steps per epoch over all train targets. Records where each epoch began."""

    splits = ("train", "valid", "test")
    steps_per_epoch = STEPS

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def steps(self, epoch: int, *, since: int) -> Iterator[WholeGraphStep]:
        self.asked.append((epoch, since))
        for step in range(since, STEPS):
            yield WholeGraphStep(*self._of("train"), epoch, step)

    def outputs(self, model: Model, split: str) -> Outputs:
        tensors, labels = self._of(split)
        model.eval()
        with torch.no_grad():
            return Outputs(forward(model, tensors).numpy(), labels, np.arange(len(labels)))

    def train_labels(self) -> Iterator[Array]:
        yield self._of("train")[1]

    def spent(self) -> dict[str, float]:
        return {}

    def _of(self, split: str) -> tuple[BatchTensors, Array]:
        rows = np.concatenate([rows for name, rows in GRAPH.targets.items() if name.startswith(split)])
        batch = build_minibatch(GRAPH.neighborhood, rows, sampling=EVERY_EDGE, num_layers=2)
        return batch_tensors(batch), GRAPH.labels[rows]


class Interrupted(LocalUpdater):
    """Takes so many steps and fails at the next."""

    def __init__(self, model: Model, config: TrainConfig, *, steps: int) -> None:
        super().__init__(model, config)
        self.left = steps

    def step(self, loss: torch.Tensor, **figures: float) -> StepLoss:
        if self.left == 0:
            raise ConnectionError("the parameter server left")
        self.left -= 1
        return super().step(loss, **figures)


def run(source: WholeGraph, *, uri: str = "", steps: int | None = None) -> Fitted:
    job = job_for(GRAPH, epochs=6, checkpoint_steps=1)
    model = job.model.build(seed=job.seed)
    updater = LocalUpdater(model, job.train) if steps is None else Interrupted(model, job.train, steps=steps)
    options = FitOptions("fit", job.with_metric().train, checkpoint_uri=uri)
    objective = Objective("single")
    return fit(model, options, source=source, updater=updater, objective=objective, progress=Recording())


def test_a_source_needs_no_shards() -> None:
    history = run(WholeGraph()).state.history
    assert len(history) == 6
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    assert history[-1]["valid_accuracy"] > 0.6


def test_a_failed_updater_resumes_at_the_step_it_failed_in() -> None:
    uri = f"memory://fit/{uuid.uuid4().hex}.safetensors"
    with pytest.raises(ConnectionError, match="the parameter server left"):
        run(WholeGraph(), uri=uri, steps=STEPS + 2)
    source = WholeGraph()
    resumed, undisturbed = run(source, uri=uri), run(WholeGraph())
    assert source.asked == [(1, 2), (2, 0), (3, 0), (4, 0), (5, 0)]
    for name, weights in undisturbed.weights.items():
        assert torch.equal(weights, resumed.weights[name])


def test_a_checkpoint_that_cannot_be_written_ends_the_fit_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a file where a folder is needed") as caught:
        run(WholeGraph(), uri=str(tmp_path / "file" / "fit.safetensors"))
    assert "fit.safetensors" in caught.value.where
