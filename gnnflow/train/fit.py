"""The training loop: epochs of steps, validation, the best weights kept, checkpoints on the way.

Steps come from a source and become weights in an updater; neither shards nor ranks are known here. Where a fit
stands is a `FitState` and three groups of tensors; both are in every checkpoint, so a fit that is killed at any
moment and started again ends on the same weights, bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gnnflow.config import TrainConfig
from gnnflow.config.train_section import needs_ranks
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.labels import lower_is_better, of_class
from gnnflow.layers.model import Model
from gnnflow.progress import Progress, place_text
from gnnflow.train.checkpoint import Checkpoint, CheckpointError, CheckpointWriter, copied, read_checkpoint
from gnnflow.train.curves import EpochLog, NoLog
from gnnflow.train.failed_batch import FailureFolder
from gnnflow.train.objective import Objective
from gnnflow.train.outputs import NOT_FINITE
from gnnflow.train.profile import Stopwatch, added, longer_wait, profile_of, since
from gnnflow.train.schedule import Schedule, build_schedule
from gnnflow.train.source import Source, Step
from gnnflow.train.state import FitState, Row
from gnnflow.train.updater import StepLoss, Updater

CHECKPOINT_SECONDS = 1.0
"""With checkpoint_steps 0 an epoch writes one unless the last is younger: a kill costs this or an epoch."""
SECONDS_BETWEEN = 0.2
"""Between two reports of progress, at least: a pace that people can read."""


@dataclass(frozen=True)
class FitOptions:
    """A fit's part of a training: its name, its section of the config, and the files that it writes.

    `name` labels its progress, `digest` its checkpoints; checkpoint_uri "" has none. Of several ranks, which all go on
    from the same checkpoint, one `writes_checkpoints`. positive: see `metrics_of`. metric_class: the name of
    the class that `train.metric` is of; empty where none is named. failures: where a batch whose loss is no number is
    kept; None keeps none.
    """

    name: str
    train: TrainConfig
    digest: str = ""
    checkpoint_uri: str = ""
    writes_checkpoints: bool = True
    positive: int | None = None
    metric_class: str = ""
    failures: FailureFolder | None = None

    @property
    def checkpoints_held(self) -> bool:
        """True if a checkpoint may be written within an update: what each of several ranks holds for it differs."""
        return not needs_ranks(self.train)

    def updates(self, steps_per_epoch: int) -> int:
        """Return how often an epoch changes the weights."""
        return -(-steps_per_epoch // self.train.accumulate)


@dataclass(frozen=True)
class Fitted:
    """The kept weights (the best epoch's; the last's where nothing was validated) and how it went."""

    weights: Mapping[str, Tensor]
    state: FitState


def fit(
    model: Model,
    options: FitOptions,
    *,
    source: Source,
    updater: Updater,
    objective: Objective,
    progress: Progress,
    log: EpochLog | None = None,
) -> Fitted:
    """Train the model in place and return the weights to keep.

    Goes on from the checkpoint where there is one. log: hears of every epoch as it ends. Raises TrainingError where the
    loss leaves the finite numbers or the validation split does not define the metric.
    """
    found = _restore(model, options, updater=updater, progress=progress)
    state = FitState() if found is None else FitState.from_json(found.state)
    per_epoch = source.steps_per_epoch
    ticker = Ticker(progress, options.name, done=state.steps_done(per_epoch), total=options.train.epochs * per_epoch)
    best = {} if found is None else dict(found.best)
    log = log or NoLog()
    log.epochs(options.name, state.history)
    writes = bool(options.checkpoint_uri) and options.writes_checkpoints
    with CheckpointWriter(options.checkpoint_uri) if writes else nullcontext() as writer:
        running = FitRun(
            model=model,
            options=options,
            source=source,
            updater=updater,
            objective=objective,
            progress=progress,
            ticker=ticker,
            steps_per_epoch=per_epoch,
            state=state,
            best=best,
            schedule=schedule_so_far(options, state, steps_per_epoch=per_epoch),
            rate=options.train.lr,
            writer=writer,
            log=log,
        )
        while not running.state.finished:
            running.train_epoch()
            running.finish_epoch()
    return Fitted(running.best or copied(model.state_dict()), running.state)


def _restore(model: Model, options: FitOptions, *, updater: Updater, progress: Progress) -> Checkpoint | None:
    """Put the fit's checkpoint into model and updater and return it, or None where it has none."""
    try:
        found = read_checkpoint(options.checkpoint_uri) if options.checkpoint_uri else None
    except CheckpointError as error:
        progress.message(f"{options.name}: starts anew, its checkpoint cannot be used: {error}")
        return None
    if found is None:
        return None
    if found.digest != options.digest:
        progress.message(f"{options.name}: the checkpoint belongs to another job and is not used")
        return None
    model.load_state_dict(found.model)
    updater.restore(found.updater)
    progress.message(f"{options.name}: goes on from {place_text(found.state['epoch'], found.state['step'])}")
    return found


