"""Two published models on the same targets: the test shards of one GraphFlat."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from gnnflow.graph.errors import LayerError, RegistryError, TrainingError
from gnnflow.graph.facts import FlatFacts, GraphFacts, ShardEntry
from gnnflow.graph.labels import lower_is_better
from gnnflow.registry.signature import misfits

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.graph.edges import SamplingKind
    from gnnflow.graph.labels import LabelKind
    from gnnflow.layers.model import Model
    from gnnflow.registry import Version
    from gnnflow.stages.base import StageContext


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
        return candidate <= champion if lower_is_better(self.metric) else candidate >= champion


@dataclass(frozen=True)
class _TestShards:
    """GraphFlat's shards of the test split, what their labels are, and how to score them."""

    flat: str
    facts: FlatFacts
    sampling: SamplingKind
    label_kind: LabelKind
    config: Config

    @property
    def entries(self) -> list[ShardEntry]:
        """The shards, in order."""
        return [entry for entry in self.facts.shards if entry.split == "test" and entry.num_targets]


def compare(context: StageContext, *, candidate: Version, champion: Version, metric: str) -> Comparison:
    """Score both on the current GraphFlat's test shards, with the config's memory, prefetching and threads.

    Raises RegistryError where the test labels do not define the metric, StorageError for damaged weights.
    """
    flat, graph = context.artifact("flat"), context.artifact(context.run.store_stage).facts(GraphFacts)
    sampling = context.config.neighbors.sampling.kind
    shards = _TestShards(flat.uri, flat.facts(FlatFacts), sampling, graph.label_kind, context.config)
    if not shards.entries:
        return Comparison(metric, obstacle="no target is in the test split")
    if found := misfits(champion.signature, candidate.signature):
        return Comparison(metric, obstacle="; ".join(found))
    from gnnflow.layers.saved import ModelFormatError

    score = partial(_score, shards=shards, metric=metric)
    try:
        theirs = score(champion)
    except (LayerError, TrainingError, ModelFormatError) as error:
        return Comparison(metric, obstacle=str(error).rstrip("."))
    return Comparison(metric, score(candidate), theirs)


def _score(version: Version, *, shards: _TestShards, metric: str) -> dict[str, float]:
    from gnnflow.train.minibatch import outputs_on_pairs, outputs_on_shards
    from gnnflow.train.objective import Objective
    from gnnflow.train.reproducible import compute_settings

    facts, kind, config = shards.facts, shards.label_kind, shards.config
    train, task = config.train, config.task
    outputs_of = outputs_on_shards if task.kind == "node" else partial(outputs_on_pairs, task=task, seed=config.seed)
    with compute_settings(train.threads):
        model = load_model(version, num_hops=facts.num_hops)
        outputs = outputs_of(
            model,
            shards.entries,
            artifact=shards.flat,
            fanouts=facts.fanouts,
            sampling=shards.sampling,
            train=train,
        )
    scores = outputs.metrics(kind, intervals=True)
    named = {**scores.named("test"), "test.loss": outputs.loss(Objective(kind, config=train.loss))}
    if f"test.{metric}" not in named:
        why = "; ".join(scores.notes) or f"{metric} is not defined for {kind} labels"
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
