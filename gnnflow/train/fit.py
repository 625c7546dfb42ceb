"""The training loop: epochs of planned batches, validation, the best weights kept, checkpoints on the way.

A fit is a function of its job. Where it stands is a `FitState` and three groups of tensors; both are in every
checkpoint, so a fit that is killed at any moment and started again ends on the same weights, bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from gnnflow.config import TrainConfig
from gnnflow.executions.minibatch import forward
from gnnflow.graph.errors import TrainingError
from gnnflow.graphfeature.shards import ShardEntry
from gnnflow.layers.model import Model
from gnnflow.progress import Progress
from gnnflow.train.checkpoint import (
    Checkpoint,
    optimizer_tensors,
    read_checkpoint,
    restore_optimizer,
    write_checkpoint,
)
from gnnflow.train.evaluate import predict
from gnnflow.train.minibatch.batches import EpochPlan, plan_epoch, plan_evaluation
from gnnflow.train.minibatch.loader import BatchLoader, ReadyBatch
from gnnflow.train.objective import Objective, build_optimizer
from gnnflow.train.reproducible import seed_step
from gnnflow.train.state import FitState
from gnnflow.train.ticker import Ticker

CHECKPOINT_SECONDS = 1.0
"""With train.checkpoint_steps 0 an epoch writes one unless the last is younger: a kill costs this or an epoch."""


@dataclass(frozen=True)
class Job:
    """What one fit does.

    `name` labels its progress, `request` its checkpoints; checkpoint_uri "" writes none.
    """

    name: str
    train_entries: Sequence[ShardEntry]
    valid_entries: Sequence[ShardEntry]
    config: TrainConfig
    seed: int
    checkpoint_uri: str = ""
    request: str = ""
    rank: int = 0
    world_size: int = 1

    @property
    def eval_batch_size(self) -> int:
        """Targets in an evaluation batch."""
        return self.config.eval_batch_size or self.config.batch_size

    def plan(self, epoch: int) -> EpochPlan:
        """Return this rank's steps of an epoch."""
        return plan_epoch(
            self.train_entries,
            seed=self.seed,
            epoch=epoch,
            batch_size=self.config.batch_size,
            rank=self.rank,
            world_size=self.world_size,
        )


@dataclass(frozen=True)
class Fitted:
    """The kept weights (the best epoch's; the last's where nothing was validated) and how it went."""

    weights: Mapping[str, Tensor]
    state: FitState


