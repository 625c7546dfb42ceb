"""Two published models on the same targets: the test split of one run, in its shards or in its graph store.

Where the champion's columns were scaled by other figures, it reads the targets from the same tables scaled by those.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from gnnflow.config.own_code import source_digest
from gnnflow.graph.errors import ConfigError, LayerError, RegistryError, TrainingError
from gnnflow.graph.facts import FlatFacts, GraphFacts
from gnnflow.graph.labels import lower_is_better
from gnnflow.neighbors.link_candidates import filtered_links
from gnnflow.registry.signature import misfits
from gnnflow.stages.base import neighbors_of
from gnnflow.stages.rescaled import make_inputs, scaled_for
from gnnflow.stages.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.config import MiniBatchConfig
    from gnnflow.layers.model import Model
    from gnnflow.registry import Version
    from gnnflow.stages.base import StageContext
    from gnnflow.train.outputs import Outputs


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
class _TestTargets:
    """The targets of the test split: how many hops they can be scored over, None for any, and how."""

    num_hops: int | None
    outputs: Callable[[Model], Outputs]


def compare(context: StageContext, *, candidate: Version, champion: Version, metric: str) -> Comparison:
    """Score both on the test split of the current run, with the config's memory, prefetching and threads.

    Raises RegistryError where the test labels do not define the metric, StorageError for damaged weights.
    """
    targets = _test_targets(context)
    if targets is None:
        return Comparison(metric, obstacle="no target is in the test split")
    try:
        found = (*other_code(champion), *misfits(champion.signature, candidate.signature))
    except ConfigError as error:  # its modules are none that may be imported here
        return Comparison(metric, obstacle=str(error).rstrip("."))
    if found := (*found, *_other_classes(champion, candidate)):
        return Comparison(metric, obstacle="; ".join(found))
    from gnnflow.layers.saved import ModelFormatError

    score = partial(_score, context=context, metric=metric)
    as_they_read_them = _test_targets(_scaled_for(context, champion))
    assert as_they_read_them is not None, "the same targets, with columns scaled otherwise"
    try:
        theirs = score(champion, targets=as_they_read_them)
    except (LayerError, TrainingError, ModelFormatError) as error:
        return Comparison(metric, obstacle=str(error).rstrip("."))
    return Comparison(metric, score(candidate, targets=targets), theirs)


def other_code(version: Version) -> tuple[str, ...]:
    """Return which of the user's own code is not what a version was made with, one phrase each.

    Weights mean what the code makes of them, so a version with other code is another model. Raises ConfigError where
    this place does not allow its modules, or one has changed since this process imported it.
    """
    return tuple(
        f"the source of {name} is not what the model was trained with"
        for name, digest in version.code.items()
        if source_digest(name) != digest
    )


def _other_classes(champion: Version, candidate: Version) -> tuple[str, ...]:
    """Return where a class of today's labels is another one to the champion: its outputs are told by their numbers."""
    names = zip(champion.class_names, candidate.class_names, strict=False)
    differ = ((number, *pair) for number, pair in enumerate(names) if pair[0] != pair[1])
    return tuple(f"class {number} is {own}, the model was trained on {theirs}" for number, theirs, own in differ)[:1]


def _scaled_for(context: StageContext, version: Version) -> StageContext:
    """Return the run of the same tables with columns scaled as they were for a version: this one where they are."""
    config = scaled_for(context, version)
    if config.graph == context.config.graph:
        return context
    theirs = replace(context, run=resolve(config, tables=context.run.tables))
    make_inputs(theirs, version, shards=True)
    return theirs


def _test_targets(context: StageContext) -> _TestTargets | None:
    """Return the run's test targets in its shards, or in its graph store where it has no shards; None without any."""
    from gnnflow.config import MiniBatchConfig

    # how targets are read changes no score
    train = context.config.train if isinstance(context.config.train, MiniBatchConfig) else MiniBatchConfig()
    return _in_shards(context, train) if "flat" in context.run.stages else _in_store(context, train)


def _in_store(context: StageContext, train: MiniBatchConfig) -> _TestTargets | None:
    from gnnflow.train.minibatch import outputs_on_store

    config, neighbors = context.config, neighbors_of(context)
    if not neighbors.store.facts.splits.get("test"):
        return None
    hops = None if neighbors.fanouts is None else len(neighbors.fanouts)
    # read once for both models
    known = filtered_links(neighbors.store, config.task)
    on_store = partial(
        outputs_on_store,
        split="test",
        neighbors=neighbors,
        train=train,
        task=config.task,
        seed=config.seed,
        known=known,
    )
    return _TestTargets(hops, on_store)


def _in_shards(context: StageContext, train: MiniBatchConfig) -> _TestTargets | None:
    from gnnflow.config import PairTask
    from gnnflow.graphfeature.shards import read_pair_shard, read_shard
    from gnnflow.train.minibatch import outputs_on_shards
    from gnnflow.train.minibatch.preparing import Sample

    config, flat = context.config, context.artifact("flat")
    facts = flat.facts(FlatFacts)
    entries = [entry for entry in facts.shards if entry.split == "test" and entry.num_targets]
    if not entries:
        return None
    pairs = config.task if isinstance(config.task, PairTask) else None
    return _TestTargets(
        facts.num_hops,
        partial(
            outputs_on_shards,
            entries=entries,
            read=partial(read_shard if pairs is None else read_pair_shard, flat.uri),
            sample=Sample(facts.fanouts, config.neighbors.sampling.kind),
            train=train,
            task=config.task,
            seed=config.seed,
            known=None if pairs is None else filtered_links(neighbors_of(context).store, pairs),
        ),
    )


def _score(version: Version, *, context: StageContext, targets: _TestTargets, metric: str) -> dict[str, float]:
    from gnnflow.train.objective import Objective
    from gnnflow.train.reproducible import compute_settings

    train = context.config.train
    graph = context.artifact(context.run.store_stage).facts(GraphFacts)
    kind = graph.label_kind
    with compute_settings(train.threads):
        model = load_model(version, num_hops=targets.num_hops)
        outputs = targets.outputs(model)
    scores = outputs.metrics(kind, intervals=True)
    objective = Objective(kind, config=train.loss, unit=graph.label_unit)
    named = {**scores.named("test"), "test.loss": outputs.loss(objective)}
    if f"test.{metric}" not in named:
        why = "; ".join(scores.notes) or f"{metric} is not defined for {kind} labels"
        raise RegistryError(f"{why} in the test split", where="publish.metric", fix="Choose another metric.")
    return named


def load_model(version: Version, *, num_hops: int | None) -> Model:
    """Return a version's model in evaluation mode.

    Raises LayerError where it cannot be built or reaches further than num_hops; None: neighbours are kept of any hop.
    """
    from gnnflow.layers import saved

    model = saved.load_model(version.uri, read=version.read)
    if num_hops is not None and model.num_layers > num_hops:
        raise LayerError(
            f"the model has {model.num_layers} layers, and this run's neighbourhoods have {num_hops} hops",
            where=f"version {version.version}",
        )
    return model
