"""Experiments: a config with a `matrix:` of keys, expanded into runs that share what they can.

    matrix:
      model: [{kind: gcn}, {kind: gat, heads: 4}]
      train.lr: [0.01, 0.02]

gives four runs. A value that is a map sets the keys in it and leaves the section's other keys as they are, so a run may
set keys that only its kind has. Stages whose keys are equal in several runs are one task: with this matrix ingest,
select and GraphFlat happen once. What an experiment says is read while its DAG is parsed, so everything here is light.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gnnflow.config import STAGES, Config, config_from_dict
from gnnflow.config.environment import apply_overrides
from gnnflow.config.stages import run_chain
from gnnflow.graph.errors import ConfigError

_MOST_RUNS = 100


@dataclass(frozen=True)
class Variant:
    """One run of an experiment: its values as the file has them, with its part of the matrix, and their config."""

    label: str
    values: Mapping[str, Any]
    config: Config

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of its strategy."""
        return run_chain(self.config.train.strategy)

    def key(self, stage: str) -> str:
        """Return what decides a stage's result: equal keys are the same work. A run's last stages are its own."""
        rows = [STAGES[name] for name in self.stages[: self.stages.index(stage) + 1]]
        known = {row.name: row.keys(self.config) for row in rows if row.keys is not None}
        tables = [self.config.graph.nodes, self.config.graph.edges]
        own = self.label if STAGES[stage].keys is None else ""
        return json.dumps([known, tables, self.config.workspace, own], sort_keys=True)


@dataclass(frozen=True)
class Experiment:
    """A YAML file of experiments/: its name and its runs."""

    name: str
    variants: tuple[Variant, ...]


def read_experiment(raw: Any, *, source: str) -> Experiment:
    """Return the experiment of a parsed YAML file. Raises ConfigError where any of its runs would be refused."""
    if not isinstance(raw, Mapping):
        raise ConfigError("an experiment is a mapping of keys", where=source, fix="Start with `name:` and `matrix:`.")
    values = {key: value for key, value in raw.items() if key != "matrix"}
    variants: dict[str, Variant] = {}
    for choice in _choices(raw.get("matrix", {}), source):
        texts = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in choice]
        label = " ".join(f"{key.rsplit('.', 1)[-1]}={text}" for key, text in texts) or "as written"
        if label in variants:
            raise ConfigError(
                f"matrix has two runs `{label}`", where=source, fix="Leave one out, or set keys of other names."
            )
        overrides = tuple(f"{key}={json.dumps(value)}" for key, value in choice)
        chosen = apply_overrides(values, overrides)
        variants[label] = Variant(label, chosen, config_from_dict(chosen, source=source, environment=os.environ))
    first = next(iter(variants.values()))
    return Experiment(first.config.name, tuple(variants.values()))


def _choices(matrix: Any, source: str) -> Iterator[list[tuple[str, Any]]]:
    """Yield what each run sets: keys and values."""
    if not isinstance(matrix, Mapping) or not all(isinstance(held, list) and held for held in matrix.values()):
        raise ConfigError(
            "matrix is not a map of keys to lists of values",
            where=source,
            fix="Write `matrix: {model.kind: [gcn, sage]}`.",
        )
    combinations = list(itertools.product(*matrix.values()))
    if len(combinations) > _MOST_RUNS:
        raise ConfigError(
            f"matrix has {len(combinations)} runs, over {_MOST_RUNS}",
            where=source,
            fix="Split it: more tasks in one DAG slow Airflow's scheduler down for everyone.",
        )
    for values in combinations:
        yield [leaf for key, value in zip(matrix, values, strict=True) for leaf in _leaves(key, value)]


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys that a value of the matrix sets: the one it stands under, or those of a map, all the way down."""
    if not isinstance(value, Mapping):
        yield key, value
        return
    for name, held in value.items():
        yield from _leaves(f"{key}.{name}", held)