@dataclass
class _Fit:
    """A fit in progress: the only mutable thing in training."""

    model: Model
    job: Job
    objective: Objective
    pipeline: BatchLoader
    progress: Progress
    state: FitState = field(default_factory=FitState)
    best: dict[str, Tensor] = field(default_factory=dict)
    written_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.optimizer = build_optimizer(self.model, self.job.config)
        self.steps = len(self.job.plan(0))
        self.validation = plan_evaluation(self.job.valid_entries, batch_size=self.job.eval_batch_size)
        self._restore()
        total = self.job.config.epochs * self.steps
        self.ticker = Ticker(self.progress, self.job.name, done=self.done, total=total)

    @property
    def done(self) -> int:
        """Steps taken since the first epoch."""
        return self.state.epoch * self.steps + self.state.step

    def train_epoch(self) -> None:
        """Take the remaining steps of the current epoch."""
        self.model.train()
        plan = self.job.plan(self.state.epoch)
        last = time.perf_counter()
        for batch in self.pipeline.batches(plan.since(self.state.step), for_training=True):
            loss, count = self._step(batch)
            now = time.perf_counter()
            self.state = self.state.after_step(loss=loss, num_targets=count, seconds=now - last)
            last = now
            self._report(count)
            every = self.job.config.checkpoint_steps
            if every and self.done % every == 0:
                self.checkpoint()

    def _step(self, batch: ReadyBatch) -> tuple[float, int]:
        seed_step(self.job.seed, epoch=self.state.epoch, step=self.state.step, rank=self.job.rank)
        loss, count = self.objective.loss(forward(self.model, batch.tensors), batch.labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise TrainingError(
                f"the training loss is {value} in epoch {self.state.epoch}, step {self.state.step}",
                where="train",
                fix="Lower train.lr, or set graph.normalize if features are large.",
            )
        return value, count

    def finish_epoch(self) -> None:
        """Validate, keep the weights if they are the best so far, and decide whether to go on."""
        row = {
            "epoch": self.state.epoch,
            "train_loss": self.state.mean_loss,
            "seconds": self.state.seconds,
            "samples_per_second": self.state.num_targets / max(self.state.seconds, 1e-9),
        }
        if self.validation:
            row |= self._validate()
        self.state = self.state.after_epoch(row)
        stale = self._is_stale()
        self.state = replace(self.state, finished=stale or self.state.epoch == self.job.config.epochs)
        waited = time.monotonic() - self.written_at
        if self.state.finished or (not self.job.config.checkpoint_steps and waited >= CHECKPOINT_SECONDS):
            self.checkpoint()
        if self.state.finished:
            self._report(0, final=True)

    def _validate(self) -> dict[str, float]:
        metric = self.job.config.metric
        outputs = predict(self.model, self.validation, pipeline=self.pipeline)
        loss = outputs.loss(self.objective)
        value = -loss if metric == "loss" else outputs.metric(metric, self.objective.label_kind)
        if self.state.is_better(value=value, loss=loss):
            self.state = self.state.with_best(value=value, loss=loss)
            self.best = _copy(self.model.state_dict())
        return {"valid_loss": loss} if metric == "loss" else {"valid_loss": loss, f"valid_{metric}": value}

    def _is_stale(self) -> bool:
        config, state = self.job.config, self.state
        if not self.validation or config.patience == 0 or state.epoch - 1 - state.best_epoch < config.patience:
            return False
        if state.epoch < config.epochs:
            best = f"the best {config.metric} was in epoch {state.best_epoch}"
            self.progress.message(f"{self.job.name}: stopped after epoch {state.epoch - 1}; {best}")
        return True

    def _report(self, num_targets: int, *, final: bool = False) -> None:
        fields = {"loss": self.state.mean_loss if self.state.step else self.state.history[-1]["train_loss"]}
        if self.state.best_epoch >= 0:
            last = self.state.history[-1]
            fields["valid_metric"] = last.get(f"valid_{self.job.config.metric}", last["valid_loss"])
        self.ticker.tick(self.done, num_targets=num_targets, fields=fields, final=final)

    def checkpoint(self) -> None:
        """Write where the fit stands."""
        if not self.job.checkpoint_uri:
            return
        tensors = optimizer_tensors(self.optimizer)
        model = self.model.state_dict()
        moment = Checkpoint(self.job.request, self.state.to_json(), model, self.best, tensors)
        write_checkpoint(self.job.checkpoint_uri, moment)
        self.written_at = time.monotonic()

    def _restore(self) -> None:
        found = read_checkpoint(self.job.checkpoint_uri) if self.job.checkpoint_uri else None
        if found is None:
            return
        if found.request != self.job.request:
            self.progress.message(f"{self.job.name}: the checkpoint belongs to another request and is not used")
            return
        self.state = FitState.from_json(found.state)
        self.model.load_state_dict(found.model)
        self.best = dict(found.best)
        restore_optimizer(self.optimizer, found.optimizer)
        self.progress.message(f"{self.job.name}: goes on from epoch {self.state.epoch}, step {self.state.step}")


def fit(model: Model, job: Job, *, objective: Objective, pipeline: BatchLoader, progress: Progress) -> Fitted:
    """Train the model in place and return the weights to keep.

    Goes on from the job's checkpoint where there is one. Raises TrainingError where the loss leaves the
    finite numbers or the validation split does not define the configured metric.
    """
    running = _Fit(model, job, objective, pipeline, progress)
    while not running.state.finished:
        running.train_epoch()
        running.finish_epoch()
    return Fitted(running.best or _copy(model.state_dict()), running.state)


def _copy(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in weights.items()}
