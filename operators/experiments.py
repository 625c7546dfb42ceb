"""Experiments: a config with a `matrix:` of keys, expanded into runs that share what they can.

    matrix:
      model.kind: [gcn, sage]
      train.lr: [0.01, 0.02]

gives four runs. Stages whose keys are equal in several runs are one task: with this matrix ingest and GraphFlat happen
once. What an experiment says is read while its DAG is parsed, so everything here is light.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gnnflow.config import STAGES, Config, config_from_dict
from gnnflow.config.stages import run_chain
from gnnflow.graph.errors import ConfigError

_MOST_RUNS = 100


@dataclass(frozen=True)
class Variant:
    """One run of an experiment: its overrides (`key=value`), the values they replace and the config they give."""

    label: str
    overrides: tuple[str, ...]
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
    """A YAML file of experiments/: the config's values without the matrix, and its runs."""

    name: str
    values: Mapping[str, Any]
    variants: tuple[Variant, ...]


def read_experiment(raw: Any, *, source: str) -> Experiment:
    """Return the experiment of a parsed YAML file. Raises ConfigError where any of its runs would be refused."""
    if not isinstance(raw, Mapping):
        raise ConfigError("an experiment is a mapping of keys", where=source, fix="Start with `name:` and `matrix:`.")
    values = {key: value for key, value in raw.items() if key != "matrix"}
    variants = tuple(
        Variant(
            _label(choice),
            overrides,
            config_from_dict(values, overrides=overrides, source=source, environment=os.environ),
        )
        for choice, overrides in _choices(raw.get("matrix", {}), source)
    )
    return Experiment(variants[0].config.name, values, variants)


def _choices(matrix: Any, source: str) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
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
        choice = dict(zip(matrix, values, strict=True))
        yield choice, tuple(f"{key}={json.dumps(value)}" for key, value in choice.items())


def _label(choice: Mapping[str, Any]) -> str:
    shown = (f"{key.rsplit('.', 1)[-1]}={_short(value)}" for key, value in choice.items())
    return " ".join(shown) or "the only run"


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
