"""A fit in progress: an epoch's steps, its validation and checkpoints, and what is told of them on the way."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from gnnflow.config import ConstantSchedule, ScheduleConfig
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.labels import lower_is_better
from gnnflow.layers.model import Model
from gnnflow.progress import Progress, place_text
from gnnflow.train.background import CheckpointWriter
from gnnflow.train.checkpoint import Checkpoint, copied
from gnnflow.train.curves import EpochLog
from gnnflow.train.failed_batch import FailureFolder
from gnnflow.train.objective import Objective
from gnnflow.train.outputs import NOT_FINITE
from gnnflow.train.profile import Stopwatch, added, longer_wait, profile_of, since
from gnnflow.train.schedule import Schedule, build_schedule
from gnnflow.train.source import Source, Step
from gnnflow.train.state import FitState, Row
from gnnflow.train.ticker import Ticker
from gnnflow.train.updater import StepLoss, Updater

CHECKPOINT_SECONDS = 1.0
"""With checkpoint_steps 0 an epoch writes one unless the last is younger: a kill costs this or an epoch."""


@dataclass(frozen=True)
class FitOptions:
    """The length of a fit and the files that it writes; section `train` describes the fields that it has too.

    `name` labels its progress, `digest` its checkpoints; checkpoint_uri "" has none. Of several ranks, which all go on
    from the same checkpoint, one `writes_checkpoints`, and none within an update (not `checkpoints_held`): what a rank
    holds for it is its own. failures: where a batch whose loss is no number is kept; None keeps none.
    """

    name: str
    epochs: int
    metric: str
    lr: float
    schedule: ScheduleConfig = field(default_factory=ConstantSchedule)
    patience: int = 0
    accumulate: int = 1
    precision: Literal["float32", "bfloat16"] = "float32"
    checkpoint_steps: int = 0
    checkpoint_uri: str = ""
    digest: str = ""
    writes_checkpoints: bool = True
    checkpoints_held: bool = True
    failures: FailureFolder | None = None

    def updates(self, steps_per_epoch: int) -> int:
        """Return how often an epoch changes the weights."""
        return -(-steps_per_epoch // self.accumulate)


def schedule_so_far(options: FitOptions, state: FitState, *, steps_per_epoch: int) -> Schedule:
    """Return the schedule as the epochs so far have left it."""
    made = build_schedule(
        options.schedule,
        lr=options.lr,
        epochs=options.epochs,
        updates_per_epoch=options.updates(steps_per_epoch),
        metric=options.metric,
    )
    for row in state.history:
        _tell(made, row, options.metric)
    return made


def _tell(schedule: Schedule, row: Mapping[str, float], metric: str) -> None:
    if f"valid_{metric}" in row:
        schedule.validated(row[f"valid_{metric}"])


@dataclass
class FitRun:
    """A fit in progress: the only mutable thing in training."""

    model: Model
    options: FitOptions
    source: Source
    updater: Updater
    objective: Objective
    progress: Progress
    ticker: Ticker
    steps_per_epoch: int
    state: FitState
    best: dict[str, Tensor]
    schedule: Schedule
    rate: float
    log: EpochLog
    writer: CheckpointWriter | None = None
    watch: Stopwatch = field(default_factory=Stopwatch)
    spent_before: Row = field(default_factory=dict)
    due: bool = False
    written_at: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> int:
        """Steps taken since the first epoch; no epoch has more than are planned, whatever this rank stole."""
        return self.state.steps_done(self.steps_per_epoch)

    def train_epoch(self) -> None:
        """Take the remaining steps of the current epoch."""
        self.model.train()
        self.spent_before = since(self._measured(), self.state.spent)
        last = time.perf_counter()
        self.watch.start()
        with closing(self.source.steps(self.state.epoch, since=self.state.step)) as steps:
            for step in steps:
                self.watch.lap("wait")
                taken = self._step(step)
                now = time.perf_counter()
                self.state = self.state.after_step(loss=taken.mean, num_targets=taken.num_targets, seconds=now - last)
                last = now
                self._report(taken.num_targets)
                self._write_if_due()
                self.watch.start()
        self.state = replace(self.state, spent=self._spent())

    def _write_if_due(self) -> None:
        every = self.options.checkpoint_steps
        self.due |= bool(every) and (self.state.epoch * self.steps_per_epoch + self.state.step) % every == 0
        if self.due and (self.options.checkpoints_held or self._ends_update(self.state.step)):
            self.checkpoint()
        elif self.writer is not None:
            self.writer.check()

    def _measured(self) -> Row:
        """Return the seconds by part since this process began the fit."""
        return added(self.watch.seconds(), self.source.spent(), self.updater.spent())

    def _spent(self) -> Row:
        """Return the seconds by part of the epoch so far, from before a restart too."""
        return since(self._measured(), self.spent_before)

    def _step(self, step: Step) -> StepLoss:
        step.seed()
        outputs = self._outputs(step)
        loss, count = self.objective.loss(outputs, step.labels)
        value = float(loss.detach())
        self.watch.lap("forward")
        if not math.isfinite(value):
            # before the update: these are the weights that gave it
            raise self._not_finite(value, kept=self._keep(step, outputs, value))
        taken = self._descend(loss, step, count)
        if not math.isfinite(taken.mean):  # the loss of another rank, which keeps its batch
            raise self._not_finite(taken.mean, kept="")
        return taken

    def _outputs(self, step: Step) -> Tensor:
        """Return a step's outputs in float32: so is its loss, whatever the layers computed in."""
        half = self.options.precision == "bfloat16"
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=half):
            return step.logits(self.model).float()

    def _keep(self, step: Step, outputs: Tensor, loss: float) -> str:
        """Keep a step's batch for a person to look at, where that is asked for, and return a message."""
        folder, state = self.options.failures, self.state
        if folder is None:
            return ""
        said = folder.keep(
            self.options.name,
            epoch=state.epoch + 1,
            number=state.step + 1,
            step=step,
            outputs=outputs,
            loss=loss,
            model=self.model,
        )
        return f"; {said}"

    def _not_finite(self, loss: float, *, kept: str) -> TrainingError:
        problem = f"the training loss is {loss} in {place_text(self.state.epoch, self.state.step)}{kept}"
        return TrainingError(problem, where="train", fix=NOT_FINITE)

    def _descend(self, loss: Tensor, step: Step, num_targets: int) -> StepLoss:
        """Update the weights, or keep the loss for the update that ends its group of steps and tells of it."""
        if (rate := self._rate_of(self.state.step)) != self.rate:
            self.updater.set_rate(rate)
            self.rate = rate
        weight = self.objective.weight(step.labels)
        if self._ends_update(self.state.step + 1):
            return self.updater.step(loss, num_targets=num_targets, weight=weight)
        self.updater.hold(loss, num_targets=num_targets, weight=weight)
        return StepLoss(0.0, 0)

    def _ends_update(self, taken: int) -> bool:
        """Return whether an update ends with so many steps of the epoch."""
        return taken % self.options.accumulate == 0 or taken == self.steps_per_epoch

    def _rate_of(self, step: int) -> float:
        """Return the learning rate of the update that a step of this epoch belongs to; of stolen ones, the last's."""
        step = min(step, self.steps_per_epoch - 1)
        updates = self.options.updates(self.steps_per_epoch)
        return self.schedule.rate(self.state.epoch * updates + step // self.options.accumulate)

    def finish_epoch(self) -> None:
        """Validate, keep the weights if they are the best so far, and decide whether to go on."""
        row = {
            "epoch": self.state.epoch + 1,
            "train_loss": self.state.mean_loss,
            "lr": self._rate_of(self.steps_per_epoch - 1),
            "samples_per_second": self.state.num_targets / max(self.state.seconds, 1e-9),
            **profile_of(self.state.spent, seconds=self.state.seconds),
        }
        if "valid" in self.source.splits:
            row |= self._validate()
        _tell(self.schedule, row, self.options.metric)
        self.state = self.state.after_epoch(row)
        self.log.epochs(self.options.name, [row])
        finished = self._is_stale() or self.state.epoch == self.options.epochs
        self.state = replace(self.state, finished=finished)
        waited = time.monotonic() - self.written_at
        if finished or (not self.options.checkpoint_steps and waited >= CHECKPOINT_SECONDS):
            self.checkpoint()
        if finished:
            self._report(0, final=True)

    def _validate(self) -> dict[str, float]:
        metric = self.options.metric
        outputs = self.source.outputs(self.model, "valid")
        loss = outputs.loss(self.objective)
        if not math.isfinite(loss):
            # no weights are better or worse than others by that
            raise TrainingError(
                f"the validation loss is {loss} in epoch {self.state.epoch + 1}",
                where="train",
                fix="Your loss must return a finite number for the valid split. Balanced weights need a class of this "
                "split in the train split.",
            )
        value = loss if metric == "loss" else outputs.metric(metric, self.objective.label_kind)
        height = -value if lower_is_better(metric) else value
        if self.state.is_better(value=height, loss=loss):
            self.state = self.state.with_best(value=height, loss=loss)
            self.best = copied(self.model.state_dict())
        return {"valid_loss": loss} if metric == "loss" else {"valid_loss": loss, f"valid_{metric}": value}

    def _is_stale(self) -> bool:
        options, state = self.options, self.state
        if options.patience == 0 or state.best_epoch < 0 or state.epoch - 1 - state.best_epoch < options.patience:
            return False
        if state.epoch < options.epochs:
            best = f"the best {options.metric} was in epoch {state.best_epoch + 1}"
            self.progress.message(f"{options.name}: stopped after epoch {state.epoch}; {best}")
        return True

    def _report(self, num_targets: int, *, final: bool = False) -> None:
        if not self.ticker.counts(self.done, num_targets=num_targets, final=final):
            return
        fields = {}
        if self.state.num_targets:
            fields["train_loss"] = self.state.mean_loss
        elif self.state.history:
            fields["train_loss"] = self.state.history[-1]["train_loss"]
        if self.state.best_epoch >= 0:
            name = f"valid_{self.options.metric}"
            fields[name] = self.state.history[-1][name]
        if (profile := self._profile()) and (waiting := longer_wait(profile)):
            fields[f"{waiting.side}_waits_percent"] = 100 * waiting.share
        self.ticker.tell(self.done, fields=fields, final=final)

    def _profile(self) -> Row:
        """Return the profile of the epoch so far, or of the last one where none has begun."""
        if self.state.seconds:
            return profile_of(self._spent(), seconds=self.state.seconds)
        return self.state.history[-1] if self.state.history else {}

    def checkpoint(self) -> None:
        """Write a checkpoint of the fit."""
        if self.writer is None:
            return
        model, updater = self.model.state_dict(), self.updater.state()
        state = replace(self.state, spent=self._spent()) if self.state.step else self.state
        self.writer.put(Checkpoint(self.options.digest, state.to_json(), model, self.best, updater))
        self.written_at, self.due = time.monotonic(), False
