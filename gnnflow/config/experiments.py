"""Experiments: a config with a `matrix:` of keys and `seeds:`, expanded into runs that share their common stages.

    matrix:
      model: [{kind: gcn}, {kind: gat, heads: 4}]
      train.lr: [0.01, 0.02]
    seeds: 3

gives four variants of three runs each. A value that is a map sets the keys in it and leaves the section's other keys as
they are, without those that only the file's kind has; so a run may set keys that only its kind has. `matrix.py` has the
forms of a matrix. Stages whose keys are equal in several runs are one task: with this matrix ingest and what does not
draw by the seed happen once. `gnnflow sweep` and the experiments' DAGs read this.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gnnflow.config.base import Section, default_kind, tag_name, tagged_members
from gnnflow.config.environment import apply_overrides
from gnnflow.config.loading import config_from_dict
from gnnflow.config.matrix import SEED, Choice, RunRow, read_matrix, sets_part
from gnnflow.config.root import Config
from gnnflow.config.sections import Sections
from gnnflow.config.stages import STAGES, run_chain
from gnnflow.config.yaml_text import refuse_oversized
from gnnflow.graph.errors import ConfigError

MOST_TASKS = 100
"""Runs that one DAG may have: more tasks slow Airflow's scheduler down for everyone."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of an experiment: its row and part of the matrix, the file's values with that part, and their config."""

    row: RunRow
    choice: Choice
    values: Mapping[str, Any]
    config: Config

    @property
    def label(self) -> str:
        """The label of the run, unique in its experiment."""
        return self.row.label

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
    """A config with a matrix: its name, its runs, the rows of all combinations, and the errors of refused ones.

    source: the path or URL of its file, from whose folder relative paths in the runs' values are seen.
    """

    name: str
    runs: tuple[PlannedRun, ...]
    rows: tuple[RunRow, ...]
    refused: Mapping[str, ConfigError] = field(default_factory=dict)
    source: str = ""

    @property
    def digest(self) -> str:
        """A hash over its runs, in order: equal digests mean the same experiment."""
        held = [[run.label, run.values] for run in self.runs]
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
    values = apply_overrides({key: value for key, value in raw.items() if key != "matrix"}, overrides)
    seeds, first_seed = values.pop("seeds", None), values.get(SEED, Sections.model_fields[SEED].default)
    choices = read_matrix(raw.get("matrix", {}), seeds=seeds, first_seed=first_seed, source=source, most_runs=most_runs)
    _refuse_set_twice(choices, overrides)
    runs: list[PlannedRun] = []
    refused: dict[str, ConfigError] = {}
    for choice in choices:
        try:
            own = [f"{key}={json.dumps(value)}" for key, value in choice.values.items()]
            chosen = apply_overrides(drop_unfit(Sections, values, apply_overrides({}, own)), own)
            config = config_from_dict(
                chosen, workspace=workspace, source=source, environment=environment, applied=overrides
            )
        except ConfigError as error:
            if strict:
                raise
            refused[choice.row.label] = error
        else:
            # a seed may be a variable
            runs.append(PlannedRun(replace(choice.row, seed=config.seed), choice, chosen, config))
    if not runs:
        raise next(iter(refused.values()))
    rows = {choice.row.label: choice.row for choice in choices} | {run.label: run.row for run in runs}
    return Experiment(runs[0].config.name, tuple(runs), tuple(rows.values()), refused, source)


def _refuse_set_twice(choices: Sequence[Choice], overrides: Sequence[str]) -> None:
    """Raise ConfigError where an override sets what the matrix varies: one of the two would be lost."""
    varied = dict.fromkeys(key for choice in choices for key in choice.values)
    for override in overrides:
        for key in varied:
            if sets_part(override.partition("=")[0], key):
                raise ConfigError(
                    f"{override!r} sets what the matrix varies ({key})", where="--set", fix="Leave one of the two out."
                )


def drop_unfit(section: type[Section], held: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's values without keys that only its own kind has, where the chosen values name another kind.

    So a file may hold `model: {kind: gat, heads: 4}` and `matrix: {model: [{kind: gcn}]}`. A key that both kinds lack
    stays, to be refused.
    """
    kept = dict(held)
    for name, value in held.items():
        own, field = chosen.get(name), section.model_fields.get(name)
        if field is None or not isinstance(value, Mapping) or not isinstance(own, Mapping):
            continue
        below: Any = field.annotation
        unfit: set[str] = set()
        if members := tagged_members(field):
            tag = tag_name(members)
            before = str(value.get(tag, default_kind(field)))
            old, below = members.get(before), members.get(str(own.get(tag, before)))
            if old and below:
                unfit = old.model_fields.keys() - below.model_fields.keys()
        kept[name] = {key: each for key, each in value.items() if key not in unfit}
        if isinstance(below, type) and issubclass(below, Section):
            kept[name] = drop_unfit(below, kept[name], own)
    return kept
