"""GraphTrainer's entry: one job in, weights and metrics out.

The same few lines train the model and, where asked, the same classifier without edges, whose metrics say what
the graph adds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gnnflow.config.pipelines import load_named
from gnnflow.config.train_section import is_streamed, pipeline_of
from gnnflow.graph.arrays import IntArray
from gnnflow.graph.run_facts import READER_WAIT, STAGE_PARTS, Decision, has_reader, has_stages
from gnnflow.graph.score_facts import ScoreFacts
from gnnflow.kernels.device import described, find_device
from gnnflow.layers.saved import encode_weights
from gnnflow.layers.start import start_from
from gnnflow.native import remark
from gnnflow.progress import Progress
from gnnflow.storage.filesystem import join
from gnnflow.train.curves import EpochLog
from gnnflow.train.decisions import Deciding, choose_decision
from gnnflow.train.describing import describe_scores
from gnnflow.train.failed_batch import FailureFolder
from gnnflow.train.fit import FitOptions, Fitted, fit
from gnnflow.train.job import TrainJob, fit_digest
from gnnflow.train.metrics import Metrics
from gnnflow.train.objective import Objective, balanced_weights
from gnnflow.train.outputs import Outputs
from gnnflow.train.profile import mean_profile
from gnnflow.train.rank import OnlyRank, Rank
from gnnflow.train.reproducible import compute_settings
from gnnflow.train.source import OpenSource, Source
from gnnflow.train.state import Row


@dataclass(frozen=True)
class TrainResult:
    """The kept weights as a safetensors file, one history row per epoch, and flat metrics.

    Rows hold epoch, train_loss, lr (of the last update), samples_per_second, seconds, also by part of the epoch (see
    `profile.py`), and, with a validation split, valid_loss and valid_<metric>. Epochs count from 1, in rows as in
    best_epoch. Metrics are `<split>.<name>`, `baseline.<split>.<name>` and `train.*` figures. confusion: by split, see
    `Metrics`. profiles: of each rank, the mean over epochs. device, constant, metric, metric_class, decision, scores,
    losses: see `TrainFacts`.
    """

    weights: bytes
    history: tuple[Row, ...]
    best_epoch: int
    metrics: dict[str, float]
    confusion: dict[str, IntArray] = field(default_factory=dict)
    profiles: tuple[Row, ...] = ()
    device: str = ""
    constant: str = ""
    metric: str = ""
    metric_class: str = ""
    decision: Decision | None = None
    scores: ScoreFacts | None = None
    losses: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Trained:
    """A fit and what its kept weights give: metrics by split, losses of train and valid, the threshold, and scores."""

    fitted: Fitted
    found: dict[str, Metrics]
    losses: dict[str, float]
    decision: Decision | None
    scores: ScoreFacts | None


def train(
    job: TrainJob,
    *,
    progress: Progress,
    open_source: OpenSource | None = None,
    rank: Rank | None = None,
    log: EpochLog | None = None,
) -> TrainResult:
    """Train, evaluate every split with the best epoch's weights, and likewise the baseline if asked for.

    `open_source` replaces the strategy's, `log` hears of every epoch as it ends. `rank` is this process's part among
    several; all of them give the result. Equal jobs give equal weights, byte for byte, also when a run was killed and
    started again with the same folder of checkpoints. The job has been checked, see `check_job`.
    """
    if absent := remark():
        progress.message(absent)
    row = pipeline_of(job.train)
    open_source = open_source or load_named(row.streamed if is_streamed(job.train) else row.source)
    rank = rank or OnlyRank()
    device = find_device(job.train.device, where="train.device", number=rank.card)
    job = replace(job.with_metric(), share=replace(job.share, device=str(device)))
    with compute_settings(job.train.threads, device):
        with rank.open(open_source, job, edges=True) as source:
            made = _train_one(job, "train", source=source, rank=rank, progress=progress, log=log)
        fitted, found = made.fitted, made.found
        profiles = rank.of_all(mean_profile(fitted.state.history))
        metrics = _figures(fitted) | _waits(profiles) | _named(found)
        if job.train.baseline:
            with rank.open(open_source, job, edges=False) as source:
                bare = _train_one(job, "baseline", source=source, rank=rank, progress=progress, log=log)
            metrics |= {f"baseline.{name}": value for name, value in _named(bare.found).items()}
    return TrainResult(
        weights=encode_weights(fitted.weights),
        history=fitted.state.history,
        best_epoch=_best_epoch(fitted),
        metrics=metrics,
        profiles=profiles,
        confusion={split: each.confusion for split, each in found.items() if each.confusion is not None},
        device=described(device),
        constant=_constant(found),
        metric=job.train.metric,
        metric_class=job.metric_class,
        decision=made.decision,
        scores=made.scores,
        losses=made.losses,
    )


def _train_one(
    job: TrainJob, name: str, *, source: Source, rank: Rank, progress: Progress, log: EpochLog | None
) -> _Trained:
    """Fit the model, or the baseline, and measure it in evaluation mode with the weights that are kept."""
    model = job.model.build(seed=job.seed)
    # A baseline shows what the graph adds, so it must not begin with what another model learned from a graph.
    if job.start is not None and name == "train":
        progress.message(f"{name}: {start_from(model, job.start)}")
    model.to(job.share.device)
    objective = _objective(job, source)
    fitted = fit(
        model,
        replace(_options(job, name), writes_checkpoints=rank.writes_checkpoints),
        source=source,
        updater=rank.updater(model, job.train),
        objective=objective,
        progress=progress,
        log=log,
    )
    model.load_state_dict(fitted.weights)
    # the outputs of other splits are held one after the other
    held = {"valid": source.outputs(model, "valid")} if job.reads_valid and "valid" in source.splits else {}
    decision = _decide(job, held.get("valid"))
    deciding = Deciding.of(job.decide, decision, names=job.class_names)
    found: dict[str, Metrics] = {}
    losses: dict[str, float] = {}
    scores = None
    for split in source.splits:
        outputs = held.pop(split, None) or source.outputs(model, split)
        is_measured = split == "test" and name == "train"
        names = job.class_names
        found[split] = outputs.metrics(
            job.label_kind, intervals=is_measured, deciding=deciding, class_names=names, positive=job.positive
        )
        if split != "test" and math.isfinite(loss := outputs.loss(objective)):
            losses[split] = loss
        if name == "train" and split == source.splits[-1]:
            metric, store = job.train.metric, job.graph.store
            scores = describe_scores(
                outputs,
                split,
                label_kind=job.label_kind,
                metric=metric,
                deciding=deciding,
                store=store,
                named=job.named,
            )
    if decision is not None and job.reads_valid and name == "train":
        progress.message(f"{name}: {decision.tell(job.class_names[decision.positive or 0])}")
    for split, each in found.items():
        for note in each.notes:
            progress.message(f"{name}: {split}: {note}")
    if (said := _constant(found)) and scores is not None and scores.decides_both:
        progress.message(f"{name}: {said}; the column decision, by the threshold, has both classes")
    elif said:
        weigh = "" if job.train.class_weight == "balanced" else "train.class_weight, "
        progress.message(f"{name}: {said}. Try {weigh}more epochs or another train.lr.")
    return _Trained(fitted, found, losses, decision, scores)


def _decide(job: TrainJob, valid: Outputs | None) -> Decision | None:
    """Return the decision that the outputs of valid give; None where targets do not have one class each."""
    if not job.decides:
        return None
    names = job.class_names
    if valid is None:
        return choose_decision(job.decide, None, None, names=names)
    return valid.decision(job.decide, names=names)


def _constant(found: dict[str, Metrics]) -> str:
    """Return the prediction that all targets of the last split (test if there is one) share; empty if they differ."""
    split, last = list(found.items())[-1]
    return last.constant and f"the model predicts {last.constant} for every {split} target, and their labels differ"


def _options(job: TrainJob, name: str) -> FitOptions:
    store = job.graph.store
    return FitOptions(
        name,
        job.train,
        digest=fit_digest(job, name),
        positive=job.positive,
        metric_class=job.metric_class,
        checkpoint_uri=join(job.files.checkpoints, f"{name}.safetensors") if job.files.checkpoints else "",
        failures=FailureFolder(job.files.failures, store) if job.files.failures and store else None,
    )


def _objective(job: TrainJob, source: Source) -> Objective:
    if job.train.class_weight == "none":
        return Objective(job.label_kind, config=job.train.loss, unit=job.model.inputs.unit)
    weights = balanced_weights(source.train_labels(), label_kind=job.label_kind, num_classes=job.num_classes)
    return Objective(job.label_kind, weights, job.train.loss)


def _named(found: dict[str, Metrics]) -> dict[str, float]:
    return {name: value for split, each in found.items() for name, value in each.named(split).items()}


def _best_epoch(fitted: Fitted) -> int:
    """Return the epoch whose weights are kept, counted from 1; the last where nothing was validated."""
    return fitted.state.best_epoch + 1 if fitted.state.best_epoch >= 0 else len(fitted.state.history)


def _waits(profiles: Sequence[Row]) -> dict[str, float]:
    """Return the seconds that the two sides waited per epoch, a mean over ranks, and the stages of layers."""
    timed, reads = any(map(has_stages, profiles)), any(map(has_reader, profiles))
    parts = ("wait", *[READER_WAIT] * reads, *(STAGE_PARTS if timed else ()))
    return {
        f"train.{part}_seconds_per_epoch": sum(each.get(f"{part}_seconds", 0.0) for each in profiles) / len(profiles)
        for part in parts
    }


def _figures(fitted: Fitted) -> dict[str, float]:
    history = fitted.state.history
    seconds = sum(row["seconds"] for row in history)
    samples = sum(row["seconds"] * row["samples_per_second"] for row in history)
    return {
        "train.epochs": len(history),
        "train.best_epoch": _best_epoch(fitted),
        "train.seconds": seconds,
        "train.seconds_per_epoch": seconds / len(history),
        "train.samples_per_second": samples / max(seconds, 1e-9),
        "train.loss": history[-1]["train_loss"],
    }
