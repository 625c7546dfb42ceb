"""Mini-batches of pairs as a source of training steps: what `source.py` is for nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gnnflow.config import MiniBatchConfig, PairTask
from gnnflow.graph.arrays import IntArray
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.pairs import PairShard, read_pair_shard
from gnnflow.layers import FeatureTensors, TypedFeatureTensors
from gnnflow.layers.model import Model, build_model
from gnnflow.neighbors.link_candidates import KnownLinks
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch.dealt import DealtShards, PreparedStep
from gnnflow.train.minibatch.pair_loader import PairBatch, PairLoader
from gnnflow.train.minibatch.preparing import Preparing, Sample
from gnnflow.train.outputs import Outputs
from gnnflow.train.source import DealtBatch


def features_of_pairs(features: FeatureTensors | TypedFeatureTensors, rows: IntArray) -> FeatureTensors:
    """Return the features of some rows, then of all; with types those of the rows' type."""
    if isinstance(features, TypedFeatureTensors):
        features, rows = features.of_type(rows)
    own = [features.rows(row, row + 1) for row in rows.tolist()]
    return FeatureTensors.joined([*own, features])


@dataclass(frozen=True)
class PairStep(PreparedStep[PairBatch]):
    """A prepared batch of pairs."""

    @property
    def features(self) -> FeatureTensors:
        """Features of the pairs' targets, then of all rows of the batch, with types of those of the targets' type."""
        features = self.batch.tensors.features
        assert features is not None
        return features_of_pairs(features, self.batch.candidates[:, 0])

    def logits(self, model: Model) -> Tensor:
        """Return the scores of the batch's pairs."""
        return self.batch.logits(model)


@dataclass(frozen=True, kw_only=True)
class PairSource(DealtShards[PairLoader]):
    """One rank's batches of the pairs of some shards, its part of each split's scoring and of the labels."""

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have pairs."""
        found = {entry.split for entry in self.entries if entry.num_pairs}
        return tuple(split for split in SPLITS if split in found)

    def steps(self, epoch: int, *, since: int) -> Iterator[PairStep]:
        """Yield the prepared batches of an epoch from step `since` on."""
        return self.chosen(epoch, self.places(since))

    def chosen(self, epoch: int, places: Iterable[DealtBatch]) -> Iterator[PairStep]:
        """Yield the prepared batches of these places, whichever share they were dealt to."""
        found = self.prepared(epoch, places, partial(self.loader.batches, split="train", epoch=epoch))
        return (PairStep(batch, self.draws(epoch, place)) for place, batch in found)

    def check_candidates(self) -> None:
        """Raise TrainingError where nothing is left to rank a pair of this rank's part against, before any step."""
        for split in self.splits:
            self.loader.check_candidates(self.plan_scoring(split), split=split)

    def outputs(self, model: Model, split: str) -> Outputs:
        """Return the scores of this rank's part of a split in stored order; the batch size does not change them."""
        planned = self.plan_scoring(split)
        model.eval()
        logits, targets = [self.loader.no_logits], [np.empty(0, np.int64)]
        labels = [] if planned else [self.no_labels(split)]
        with torch.no_grad():
            for batch in self.loader.batches(planned, split=split):
                logits.append(batch.logits(model).cpu().numpy())
                labels.append(batch.labels)
                targets.append(batch.targets)
        return Outputs(np.concatenate(logits), np.concatenate(labels), np.concatenate(targets))


def outputs_on_pairs(
    model: Model,
    entries: Sequence[ShardEntry],
    read: Callable[[ShardEntry], PairShard],
    *,
    sample: Sample,
    train: MiniBatchConfig,
    task: PairTask,
    seed: int,
    known: KnownLinks | None = None,
) -> Outputs:
    """Return a model's scores of the pairs of some shards of one split: what `outputs_on_shards` is for nodes.

    known: as `PairLoader` has it.
    """
    loader = PairLoader(
        read,
        model=model,
        task=task,
        seed=seed,
        preparing=Preparing(train.cache, train.prefetch),
        sample=sample.up_to(model.num_layers),
        known=known,
    )
    size = train.scoring_size
    source = PairSource(entries=entries, loader=loader, seed=seed, batch_size=size, eval_batch_size=size)
    with source:
        return source.outputs(model, entries[0].split)


def open_pair_source(
    job: TrainJob,
    *,
    edges: bool = True,
    read: Callable[[ShardEntry], PairShard] | None = None,
    draws_anew: bool = False,
) -> PairSource:
    """Return the job's shards of pairs as a source. read, draws_anew: as `open_source` has them.

    Raises TrainingError where a held-out pair of this rank has no candidate left.
    """
    assert isinstance(job.task, PairTask)
    preparing = Preparing.of(job, draws_anew=draws_anew)
    loader = PairLoader(
        read or partial(read_pair_shard, job.artifact, was_read=preparing.was_read),
        model=build_model(job.model, job.inputs).eval(),
        task=job.task,
        seed=job.seed,
        preparing=preparing,
        sample=Sample(job.fanouts, job.sampling),
        edges=edges,
        known=job.known,
    )
    source = PairSource.of_job(job, loader, draws_anew=draws_anew)
    if edges:  # without them the candidates are the same
        source.check_candidates()
    return source
