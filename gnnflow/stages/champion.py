"""Published models on today's tables: their inputs, and a comparison of two models on one test split.

A model reads the columns scaled and encoded as they were for its training. If these figures differ from the run's, the
same tables are ingested once more by them. The test split is read from the run's shards, or else from its graph store.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gnnflow.config import STAGES, MiniBatchConfig, PairTask
from gnnflow.config.columns_section import is_pattern
from gnnflow.config.own_code import source_digest
from gnnflow.config.task_section import decide_of, measured_class
from gnnflow.graph.encodings import are_encoded, encode_alike
from gnnflow.graph.errors import ConfigError, LayerError, RegistryError, TableError, TrainingError
from gnnflow.graph.facts import FlatFacts, GraphFacts, SelectFacts
from gnnflow.graph.labels import lower_is_better, names_of_classes
from gnnflow.graph.made_features import table_columns
from gnnflow.graph.narrow import LEVELS, ranges_agree
from gnnflow.graph.scales import SCALING_KEYS, agree
from gnnflow.neighbors.link_candidates import filtered_links
from gnnflow.registry.signature import misfits, other_columns, signature_of
from gnnflow.registry.versions import CONFIG
from gnnflow.stages.base import neighbors_of
from gnnflow.stages.resolve import resolve_again
from gnnflow.stages.running import make_artifact
from gnnflow.storage.manifest import committed

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.config import Config, GraphConfig
    from gnnflow.graph.arrays import Array
    from gnnflow.graph.labels import LabelKind
    from gnnflow.layers.model import Model
    from gnnflow.registry import Version
    from gnnflow.stages.base import StageContext
    from gnnflow.train.decisions import Deciding
    from gnnflow.train.outputs import Outputs


@dataclass(frozen=True)
class Comparison:
    """The scores of both models, with names such as `test.accuracy`; obstacle: the reason if there are none, or "".

    interval: of the metric's difference, candidate less champion, on the same targets; None where it is not known.
    """

    metric: str
    candidate: dict[str, float] = field(default_factory=dict)
    champion: dict[str, float] = field(default_factory=dict)
    obstacle: str = ""
    interval: tuple[float, float] | None = None

    @property
    def beyond_noise(self) -> bool | None:
        """True if another sample of targets would hardly turn the difference round; None where it is not known."""
        return None if self.interval is None else not self.interval[0] <= 0 <= self.interval[1]

    @property
    def values(self) -> tuple[float, float]:
        """The metric of candidate and champion."""
        return self.candidate[f"test.{self.metric}"], self.champion[f"test.{self.metric}"]

    @property
    def candidate_holds(self) -> bool:
        """True if the candidate is at least as good as the champion."""
        candidate, champion = self.values
        return candidate <= champion if lower_is_better(self.metric) else candidate >= champion


@dataclass(frozen=True)
class _TestTargets:
    """The targets of the test split: the hops of their neighbourhoods (None: any), and a function to score them."""

    num_hops: int | None
    outputs: Callable[[Model], Outputs]


def compare(context: StageContext, *, candidate: Version, champion: Version, metric: str) -> Comparison:
    """Score both on the test split of the current run, with the config's memory, prefetching and threads.

    Raises RegistryError if the metric is not defined for the test labels, StorageError for damaged weights.
    """
    targets = _test_targets(context)
    if targets is None:
        return Comparison(metric, obstacle="no target is in the test split")
    try:
        found = (*other_code(champion), *_misfits(context, champion, candidate))
    except (ConfigError, TableError) as error:  # its modules may not be imported here, or a column has another kind
        return Comparison(metric, obstacle=str(error).rstrip("."))
    if found := (*found, *_other_classes(champion, candidate)):
        return Comparison(metric, obstacle="; ".join(found))
    from gnnflow.layers.saved import ModelFormatError

    score = partial(_score, context=context, metric=metric)
    rescaled = _test_targets(_rescaled(context, champion))
    assert rescaled is not None, "the same targets, with columns scaled otherwise"
    ours = score(candidate, targets=targets)
    try:
        theirs = score(champion, targets=rescaled)
    except (LayerError, TrainingError, ModelFormatError, RegistryError) as error:
        return Comparison(metric, obstacle=str(error).rstrip("."))
    kind = context.artifact(context.run.store_stage).facts(GraphFacts).label_kind
    return Comparison(metric, ours.named, theirs.named, interval=_interval(ours, theirs, metric, kind))


@dataclass(frozen=True)
class _Scored:
    """A version's outputs for the test targets, its scores by name, and the metric of some of these targets.

    deciding: how its decisions are measured. positive: the class that areas under curves are of, of both versions.
    """

    outputs: Outputs
    named: dict[str, float]
    metric: Callable[[Outputs], float]
    deciding: Deciding | None
    positive: int | None

    def at(self, order: Array) -> Callable[[Array], float]:
        """Return the metric of targets, given by their places in an order."""
        return lambda rows: self.metric(self.outputs.take(order[rows]))


def _interval(ours: _Scored, theirs: _Scored, metric: str, kind: LabelKind) -> tuple[float, float] | None:
    """Return the interval of the difference, by influences of targets as reports do, or else of groups of targets."""
    from gnnflow.train.paired import group_influences, paired_noise, shared_places

    orders = shared_places(ours.outputs.targets, theirs.outputs.targets)
    if orders is None:
        return None
    own, other = (
        each.outputs.take(order).influence(metric, kind, deciding=each.deciding, positive=each.positive)
        for each, order in zip((ours, theirs), orders, strict=True)
    )
    if own is None or other is None:
        count = len(orders[0])
        own, other = (group_influences(each.at(o), count) for each, o in zip((ours, theirs), orders, strict=True))
    noise = None if own is None or other is None else paired_noise(own, other)
    difference = ours.named[f"test.{metric}"] - theirs.named[f"test.{metric}"]
    return None if noise is None else (difference - noise, difference + noise)


def _misfits(context: StageContext, champion: Version, candidate: Version) -> tuple[str, ...]:
    """Return the differences that keep the champion from reading the run's tables, encoded as for it."""
    if encode_alike(champion.states, candidate.states):
        return misfits(champion.signature, candidate.signature)
    if found := other_columns(champion.signature.columns, candidate.signature.columns):
        return found
    theirs = _rescaled(context, champion)
    graph, select = theirs.artifact(theirs.run.store_stage), theirs.artifact("select")
    return misfits(champion.signature, signature_of(graph.facts(GraphFacts), select.facts(SelectFacts)))


