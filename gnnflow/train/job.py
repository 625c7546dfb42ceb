"""The job of training, a part for each of its readers, with the checks that come before any work."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gnnflow.config import NodeTask, PlateauSchedule, TaskConfig, TrainConfig
from gnnflow.config.decide_section import DecideConfig, check_decide, named_class
from gnnflow.config.neighbors_section import WalkNeighbors
from gnnflow.config.task_section import decide_of, measured_class
from gnnflow.config.train_keys import RANKS_PLACE_ONLY
from gnnflow.config.train_section import rank_keys, result_keys
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.labels import (
    LabelKind,
    check_class_weight,
    check_loss,
    check_metric,
    choose_metric,
    names_of_classes,
)
from gnnflow.graph.sampling import EVERY_EDGE, Sampling
from gnnflow.graph.splits import SPLITS, check_splits
from gnnflow.layers.model import ModelSpec
from gnnflow.layers.start import Start
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
    "baselines",
    "start",
    "workers",
    "updater",
    *RANKS_PLACE_ONLY,
}


@dataclass(frozen=True)
class Shards:
    """GraphFlat's shards as what a job trains on.

    sampling: GraphFlat's. store: the graph store that they were cut from, which knows the user's ids and all edges.
    neighbors: to cut from, where shards have targets alone.
    """

    artifact: str
    entries: Sequence[ShardEntry]
    sampling: Sampling = EVERY_EDGE
    store: GraphStore | None = None
    neighbors: Neighbors | None = None


@dataclass(frozen=True)
class StoredGraph:
    """A graph store as what a job trains on.

    neighbors: the store and the in-edges to aggregate over. walks: how these were selected, where `train.resample`
    draws walks anew.
    """

    neighbors: Neighbors
    walks: WalkNeighbors | None = None

    @property
    def artifact(self) -> str:
        """The artifact of the graph store."""
        return self.store.artifact

    @property
    def store(self) -> GraphStore:
        """The graph store."""
        return self.neighbors.store

    @property
    def sampling(self) -> Sampling:
        """The in-edges that are taken of each node."""
        return self.neighbors.sampling

    @property
    def entries(self) -> tuple[ShardEntry, ...]:
        """An entry for each split that has targets, named as the split.

        Where targets are pairs, any node may be an end of one.
        """
        facts = self.store.facts
        size, pairs = (facts.num_nodes, facts.num_edges), facts.targets == "edges"
        counts = {split: facts.splits[split] for split in SPLITS if facts.splits.get(split)}
        if pairs:
            return tuple(
                ShardEntry(split, split, "shared", size[0], *size, 0, count) for split, count in counts.items()
            )
        return tuple(ShardEntry(split, split, "shared", count, *size, 0) for split, count in counts.items())


@dataclass(frozen=True)
class Share:
    """The share of each step, and of each split's scoring, that is computed here.

    device: where this rank computes, as torch names it; `train` sets it.
    """

    rank: int = 0
    num_ranks: int = 1
    device: str = "cpu"


@dataclass(frozen=True)
class JobFiles:
    """The folders that a job writes to; "" writes none.

    checkpoints: the caller deletes it once the result is committed. failures: keeps a batch whose loss is NaN or
    infinite.
    """

    checkpoints: str = ""
    failures: str = ""


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """The training of a model.

    start: a model's weights to start from, in place of the seed's. task: says whether targets are nodes or pairs;
    label_kind, num_classes: describe their labels.
    """

    model: ModelSpec
    graph: Shards | StoredGraph
    label_kind: LabelKind
    num_classes: int
    train: TrainConfig
    seed: int
    task: TaskConfig = field(default_factory=NodeTask)
    start: Start | None = None
    share: Share = field(default_factory=Share)
    files: JobFiles = field(default_factory=JobFiles)

    @property
    def neighbors(self) -> Neighbors:
        """The in-edges of a graph store, for strategies that read no shards."""
        assert isinstance(self.graph, StoredGraph)
        return self.graph.neighbors

    def of_rank(self, rank: int, num_ranks: int) -> TrainJob:
        """Return the job of one rank among several."""
        return replace(self, share=replace(self.share, rank=rank, num_ranks=num_ranks))

    @property
    def decide(self) -> DecideConfig:
        """The config's rule for decisions."""
        return decide_of(self.task)

    @property
    def decides(self) -> bool:
        """True if targets have one class each, which is decided."""
        return self.label_kind == "single"

    @property
    def reads_valid(self) -> bool:
        """True if the decision is chosen by the outputs of valid; of several classes the likeliest needs none."""
        return self.decides and (self.num_classes == 2 or self.decide.kind != "auto")  # noqa: PLR2004 two classes

    @property
    def positive(self) -> int | None:
        """The class that areas under curves are of, see `metrics_of`."""
        return measured_class(self.task, self.label_kind, self.class_names)

    @property
    def named(self) -> int | None:
        """The class that `task.decide` names; None where it names none."""
        return None if named_class(self.decide) is None else self.positive

    @property
    def metric_class(self) -> str:
        """The name of the class that `task.decide` names; empty where it names none."""
        return "" if self.named is None else self.class_names[self.named]

    @property
    def class_names(self) -> list[str]:
        """A name for each class."""
        held = () if self.graph.store is None else self.graph.store.facts.class_names
        return names_of_classes(held, self.num_classes)

    def with_metric(self) -> TrainJob:
        """Return the job with the metric that `auto` stands for on the labels of its graph."""
        facts = None if self.graph.store is None else self.graph.store.facts
        counts = {} if facts is None else {"train": facts.train_class_counts, "valid": facts.valid_class_counts}
        metric = choose_metric(self.train.metric, self.label_kind, **counts, named=self.named)
        return replace(self, train=self.train.model_copy(update={"metric": metric}))

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have targets."""
        found = {entry.split for entry in self.graph.entries if entry.num_samples}
        return tuple(split for split in SPLITS if split in found)


def check_job(job: TrainJob) -> None:
    """Raise TrainingError for a job that cannot be trained, before any work."""
    on_plateau = isinstance(job.train.schedule, PlateauSchedule)
    check_splits(job.splits, patience=job.train.patience or 0, on_plateau=on_plateau)
    check_loss(job.train.loss.kind, job.label_kind)
    check_class_weight(job.train.class_weight, job.label_kind)
    if "valid" in job.splits:
        check_metric(job.train.metric, job.label_kind)
    check_decide(job.decide, job.label_kind, job.num_classes, class_names=job.class_names)


def fit_digest(job: TrainJob, name: str) -> str:
    """Return a hash of all that the weights of a fit depend on, which tells its checkpoints from another fit's."""
    fanouts = job.graph.sampling.fanouts
    content: dict[str, Any] = {
        "name": name,
        "artifact": job.graph.artifact,
        "entries": [asdict(entry) for entry in job.graph.entries],
        "fanouts": fanouts and fanouts[: job.model.config.layers],
        "sampling": job.graph.sampling.kind,
        "model": job.model.config.model_dump(mode="json"),
        "inputs": asdict(job.model.inputs),
        "label_kind": job.label_kind,
        "num_classes": job.num_classes,
        "train": result_keys(job.train, exclude=_NO_INFLUENCE) | rank_keys(job.train),
        "seed": job.seed,
    }
    if job.task.kind != "node":
        content["task"] = job.task.model_dump(mode="json", exclude={"decide"})
    if job.named is not None:  # another class may have another best epoch
        content["named"] = job.named
    if job.start is not None:
        content["start"] = job.start.digest
    if isinstance(job.graph, StoredGraph):
        content["neighbors"] = [job.graph.store.selection, job.graph.neighbors.artifact]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
