"""Mini-batches of GraphFlat's shards as a source of training steps, and a model's outputs on any shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

import numpy as np
import torch
from torch import Tensor

from gnnflow.config import TrainConfig
from gnnflow.executions.minibatch import forward
from gnnflow.executions.moving import Mover
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.edges import SamplingKind
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.shards import Shard, read_shard
from gnnflow.layers import FeatureTensors
from gnnflow.layers.model import Model, build_model
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch.batches import EpochPlan, PlannedBatch, plan_epoch, plan_evaluation
from gnnflow.train.minibatch.loader import BatchLoader, ReadyBatch
from gnnflow.train.outputs import Outputs
from gnnflow.train.profile import Stopwatch
from gnnflow.train.reproducible import seed_step
from gnnflow.train.state import Row


@dataclass(frozen=True)
class MiniBatchStep:
    """A prepared batch and the four numbers that its random draws are a function of."""

    batch: ReadyBatch
    loader: BatchLoader
    run_seed: int
    epoch: int
    step: int
    rank: int

    @property
    def targets(self) -> IntArray:
        """Dense ids of the batch's targets."""
        return self.batch.targets

    @property
    def labels(self) -> Array:
        """Labels of the batch's targets."""
        return self.batch.labels

    @property
    def features(self) -> FeatureTensors:
        """Features of the batch's rows, targets first."""
        return self.loader.features(self.batch)

    def seed(self) -> None:
        """Seed torch's generator, which dropout reads."""
        seed_step(self.run_seed, epoch=self.epoch, step=self.step, rank=self.rank, device=self.loader.device)

    def logits(self, model: Model) -> Tensor:
        """Return the outputs of the batch's targets."""
        return forward(model, self.batch.tensors)


@dataclass(frozen=True, kw_only=True)
class MiniBatchSource:
    """One rank's mini-batches of some shards, its part of each split's scoring and of the labels.

    Closes its loader when the `with` block ends.
    """

    entries: Sequence[ShardEntry]
    loader: BatchLoader
    seed: int
    batch_size: int
    eval_batch_size: int
    rank: int = 0
    world_size: int = 1

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the loader's thread."""
        self.loader.close()

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have targets."""
        found = {entry.split for entry in self.entries if entry.num_targets}
        return tuple(split for split in SPLITS if split in found)

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches that this rank is dealt, the same for every rank."""
        return len(self._plan(0))

    def steps(self, epoch: int, *, since: int) -> Iterator[MiniBatchStep]:
        """Yield the prepared batches of an epoch from step `since` on."""
        ready = self.loader.batches(self._plan(epoch).since(since), for_training=True)
        return (
            MiniBatchStep(batch, self.loader, self.seed, epoch=epoch, step=step, rank=self.rank)
            for step, batch in enumerate(ready, since)
        )

    def outputs(self, model: Model, split: str) -> Outputs:
        """Return the outputs of this rank's part of a split in stored order; the batch size does not change them.

        The ranks' parts follow each other. A rank without any has outputs for no target.
        """
        entries = self._of(split)
        planned = plan_evaluation(entries, batch_size=self.eval_batch_size, rank=self.rank, world_size=self.world_size)
        if planned:
            return _outputs(model, planned, loader=self.loader)
        labels = next(iter(self.loader.labels(entries[:1])))[:0]
        return Outputs(np.empty((0, model.inputs.num_outputs), np.float32), labels, np.empty(0, np.int64))

    def train_labels(self) -> Iterable[Array]:
        """Yield the labels of each shard of the train split that this rank tells of."""
        return self.loader.labels(self._of("train")[self.rank :: self.world_size])

    def spent(self) -> Row:
        """Return the seconds of the loader's work so far, by part."""
        return self.loader.spent()

    def _plan(self, epoch: int) -> EpochPlan:
        return plan_epoch(
            self._of("train"),
            seed=self.seed,
            epoch=epoch,
            batch_size=self.batch_size,
            rank=self.rank,
            world_size=self.world_size,
        )

    def _of(self, split: str) -> list[ShardEntry]:
        return [entry for entry in self.entries if entry.split == split]


def open_source(
    job: TrainJob, *, edges: bool = True, read: Callable[[ShardEntry], Shard] | None = None
) -> MiniBatchSource:
    """Return the job's shards as a source. `read` replaces reading them from the artifact."""
    watch = Stopwatch()
    loader = BatchLoader(
        read or partial(read_shard, job.artifact, was_read=partial(watch.lap, "read")),
        model=build_model(job.model, job.inputs).eval(),
        fanouts=job.fanouts,
        sampling=job.sampling,
        cache_bytes=job.train.cache,
        prefetch=job.train.prefetch,
        edges=edges,
        watch=watch,
        mover=Mover(torch.device(job.device)),
    )
    return MiniBatchSource(
        entries=job.entries,
        loader=loader,
        seed=job.seed,
        batch_size=job.train.batch_size,
        eval_batch_size=_eval_batch_size(job.train),
        rank=job.rank,
        world_size=job.num_ranks,
    )


def outputs_on_shards(
    model: Model,
    entries: Sequence[ShardEntry],
    *,
    artifact: str,
    fanouts: Sequence[int] | None,
    train: TrainConfig,
    sampling: SamplingKind = "uniform",
) -> Outputs:
    """Return a model's outputs for all targets of some shards of a GraphFlat artifact, in stored order.

    fanouts and sampling are GraphFlat's; of the fan-outs a model with fewer layers uses the first. train says how much
    memory, prefetching and which batch size that may take. Raises TrainingError where there are no labels.
    """
    with BatchLoader(
        partial(read_shard, artifact),
        model=model,
        fanouts=fanouts and fanouts[: model.num_layers],
        sampling=sampling,
        cache_bytes=train.cache,
        prefetch=train.prefetch,
    ) as loader:
        return _outputs(model, plan_evaluation(entries, batch_size=_eval_batch_size(train)), loader=loader)


def _outputs(model: Model, planned: Iterable[PlannedBatch], *, loader: BatchLoader) -> Outputs:
    """Return the outputs for planned batches, at least one, in their order. Leaves training mode."""
    model.eval()
    logits, labels, targets = [], [], []
    with torch.no_grad():
        for batch in loader.batches(planned):
            logits.append(forward(model, batch.tensors).cpu().numpy())
            labels.append(batch.labels)
            targets.append(batch.targets)
    return Outputs(np.concatenate(logits), np.concatenate(labels), np.concatenate(targets))


def _eval_batch_size(config: TrainConfig) -> int:
    return config.eval_batch_size or config.batch_size
