"""Two published models on the same targets: the test shards of one GraphFlat."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from gnnflow.graph.errors import LayerError, RegistryError, TrainingError
from gnnflow.graphfeature.shards import ShardEntry, read_shard
from gnnflow.registry.signature import misfits

if TYPE_CHECKING:
    from gnnflow.config import TrainConfig
    from gnnflow.layers.model import Model
    from gnnflow.registry import Version
    from gnnflow.stages.base import StageResult

_LOWER_IS_BETTER = {"loss"}


@dataclass(frozen=True)
class Comparison:
    """Scores of both (flat names such as `test.accuracy`). obstacle says why there are none, "" where there are."""

    metric: str
    candidate: dict[str, float] = field(default_factory=dict)
    champion: dict[str, float] = field(default_factory=dict)
    obstacle: str = ""

    @property
    def values(self) -> tuple[float, float]:
        """The metric of candidate and champion."""
        return self.candidate[f"test.{self.metric}"], self.champion[f"test.{self.metric}"]

    @property
    def candidate_holds(self) -> bool:
        """Whether the candidate is at least as good."""
        candidate, champion = self.values
        return candidate <= champion if self.metric in _LOWER_IS_BETTER else candidate >= champion


def compare(candidate: Version, champion: Version, *, flat: StageResult, train: TrainConfig, metric: str) -> Comparison:
    """Score both on GraphFlat's test shards. train says how much memory, prefetching and threads that may take.

    Raises RegistryError where the test labels do not define the metric, StorageError for damaged weights.
    """
    entries = [ShardEntry(**entry) for entry in flat.manifest.details["shards"]]
    entries = [entry for entry in entries if entry.split == "test" and entry.num_targets]
    if not entries:
        return Comparison(metric, obstacle="no target is in the test split")
    if found := misfits(champion.signature, candidate.signature):
        return Comparison(metric, obstacle="; ".join(found))
    from gnnflow.layers.saved import ModelFormatError

    score = partial(_score, flat=flat, entries=entries, train=train, metric=metric)
    try:
        theirs = score(champion)
    except (LayerError, TrainingError, ModelFormatError) as error:
        return Comparison(metric, obstacle=str(error).rstrip("."))
    return Comparison(metric, score(candidate), theirs)


def _score(
    version: Version, *, flat: StageResult, entries: list[ShardEntry], train: TrainConfig, metric: str
) -> dict[str, float]:
    from gnnflow.train.batches import plan_evaluation
    from gnnflow.train.evaluate import predict
    from gnnflow.train.metrics import score
    from gnnflow.train.objective import Objective
    from gnnflow.train.pipeline import Pipeline
    from gnnflow.train.reproducible import compute_settings

    details = flat.manifest.details
    with compute_settings(train.threads):
        model = load_model(version, num_hops=details["num_hops"])
        fanouts = details["fanouts"] and details["fanouts"][: model.num_layers]
        with Pipeline(
            partial(read_shard, flat.artifact),
            fanouts=fanouts,
            num_layers=model.num_layers,
            cache_bytes=train.cache,
            prefetch=train.prefetch,
        ) as pipeline:
            planned = plan_evaluation(entries, batch_size=train.eval_batch_size or train.batch_size)
            outputs = predict(model, planned, pipeline=pipeline)
    scores = score(outputs.logits, outputs.labels, label_kind=details["label_kind"])
    named = {**scores.named("test"), "test.loss": outputs.loss(Objective(details["label_kind"]))}
    if f"test.{metric}" not in named:
        why = "; ".join(scores.notes) or f"{metric} is not defined for {details['task']} labels"
        raise RegistryError(f"{why} in the test split", where="publish.metric", fix="Choose another metric.")
    return named


def load_model(version: Version, *, num_hops: int) -> Model:
    """Return a version's model in evaluation mode.

    Raises LayerError where it cannot be built or reaches further than num_hops.
    """
    from gnnflow.layers import saved

    model = saved.load_model(version.uri, read=version.read)
    if model.num_layers > num_hops:
        raise LayerError(
            f"the model has {model.num_layers} layers, and GraphFlat cut neighbourhoods of {num_hops} hops",
            where=f"version {version.version}",
        )
    return model
