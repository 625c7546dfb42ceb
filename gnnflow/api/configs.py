"""Reads a config from a file, plain values or a `Config`, and the tables that a caller gives with it.

Tables in memory become files of the workspace (`storage/kept_tables.py`), so that a run from memory is a run like any
other: its record names its tables, and its tables stay as they were.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnnflow.config import STAGES, Config
from gnnflow.config.deployment import anchored, refuse_unusable
from gnnflow.config.environment import escape
from gnnflow.config.experiments import Experiment, read_experiment
from gnnflow.config.loading import PartialConfig, read_values, refuse_experiment, workspace_of
from gnnflow.config.plain import plain_values
from gnnflow.config.yaml_text import read_yaml
from gnnflow.graph.errors import ConfigError
from gnnflow.stages.first_look import refuse_first
from gnnflow.stages.resolve import ResolvedRun
from gnnflow.storage.filesystem import read_bytes
from gnnflow.storage.kept_tables import keep_table
from gnnflow.storage.workspace import Workspace

ConfigSource = str | os.PathLike[str] | Mapping[str, Any] | Config
"""A path or URL of a YAML file, plain values, or a config."""
Tables = Any
"""A table, or a map of tables by type or relation. A table is a path, a URL, or has `__arrow_c_stream__`."""
_MOST_RUNS = 10_000


@dataclass(frozen=True)
class Given:
    """A caller's config and tables, before they are read. overrides: `key.path=value`."""

    config: ConfigSource
    nodes: Tables = None
    edges: Tables = None
    overrides: Sequence[str] = ()
    workspace: str | None = None

    @property
    def uri(self) -> str:
        """The place of the config's file; empty for a config that is in memory."""
        return os.fspath(self.config) if isinstance(self.config, str | os.PathLike) else ""

    @property
    def environment(self) -> Mapping[str, str] | None:
        """The variables that texts of a file may name; None for values, whose texts are taken as they are."""
        return os.environ if self.uri else None

    def read(self) -> PartialConfig:
        """Return the config without its wrong keys, and an error for each.

        Raises ConfigError for a text that is no mapping of keys, TableError for a table without Arrow types.
        """
        if isinstance(self.config, Config) and not (self.has_tables or self.overrides or self.workspace):
            return PartialConfig(self.config)
        return read_values(
            self._with_tables(refuse_experiment(self._values(), source=self.uri)),
            overrides=self.overrides,
            workspace=self.workspace,
            source=self.uri,
            environment=self.environment,
        )

    def resolve(self, *, stage: str = "run") -> ResolvedRun:
        """Return the run of the config. Raises one error for all mistakes that stop the stage."""
        leaves_artifact = STAGES[stage].keys is not None
        return refuse_first(self.read(), here=None if stage == "run" else (stage,) if leaves_artifact else ())

    def read_experiment(self) -> Experiment:
        """Return the experiment of a config with a matrix. Raises ConfigError where all its runs are refused."""
        values = self._values()
        return read_experiment(
            self._with_tables(values) if isinstance(values, dict) else values,
            source=self.uri,
            overrides=self.overrides,
            workspace=self.workspace,
            most_runs=_MOST_RUNS,
            strict=False,
            environment=self.environment,
        )

    def with_values(self, values: Mapping[str, Any]) -> Given:
        """Return the same tables and options with another config."""
        return replace(self, config=values)

    @property
    def has_tables(self) -> bool:
        """True if tables are given."""
        return self.nodes is not None or self.edges is not None

    def _values(self) -> Any:
        if isinstance(self.config, Config):
            # a section that the config leaves out stays so: workers start where it names a cluster
            held = self.config.model_dump(mode="json")
            return {name: value for name, value in held.items() if name in self.config.model_fields_set}
        if isinstance(self.config, Mapping):
            return plain_values(self.config)
        if isinstance(self.config, str | os.PathLike):
            return read_yaml(read_text(self.uri), source=self.uri)
        raise ConfigError(
            f"a {type(self.config).__name__} is not a config",
            where="config",
            fix="Give the path or URL of a YAML file, a dict, or a gnnflow.Config.",
        )

    def _with_tables(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values with the given tables in their `graph` section."""
        if not self.has_tables:
            return values
        graph = values.get("graph") or {}
        if not isinstance(graph, dict):
            return values  # which is refused when it is read
        uri = workspace_of(values, overrides=self.overrides, workspace=self.workspace, environment=self.environment)
        given = {"nodes": self.nodes, "edges": self.edges}
        placed = {
            name: self._placed(tables, graph.get(name), workspace=Workspace.at(uri), where=f"graph.{name}")
            for name, tables in given.items()
            if tables is not None
        }
        return {**values, "graph": {**graph, **placed}}

    def _placed(self, tables: Tables, known: Any, *, workspace: Workspace, where: str) -> Any:
        """Return the places of tables. known: the config's value of the key, of which other tables and columns stay."""
        if isinstance(tables, Mapping):
            held = known if isinstance(known, Mapping) else {}
            own = {
                name: self._placed(table, held.get(name), workspace=workspace, where=f"{where}.{name}")
                for name, table in tables.items()
            }
            return {**held, **own}
        uri = anchored(_place_of(tables, workspace, where=where))  # a caller's path is not one of the file
        if self.environment is not None:
            uri = escape(uri)  # in a file's values, where `${NAME}` is a variable
        return {**known, "table": uri} if isinstance(known, Mapping) and "table" in known else uri


def _place_of(table: Any, workspace: Workspace, *, where: str) -> str:
    if isinstance(table, str | os.PathLike):
        return os.fspath(table)
    if hasattr(table, "__arrow_c_stream__"):
        return keep_table(table, workspace, where=where)
    raise ConfigError(
        f"a {type(table).__name__} is not a table",
        where=where,
        fix="Give a path, a URL, or a table of pandas, Polars, DuckDB or Arrow (a lazy one after it is collected).",
    )


def read_text(config: str) -> str:
    """Return the text of a config's file."""
    refuse_unusable(config, where="CONFIG")
    if Path(config).exists() and not Path(config).is_file():
        raise ConfigError("is not a file", where=config, fix="Name a YAML file.")  # reading a pipe would wait
    try:
        return read_bytes(config).decode()
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8 text", where=config, fix="Save it as UTF-8; is it a YAML file?") from error
