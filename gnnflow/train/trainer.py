"""GraphTrainer's entry: one request in, weights and metrics out.

The same few lines train the model and, where asked, the same classifier without edges, whose metrics say what
the graph adds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from gnnflow.config import ModelConfig, TrainConfig
from gnnflow.graph.arrays import IntArray
from gnnflow.graph.errors import TrainingError
from gnnflow.graphfeature.shards import Shard, ShardEntry, read_shard
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.layers.saved import encode_weights
from gnnflow.progress import Progress
from gnnflow.storage.filesystem import join
from gnnflow.train.evaluate import evaluate
from gnnflow.train.fit import Fitted, Job, fit
from gnnflow.train.metrics import NAMES, LabelKind, Scores
from gnnflow.train.objective import Objective, balanced_weights
from gnnflow.train.pipeline import Pipeline
from gnnflow.train.reproducible import compute_settings, seed_weights
from gnnflow.train.state import Row

_NO_INFLUENCE = {"prefetch", "cache", "checkpoint_steps"}


@dataclass(frozen=True)
class TrainRequest:
    """What to train on and how.

    entries are the GraphFlat manifest's shards; fanouts are targets first, None keeps every edge.
    checkpoint_uri is a folder for checkpoints, which the caller deletes once the result is committed; ""
    writes none.
    """

    artifact: str
    entries: Sequence[ShardEntry]
    fanouts: tuple[int, ...] | None
    model: ModelConfig
    inputs: ModelInputs
    label_kind: LabelKind
    num_classes: int
    train: TrainConfig
    seed: int
    checkpoint_uri: str = ""


@dataclass(frozen=True)
class TrainResult:
    """The kept weights as a safetensors file, one history row per epoch, and flat metrics.

    Rows hold epoch, train_loss, seconds, samples_per_second and, with a validation split, valid_loss and
    valid_<metric>. Metrics are `<split>.<name>`, `baseline.<split>.<name>` and `train.*` figures. confusion:
    by split, see `Scores`.
    """

    weights: bytes
    history: tuple[Row, ...]
    best_epoch: int
    metrics: dict[str, float]
    confusion: dict[str, IntArray] = field(default_factory=dict)


def train(
    request: TrainRequest, *, progress: Progress, read: Callable[[ShardEntry], Shard] | None = None
) -> TrainResult:
    """Train, evaluate every split with the best epoch's weights, and likewise the baseline if asked for.

    `read` replaces reading shards from the artifact. Equal requests give equal weights, byte for byte, also
    when a run was killed and started again with the same checkpoint_uri. Raises TrainingError for a request
    that cannot be trained.
    """
    check_request(request)
    read = read or partial(read_shard, request.artifact)
    with compute_settings(request.train.threads):
        fitted, scores = _train_one(request, "train", progress=progress, read=read)
        metrics = _figures(fitted) | _named(scores)
        if request.train.baseline:
            _, without_edges = _train_one(request, "baseline", progress=progress, read=read)
            metrics |= {f"baseline.{name}": value for name, value in _named(without_edges).items()}
    return TrainResult(
        weights=encode_weights(fitted.weights),
        history=fitted.state.history,
        best_epoch=_best_epoch(fitted),
        metrics=metrics,
        confusion={split: each.confusion for split, each in scores.items() if each.confusion is not None},
    )


def check_request(request: TrainRequest) -> None:
    """Raise TrainingError for a request that cannot be trained, before any work."""
    splits = {entry.split for entry in request.entries if entry.num_targets}
    metric = request.train.metric
    if "train" not in splits:
        raise TrainingError("no target is in the train split", where="graph.split", fix="Mark some nodes as train.")
    if request.train.patience and "valid" not in splits:
        raise TrainingError(
            f"patience {request.train.patience} needs a validation split, and no target is in it",
            where="train.patience",
            fix="Set it to 0, or mark some nodes as valid.",
        )
    if "valid" in splits and metric != "loss" and metric not in NAMES[request.label_kind]:
        raise TrainingError(
            f"{metric} is not defined for {request.label_kind} labels", where="train.metric", fix="Set it to loss."
        )


def _train_one(
    request: TrainRequest, name: str, *, progress: Progress, read: Callable[[ShardEntry], Shard]
) -> tuple[Fitted, dict[str, Scores]]:
    config = request.train
    seed_weights(request.seed)
    model = build_model(request.model, request.inputs)
    job = _job(request, name)
    with Pipeline(
        read,
        fanouts=request.fanouts,
        num_layers=request.model.layers,
        cache_bytes=config.cache,
        prefetch=config.prefetch,
        edges=name != "baseline",
    ) as pipeline:
        fitted = fit(model, job, objective=_objective(request, job, pipeline), pipeline=pipeline, progress=progress)
        model.load_state_dict(fitted.weights)
        scores = evaluate(
            model, request.entries, label_kind=request.label_kind, pipeline=pipeline, batch_size=job.eval_batch_size
        )
    for split, each in scores.items():
        for note in each.notes:
            progress.message(f"{name}: {split}: {note}")
    return fitted, scores


def _job(request: TrainRequest, name: str) -> Job:
    by_split = {split: [each for each in request.entries if each.split == split] for split in ("train", "valid")}
    uri = join(request.checkpoint_uri, f"{name}.safetensors") if request.checkpoint_uri else ""
    return Job(
        name,
        by_split["train"],
        by_split["valid"],
        request.train,
        request.seed,
        uri,
        request_digest(request, name),
    )


def _objective(request: TrainRequest, job: Job, pipeline: Pipeline) -> Objective:
    if request.train.class_weight == "none":
        return Objective(request.label_kind)
    labels = pipeline.labels(job.train_entries)
    return Objective(
        request.label_kind, balanced_weights(labels, label_kind=request.label_kind, num_classes=request.num_classes)
    )


def request_digest(request: TrainRequest, name: str) -> str:
    """Return what tells one fit from another: all that its weights depend on, and nothing else."""
    content: dict[str, Any] = {
        "name": name,
        "artifact": request.artifact,
        "entries": [asdict(entry) for entry in request.entries],
        "fanouts": request.fanouts,
        "model": request.model.model_dump(mode="json"),
        "inputs": asdict(request.inputs),
        "label_kind": request.label_kind,
        "num_classes": request.num_classes,
        "train": request.train.model_dump(mode="json", exclude=_NO_INFLUENCE),
        "seed": request.seed,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _named(scores: dict[str, Scores]) -> dict[str, float]:
    return {name: value for split, each in scores.items() for name, value in each.named(split).items()}


def _best_epoch(fitted: Fitted) -> int:
    return fitted.state.best_epoch if fitted.state.best_epoch >= 0 else len(fitted.state.history) - 1


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
