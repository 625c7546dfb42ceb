"""The job of training, with the checks that come before any work."""

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
    """Training on GraphFlat's shards.

    artifact and entries: of the shards. fanouts: targets first, None keeps every edge; sampling: how the edges of a
    fan-out were chosen. start: a model's weights to start from, in place of the seed's.
    checkpoint_uri: a folder for checkpoints, which the caller deletes once the result is committed; "" writes none.
    failures: a folder that keeps a batch whose loss is NaN or infinite; "" keeps none. store: the graph store, which
    knows the user's ids and all edges. task: says whether targets are nodes or pairs.
    rank and num_ranks: the share of each step, and of each split's scoring, that is computed here. device: where this
    rank computes, as torch names it. known: edges that held-out links are not ranked against; None leaves none out.
    `train` sets the last two, once for all fits of a rank.
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
    failures: str = ""
    store: GraphStore | None = None
    rank: int = 0
    num_ranks: int = 1
    task: TaskConfig = field(default_factory=NodeTask)
    device: str = "cpu"
    known: KnownLinks | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have targets."""
        found = {entry.split for entry in self.entries if entry.num_samples}
        return tuple(split for split in SPLITS if split in found)


@dataclass(frozen=True, kw_only=True)
class StoreJob(TrainJob):
    """Training on a graph store, whose artifact and splits stand in place of the shards'.

    neighbors: the store and the in-edges to aggregate over. walks: how these were selected, where `train.resample`
    draws walks anew.
    """

    neighbors: Neighbors
    walks: WalkNeighbors | None = None


def check_job(job: TrainJob) -> None:
    """Raise TrainingError for a job that cannot be trained, before any work."""
    on_plateau = isinstance(job.train.schedule, PlateauSchedule)
    check_splits(job.splits, patience=job.train.patience, on_plateau=on_plateau)
    check_loss(job.train.loss.kind, job.label_kind)
    if "valid" in job.splits:
        check_metric(job.train.metric, job.label_kind)


def fit_digest(job: TrainJob, name: str) -> str:
    """Return a hash of all that the weights of a fit depend on, which tells its checkpoints from another fit's."""
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
    if isinstance(job, StoreJob):
        content["neighbors"] = [job.neighbors.store.selection, job.neighbors.artifact]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