def schedule_so_far(options: FitOptions, state: FitState, *, steps_per_epoch: int) -> Schedule:
    """Return the schedule as the epochs so far have left it."""
    made = build_schedule(
        options.train.schedule,
        lr=options.train.lr,
        epochs=options.train.epochs,
        updates_per_epoch=options.updates(steps_per_epoch),
        metric=options.train.metric,
    )
    for row in state.history:
        _tell(made, row, options.train.metric)
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
        every = self.options.train.checkpoint_steps
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
        half = self.options.train.precision == "bfloat16"
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
        return taken % self.options.train.accumulate == 0 or taken == self.steps_per_epoch

    def _rate_of(self, step: int) -> float:
        """Return the learning rate of the update that a step of this epoch belongs to; of stolen ones, the last's."""
        step = min(step, self.steps_per_epoch - 1)
        updates = self.options.updates(self.steps_per_epoch)
        return self.schedule.rate(self.state.epoch * updates + step // self.options.train.accumulate)

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
        _tell(self.schedule, row, self.options.train.metric)
        self.state = self.state.after_epoch(row)
        self.log.epochs(self.options.name, [row])
        finished = self._is_stale() or self.state.epoch == self.options.train.epochs
        self.state = replace(self.state, finished=finished)
        waited = time.monotonic() - self.written_at
        if finished or (not self.options.train.checkpoint_steps and waited >= CHECKPOINT_SECONDS):
            self.checkpoint()
        if finished:
            self._report(0, final=True)

    def _validate(self) -> dict[str, float]:
        metric = self.options.train.metric
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
        kind, positive = self.objective.label_kind, self.options.positive
        value = loss if metric == "loss" else outputs.metric(metric, kind, positive=positive)
        height = -value if lower_is_better(metric) else value
        if self.state.is_better(value=height, loss=loss):
            self.state = self.state.with_best(value=height, loss=loss)
            self.best = copied(self.model.state_dict())
        return {"valid_loss": loss} if metric == "loss" else {"valid_loss": loss, f"valid_{metric}": value}

    def _is_stale(self) -> bool:
        options, state = self.options, self.state
        patience, since = options.train.patient_epochs, state.epoch - 1 - state.best_epoch
        if patience == 0 or state.best_epoch < 0 or since < patience:
            return False
        if state.epoch < options.train.epochs:
            metric = f"{options.train.metric}{of_class(options.train.metric, options.metric_class)}"
            best = f"the best valid {metric} was in epoch {state.best_epoch + 1}, whose weights are kept"
            ended = f"stopped after epoch {state.epoch} of {options.train.epochs}, {since} epochs without a better one"
            self.progress.message(f"{options.name}: {ended}; {best}")
        return True

    def _report(self, num_targets: int, *, final: bool = False) -> None:
        if not self.ticker.counts(self.done, num_targets=num_targets, final=final):
            return
        # epochs count from 1 for people, and the last report comes when the last one is over
        fields: dict[str, float] = {
            "epoch": self.state.epoch + (0 if final else 1),
            "epochs": self.options.train.epochs,
        }
        if self.state.num_targets:
            fields["train_loss"] = self.state.mean_loss
        elif self.state.history:
            fields["train_loss"] = self.state.history[-1]["train_loss"]
        if self.state.best_epoch >= 0:
            name = f"valid_{self.options.train.metric}"
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


class Ticker:
    """Reports steps done with speed and remaining time, measured since it was made."""

    def __init__(self, progress: Progress, name: str, *, done: int, total: int) -> None:
        self._progress = progress
        self._name = name
        self._total = total
        self._first = done
        self._started = time.monotonic()
        self._last = 0.0
        self._targets = 0

    def counts(self, done: int, *, num_targets: int, final: bool = False) -> bool:
        """Count a step's targets; return whether the last report is long enough ago, or this is the final one."""
        self._targets += num_targets
        return final or time.monotonic() - self._last >= SECONDS_BETWEEN

    def tell(self, done: int, *, fields: dict[str, float], final: bool = False) -> None:
        """Report now."""
        self._last = now = time.monotonic()
        elapsed = max(now - self._started, 1e-9)
        remaining = elapsed / max(done - self._first, 1) * (self._total - done)
        speed = {"samples_per_second": self._targets / elapsed, **({} if final else {"eta_seconds": remaining})}
        self._progress.step(self._name, done, done if final else self._total, {**fields, **speed})
