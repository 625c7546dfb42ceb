"""The training loop: epochs of steps, validation, the best weights kept, checkpoints on the way.

Steps come from a source and become weights in an updater; neither shards nor ranks are known here. Where a fit
stands is a `FitState` and three groups of tensors; both are in every checkpoint, so a fit that is killed at any
moment and started again ends on the same weights, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

from torch import Tensor

from gnnflow.layers.model import Model
from gnnflow.progress import Progress, place_text
from gnnflow.train.background import CheckpointWriter
from gnnflow.train.checkpoint import Checkpoint, CheckpointError, copied, read_checkpoint
from gnnflow.train.curves import EpochLog, NoLog
from gnnflow.train.fit_run import FitOptions, FitRun, schedule_so_far
from gnnflow.train.objective import Objective
from gnnflow.train.source import Source
from gnnflow.train.state import FitState
from gnnflow.train.ticker import Ticker
from gnnflow.train.updater import Updater


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
    ticker = Ticker(progress, options.name, done=state.steps_done(per_epoch), total=options.epochs * per_epoch)
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
            rate=options.lr,
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