def other_code(version: Version) -> tuple[str, ...]:
    """Return the user's classes and functions that changed since a version was trained, one phrase each.

    The same weights under other code are another model. Raises ConfigError if a module may not be imported here, or has
    changed since this process imported it.
    """
    return tuple(
        f"the source of {name} differs from the one that the model was trained with"
        for name, digest in version.code.items()
        if source_digest(name) != digest
    )


def _other_classes(champion: Version, candidate: Version) -> tuple[str, ...]:
    """Return the first class whose number has another name in the champion, as a phrase; outputs go by number."""
    names = zip(champion.class_names, candidate.class_names, strict=False)
    differ = ((number, *pair) for number, pair in enumerate(names) if pair[0] != pair[1])
    return tuple(f"class {number} is {own}, the model was trained on {theirs}" for number, theirs, own in differ)[:1]


def _rescaled(context: StageContext, version: Version) -> StageContext:
    """Return the run of the same tables with columns scaled as for a version, which may be this run."""
    config = scaled_for(context, version)
    if config.graph == context.config.graph:
        return context
    theirs = replace(context, run=resolve_again(context.run, config))
    make_inputs(theirs, version, shards=True)
    return theirs


def _test_targets(context: StageContext) -> _TestTargets | None:
    """Return the run's test targets, from its shards or else from its graph store; None if there are none."""
    # the way targets are read changes no score
    train = context.config.train if isinstance(context.config.train, MiniBatchConfig) else MiniBatchConfig()
    return _in_shards(context, train) if "flat" in context.run.stages else _in_store(context, train)


def _in_store(context: StageContext, train: MiniBatchConfig) -> _TestTargets | None:
    from gnnflow.train.minibatch import outputs_on_store

    config, neighbors = context.config, neighbors_of(context)
    if not neighbors.store.facts.splits.get("test"):
        return None
    fanouts = neighbors.sampling.fanouts
    hops = None if fanouts is None else len(fanouts)
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
    from gnnflow.train.minibatch import outputs_on_shards, shard_reader

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
            read=shard_reader(
                flat.uri, neighbors_of(context) if facts.layout == "store" else None, pairs=pairs is not None
            ),
            sampling=config.sampling,
            train=train,
            task=config.task,
            seed=config.seed,
            known=None if pairs is None else filtered_links(neighbors_of(context).store, pairs),
        ),
    )


