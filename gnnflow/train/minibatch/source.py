"""Mini-batches of GraphFlat's shards as a source of training steps, and a model's outputs on any shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gnnflow.config import MiniBatchConfig
from gnnflow.executions.minibatch import forward
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.shards import Shard, read_shard
from gnnflow.layers import FeatureTensors
from gnnflow.layers.model import Model, build_model
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch.batches import PlannedBatch, plan_evaluation
from gnnflow.train.minibatch.dealt import DealtShards, PreparedStep
from gnnflow.train.minibatch.loader import BatchLoader, ReadyBatch
from gnnflow.train.minibatch.preparing import Preparing, Sample
from gnnflow.train.outputs import Outputs
from gnnflow.train.source import DealtBatch


@dataclass(frozen=True)
class MiniBatchStep(PreparedStep[ReadyBatch]):
    """A prepared batch of targets. loader: what prepared it."""

    loader: BatchLoader

    @property
    def features(self) -> FeatureTensors:
        """Features of the batch's rows, targets first."""
        return self.loader.features(self.batch)

    def logits(self, model: Model) -> Tensor:
        """Return the outputs of the batch's targets."""
        return forward(model, self.batch.tensors)


@dataclass(frozen=True, kw_only=True)
class MiniBatchSource(DealtShards[BatchLoader]):
    """One rank's mini-batches of some shards, its part of each split's scoring and of the labels."""

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have targets."""
        found = {entry.split for entry in self.entries if entry.num_targets}
        return tuple(split for split in SPLITS if split in found)

    def steps(self, epoch: int, *, since: int) -> Iterator[MiniBatchStep]:
        """Yield the prepared batches of an epoch from step `since` on."""
        return self.chosen(epoch, self.places(since))

    def chosen(self, epoch: int, places: Iterable[DealtBatch]) -> Iterator[MiniBatchStep]:
        """Yield the prepared batches of these places, whichever share they were dealt to."""
        found = self.prepared(epoch, places, partial(self.loader.batches, for_training=True))
        return (MiniBatchStep(batch, self.draws(epoch, place), self.loader) for place, batch in found)

    def outputs(self, model: Model, split: str) -> Outputs:
        """Return the outputs of this rank's part of a split in stored order; the batch size does not change them.

        The ranks' parts follow each other. A rank without any has outputs for no target.
        """
        planned = self.plan_scoring(split)
        if planned:
            return _outputs(model, planned, loader=self.loader)
        nothing = np.empty((0, model.inputs.num_outputs), np.float32)
        return Outputs(nothing, self.no_labels(split), np.empty(0, np.int64))


def open_source(
    job: TrainJob,
    *,
    edges: bool = True,
    read: Callable[[ShardEntry], Shard] | None = None,
    draws_anew: bool = False,
) -> MiniBatchSource:
    """Return the job's shards as a source.

    `read` replaces reading them from the artifact; draws_anew: and reads those of an epoch's view (`batches.of_view`).
    """
    preparing = Preparing.of(job, draws_anew=draws_anew)
    loader = BatchLoader(
        read or partial(read_shard, job.artifact, was_read=preparing.was_read),
        model=build_model(job.model, job.inputs).eval(),
        preparing=preparing,
        sample=Sample(job.fanouts, job.sampling),
        edges=edges,
    )
    return MiniBatchSource.of_job(job, loader, draws_anew=draws_anew)


def outputs_on_shards(
    model: Model,
    entries: Sequence[ShardEntry],
    read: Callable[[ShardEntry], Shard],
    *,
    sample: Sample,
    train: MiniBatchConfig,
) -> Outputs:
    """Return a model's outputs for all targets of some shards of a GraphFlat artifact, in stored order.

    sample: GraphFlat's. train says how much memory, prefetching and which batch size that may take. Raises
    TrainingError where there are no labels.
    """
    preparing = Preparing(train.cache, train.prefetch)
    with BatchLoader(read, model=model, preparing=preparing, sample=sample.up_to(model.num_layers)) as loader:
        return _outputs(model, plan_evaluation(entries, batch_size=train.scoring_size), loader=loader)


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
