"""Experiments: a config with a `matrix:` of keys, expanded into runs that share their common stages.

    matrix:
      model: [{kind: gcn}, {kind: gat, heads: 4}]
      train.lr: [0.01, 0.02]

gives four runs. A value that is a map sets the keys in it and leaves the section's other keys as they are, so a run may
set keys that only its kind has. Stages whose keys are equal in several runs are one task: with this matrix ingest,
select and GraphFlat happen once. `gnnflow sweep` and the experiments' DAGs read this.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnnflow.config.environment import apply_overrides
from gnnflow.config.loading import config_from_dict
from gnnflow.config.root import Config
from gnnflow.config.stages import STAGES, run_chain
from gnnflow.config.yaml_text import refuse_oversized
from gnnflow.graph.errors import ConfigError

MOST_TASKS = 100
"""Runs that one DAG may have: more tasks slow Airflow's scheduler down for everyone."""


@dataclass(frozen=True)
class Variant:
    """One run of an experiment: the file's values with its part of the matrix, and their config."""

    label: str
    values: Mapping[str, Any]
    config: Config

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of the run."""
        return run_chain(self.config)

    def key(self, stage: str) -> str:
        """Return a key for a stage's work: equal keys mean the same work. Stages without keys belong to one run."""
        rows = [STAGES[name] for name in self.stages[: self.stages.index(stage) + 1]]
        known = {row.name: row.keys(self.config) for row in rows if row.keys is not None}
        tables = self.config.graph.model_dump(mode="json", include={"nodes", "edges"})
        own = self.label if STAGES[stage].keys is None else ""
        return json.dumps([known, tables, self.config.workspace, own], sort_keys=True)


@dataclass(frozen=True)
class Experiment:
    """A config with a matrix: its name, its runs, and the error of each refused combination by label."""

    name: str
    variants: tuple[Variant, ...]
    refused: Mapping[str, ConfigError] = field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        """The labels of its runs, in order."""
        return [variant.label for variant in self.variants]

    @property
    def digest(self) -> str:
        """A hash over its runs, in order: equal digests mean the same experiment."""
        held = [[variant.label, variant.values] for variant in self.variants]
        return hashlib.sha256(json.dumps(held, sort_keys=True, default=str).encode()).hexdigest()


def read_experiment(
    raw: Any,
    *,
    source: str,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    most_runs: int = MOST_TASKS,
    strict: bool = True,
    environment: Mapping[str, str] | None = os.environ,
) -> Experiment:
    """Return the experiment of a parsed YAML file.

    overrides (`key.path=value`) and workspace apply to every run. Raises ConfigError for an invalid matrix, and where
    one of its combinations is refused; without `strict`, where all of them are. environment: the values of variables;
    None leaves every text as it is.
    """
    if not isinstance(raw, Mapping):
        raise ConfigError("an experiment is a mapping of keys", where=source, fix="Start with `name:` and `matrix:`.")
    refuse_oversized(raw, source=source)
    matrix = raw.get("matrix", {})
    _refuse_set_twice(matrix, overrides)
    values = apply_overrides({key: value for key, value in raw.items() if key != "matrix"}, overrides)
    variants: list[Variant] = []
    refused: dict[str, ConfigError] = {}
    for label, choice in _labelled(_choices(matrix, source, most_runs), source).items():
        try:
            chosen = apply_overrides(values, [f"{key}={json.dumps(value)}" for key, value in choice])
            config = config_from_dict(chosen, workspace=workspace, source=source, environment=environment)
        except ConfigError as error:
            if strict:
                raise
            refused[label] = error
        else:
            variants.append(Variant(label, chosen, config))
    if not variants:
        raise next(iter(refused.values()))
    return Experiment(variants[0].config.name, tuple(variants), refused)


def _refuse_set_twice(matrix: Any, overrides: Sequence[str]) -> None:
    """Raise ConfigError where an override sets what the matrix varies: one of the two would be lost."""
    for override in overrides:
        own = override.partition("=")[0]
        for key in matrix if isinstance(matrix, Mapping) else ():
            if f"{own}.".startswith(f"{key}.") or f"{key}.".startswith(f"{own}."):
                raise ConfigError(
                    f"{override!r} sets what the matrix varies ({key})", where="--set", fix="Leave one of the two out."
                )


def _labelled(choices: Iterable[list[tuple[str, Any]]], source: str) -> dict[str, list[tuple[str, Any]]]:
    """Return the values of each run by its label. Raises ConfigError where two labels are equal.

    A label names a key by its last part where that is clear, and in full where the matrix has another key like it.
    """
    found: dict[str, list[tuple[str, Any]]] = {}
    choices = list(choices)
    keys = {key for choice in choices for key, _ in choice}
    ends = Counter(key.rsplit(".", 1)[-1] for key in keys)
    names = {key: end if ends[end := key.rsplit(".", 1)[-1]] == 1 else key for key in keys}
    for choice in choices:
        texts = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in choice]
        label = " ".join(f"{names[key]}={text}" for key, text in texts) or "as written"
        if label in found:
            raise ConfigError(
                f"matrix has two runs `{label}`", where=source, fix="Leave one out, or set keys of other names."
            )
        found[label] = choice
    return found


def _choices(matrix: Any, source: str, most_runs: int) -> Iterator[list[tuple[str, Any]]]:
    """Yield the keys and values of each run."""
    if not isinstance(matrix, Mapping) or not all(isinstance(held, list) and held for held in matrix.values()):
        raise ConfigError(
            "matrix is not a map of keys to lists of values",
            where=source,
            fix="Write `matrix: {model.kind: [gcn, sage]}`.",
        )
    for key, other in itertools.permutations(matrix, 2):
        if f"{other}.".startswith(f"{key}."):
            raise ConfigError(
                f"matrix varies {key} and {other}, which is part of it: one of the two would be lost",
                where=source,
                fix=f"Write the values of {key} with all of its keys, or vary its keys one by one.",
            )
    combinations = list(itertools.product(*matrix.values()))
    if len(combinations) > most_runs:
        raise ConfigError(
            f"matrix has {len(combinations)} runs, over {most_runs}", where=source, fix="Split it into several files."
        )
    for values in combinations:
        yield [leaf for key, value in zip(matrix, values, strict=True) for leaf in _leaves(key, value)]


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys that a value of the matrix sets: its own key, or the keys of a map, at every depth."""
    if not isinstance(value, Mapping):
        yield key, value
        return
    for name, held in value.items():
        yield from _leaves(f"{key}.{name}", held)
