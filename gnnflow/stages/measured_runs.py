"""Finds the metrics of completed runs that are not of the same thing: of another class, or at other costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnnflow.config.decide_section import named_class, stored_decide
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.labels import AREAS
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.storage.manifest import committed, read_facts, read_manifest
from gnnflow.train.decisions import Deciding
from gnnflow.train.measured import measured_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def measured_in(record: Mapping[str, Any]) -> dict[str, str]:
    """Return what metrics of a run are of, as `measured_of` tells it; none where its artifacts are gone."""
    trained, stored = (record["artifacts"].get(stage, "") for stage in ("train", record["store"]))
    if not (trained and stored and committed(trained) and committed(stored)):
        return {}
    facts = read_facts(trained, read_manifest(trained), TrainFacts)
    graph = read_facts(stored, read_manifest(stored), GraphFacts)
    names, decide = graph.every_class_name, stored_decide(record["config"])
    found = measured_of(Deciding.of(decide, facts.decision, names=names), names)
    if named_class(decide) is not None and not facts.metric_class:  # of an older version: means over classes
        found = {name: text for name, text in found.items() if name not in AREAS}
    return found


def unlike_metrics(records: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Return the metrics that are not of the same thing in all runs, with what they are of in each."""
    measured = [measured_in(record) for record in records]
    names = dict.fromkeys(name for each in measured for name in each)
    found = {name: tuple(each.get(name, "") for each in measured) for name in names}
    return {name: texts for name, texts in found.items() if len(set(texts)) > 1}


def without(metrics: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    """Return the figures of a run without some metrics, of every split and of baselines."""
    left_out = {*names}
    return {key: value for key, value in metrics.items() if key.rpartition(".")[2] not in left_out}