def _score(version: Version, *, context: StageContext, targets: _TestTargets, metric: str) -> _Scored:
    from gnnflow.layers.saved import read_decision
    from gnnflow.train.decisions import Deciding
    from gnnflow.train.objective import Objective
    from gnnflow.train.reproducible import compute_settings

    train = context.config.train
    graph = context.artifact(context.run.store_stage).facts(GraphFacts)
    kind = graph.label_kind
    with compute_settings(train.threads):
        model = load_model(version, num_hops=targets.num_hops)
        outputs = targets.outputs(model)
    decision = read_decision(version.uri, read=version.read)
    # each version decides by its own rule, and mistakes cost of both what they cost today
    every = names_of_classes(version.class_names, version.signature.num_classes)
    deciding = Deciding.of(decide_of(context.config.task), decision, names=every)
    positive = measured_class(context.config.task, kind, every)
    scores = outputs.metrics(
        kind, intervals=True, deciding=deciding, class_names=version.class_names, positive=positive
    )
    objective = Objective(kind, config=train.loss, unit=graph.label_unit)
    named = {**scores.named("test"), "test.loss": outputs.loss(objective)}
    if f"test.{metric}" not in named:
        why = "; ".join(scores.notes) or f"{metric} is not defined for {kind} labels"
        raise RegistryError(f"{why} in the test split", where="publish.metric", fix="Choose another metric.")

    def of_some(some: Outputs) -> float:
        return some.loss(objective) if metric == "loss" else some.metric_or_nan(metric, kind, positive=positive)

    return _Scored(outputs, named, of_some, deciding, positive)


def load_model(version: Version, *, num_hops: int | None) -> Model:
    """Return a version's model in evaluation mode.

    Raises LayerError if it cannot be built, or needs more than num_hops hops (None: no limit).
    """
    from gnnflow.layers import saved

    model = saved.load_model(version.uri, read=version.read)
    if num_hops is not None and model.num_layers > num_hops:
        raise LayerError(
            f"the model has {model.num_layers} layers, and this run's neighbourhoods have {num_hops} hops",
            where=f"version {version.version}",
        )
    return model


def scaled_for(context: StageContext, version: Version) -> Config:
    """Return a run's config that scales and encodes columns and reverses edges as for a version, which is only scored.

    Raises StorageError if the run has no graph store yet, unless the version encodes columns: today's states of these
    are not needed.
    """
    is_known = not are_encoded(version.states) or _has_store(context)
    today = context.artifact(context.run.store_stage).facts(GraphFacts) if is_known else None
    graph, held = context.config.graph, json.loads(version.read(CONFIG))["graph"]
    scaling = {key: held.get(key, default) for key, default in SCALING_KEYS.items()}
    # reversed edges change the neighbours that the model reads
    turned = {"reverse_edges": held.get("reverse_edges", False)}
    named = graph.scaled_as if "standard" in scaling.values() or scaling["storage"] in LEVELS else None
    if today is None or not (
        (not version.scales or agree(version.scales, today.scales))
        and encode_alike(version.states, today.states)
        and ranges_agree(version.ranges, today.ranges)
    ):
        named = version.pinned
    sections = {
        "graph": graph.model_copy(update={**scaling, **turned, **_columns(graph, version, today), "scaled_as": named}),
        # the start of training changes no score, and may be gone
        "train": context.config.train.model_copy(update={"start": None}),
    }
    return context.config.model_copy(update=sections)


def _columns(graph: GraphConfig, version: Version, today: GraphFacts | None) -> dict[str, Any]:
    """Return the lists of columns that a version read, where the config's patterns match others today."""
    held = {table: tuple(columns) for table, columns in version.signature.columns.items()}
    changed: dict[str, Any] = {}
    if not held or (today is not None and today.columns_read == held):
        return changed
    held = {table: table_columns(columns) for table, columns in held.items()}
    for key, side, names in (("features", "nodes", graph.node_tables), ("edge_features", "edges", graph.edge_tables)):
        asked = getattr(graph, key)
        lists = [asked] if isinstance(asked, tuple) else asked.values()
        if any(is_pattern(name) for columns in lists for name in columns):
            every = {str(name): held.get(f"{side}/{name}", ()) for name in names}
            changed[key] = every if graph.schema.is_typed else held.get(side, ())
    if changed:  # columns that the version does not know may have sections
        named = [name for columns in held.values() for name in columns]
        ends = tuple(f".{name}" for name in named)
        changed["columns"] = {
            name: each for name, each in graph.columns.items() if name in named or name.endswith(ends)
        }
    return changed


def make_inputs(context: StageContext, version: Version, *, shards: bool = False) -> None:
    """Make the missing inputs of a version's scores: the graph store, the neighbours, and the shards if asked.

    context: of a run of a `scaled_for` config.
    """
    if (context.run.scales or context.run.ranges) and not _has_store(context):
        context.progress.message(
            f"the columns of version {version.version} were scaled by other figures than these tables': the tables "
            f"are ingested once more by those. With graph.scaled_as: {version.name} runs scale by them from the start."
        )
    make_store(context)
    for stage in ("select", "flat") if shards and "flat" in context.run.stages else ("select",):
        make_artifact(context, stage)


def make_store(context: StageContext) -> None:
    """Make a run's graph store unless it exists."""
    if not _has_store(context):
        for stage in (each for each in context.run.stages if STAGES[each].writes_store):
            make_artifact(context, stage)


def _has_store(context: StageContext) -> bool:
    return committed(context.run.artifact(context.run.store_stage))
