"""What training is asked for, and what can be said against it before any work."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gnnflow.config import ModelConfig, NodeTask, PlateauSchedule, TaskConfig, TrainConfig
from gnnflow.config.neighbors_section import WalkNeighbors
from gnnflow.config.train_keys import RANKS_PLACE_ONLY
from gnnflow.config.train_section import rank_keys, result_keys
from gnnflow.graph.edges import Fanout, SamplingKind
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.labels import LabelKind, check_loss, check_metric
from gnnflow.graph.splits import SPLITS, check_splits
from gnnflow.layers.model import ModelInputs
from gnnflow.layers.start import Start
from gnnflow.neighbors.link_candidates import KnownLinks
from gnnflow.neighbors.selected import Neighbors
from gnnflow.storage.graph_store import GraphStore
from gnnflow.train.failed_batch import FailureFolder

_NO_INFLUENCE = {
    "device",
    "prefetch",
    "cache",
    "recompute",
    "scratch",
    "checkpoint_steps",
    "log",
    "start",
    "workers",
    "updater",
    *RANKS_PLACE_ONLY,
}


@dataclass(frozen=True)
class TrainJob:
    """What to train on and how.

    start: a model's weights to start from, in place of the seed's.

    entries are the GraphFlat manifest's shards; fanouts are targets first, None keeps every edge. sampling says how
    the edges of a fan-out were chosen.
    checkpoint_uri is a folder for checkpoints, which the caller deletes once the result is committed; ""
    writes none. failures: where a batch whose loss is no number is kept; None keeps none. rank and num_ranks say which
    share of each step, and of each split's scoring, is computed here. task: says whether targets are nodes or pairs.
    device: where this rank computes, as torch names it; `train` sets it from what the config says. neighbors: the graph
    store and the in-edges to aggregate over, where that is trained on and not shards: artifact is then the store's and
    entries are its splits. walks: how these were selected, where `train.resample` draws walks anew. store: the graph
    store, where known edges are looked up. known: those that held-out links are not ranked against, which `train` reads
    once for all fits of a rank; None where none are left out.
    """

    artifact: str
    entries: Sequence[ShardEntry]
    fanouts: tuple[Fanout, ...] | None
    model: ModelConfig
    inputs: ModelInputs
    label_kind: LabelKind
    num_classes: int
    train: TrainConfig
    seed: int
    checkpoint_uri: str = ""
    sampling: SamplingKind = "uniform"
    start: Start | None = None
    failures: FailureFolder | None = None
    rank: int = 0
    num_ranks: int = 1
    task: TaskConfig = field(default_factory=NodeTask)
    device: str = "cpu"
    neighbors: Neighbors | None = None
    walks: WalkNeighbors | None = None
    store: GraphStore | None = None
    known: KnownLinks | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have targets."""
        found = {entry.split for entry in self.entries if entry.num_samples}
        return tuple(split for split in SPLITS if split in found)


def check_job(job: TrainJob) -> None:
    """Raise TrainingError for a job that cannot be trained, before any work."""
    on_plateau = isinstance(job.train.schedule, PlateauSchedule)
    check_splits(job.splits, patience=job.train.patience, on_plateau=on_plateau)
    check_loss(job.train.loss.kind, job.label_kind)
    if "valid" in job.splits:
        check_metric(job.train.metric, job.label_kind)


def fit_digest(job: TrainJob, name: str) -> str:
    """Return what tells one fit's checkpoints from another's: all that its weights depend on, and nothing else."""
    content: dict[str, Any] = {
        "name": name,
        "artifact": job.artifact,
        "entries": [asdict(entry) for entry in job.entries],
        "fanouts": job.fanouts,
        "sampling": job.sampling,
        "model": job.model.model_dump(mode="json"),
        "inputs": asdict(job.inputs),
        "label_kind": job.label_kind,
        "num_classes": job.num_classes,
        "train": result_keys(job.train, exclude=_NO_INFLUENCE) | rank_keys(job.train),
        "seed": job.seed,
    }
    if job.task.kind != "node":
        content["task"] = job.task.model_dump(mode="json")
    if job.start is not None:
        content["start"] = job.start.digest
    if job.neighbors is not None:
        content["neighbors"] = [job.neighbors.store.selection, job.neighbors.artifact]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
