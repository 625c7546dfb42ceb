"""A run, resolved once: which stages it has, what each one's fingerprint is, and so where everything of it lies.

A fingerprint is the name under which a stage's work is done once. It covers the stage's config keys, its inputs'
fingerprints, its format version, the source of the user's own code that it runs and, for the stage that reads the
tables, the stamps of their files. All are computed here, from file names and stamps alone: no table is opened. What a
run does later it does under these names, also where a table is replaced meanwhile; ingest then refuses to commit.
"""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnflow.config import PIPELINES, STAGES
from gnnflow.config.deployment import Deployment
from gnnflow.config.stages import needs_of
from gnnflow.graph.errors import ConfigError
from gnnflow.storage.filesystem import absolute, join, stamp
from gnnflow.storage.manifest import fingerprint_of
from gnnflow.storage.tables import table_files
from gnnflow.storage.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gnnflow.config import Config, GraphConfig
    from gnnflow.storage.filesystem import Stamp

Tables = dict[str, tuple["Stamp", ...]]

_FORMAT_VERSION = 1


@dataclass(frozen=True)
class ResolvedRun:
    """One config on the tables as they were when it was resolved. fingerprints: of its strategy's stages, in order."""

    config: Config
    tables: Tables
    fingerprints: Mapping[str, str]

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that leave artifacts, in order."""
        return tuple(self.fingerprints)

    @property
    def workspace(self) -> Workspace:
        """The workspace the config names."""
        return Workspace.at(self.config.workspace)

    @property
    def store_stage(self) -> str:
        """The stage that writes the graph store this run computes on."""
        return [name for name in self.stages if STAGES[name].writes_store][-1]

    @cached_property
    def uri(self) -> str:
        """Where the run's folder lies: the same config on the same tables is the same run."""
        keys = {"stages": dict(self.fingerprints), "name": self.config.name}
        fingerprint = fingerprint_of("run", keys=keys, inputs={}, format_version=_FORMAT_VERSION)
        return self.workspace.run(self.config.name, fingerprint)

    @property
    def record(self) -> str:
        """The run's commit: its folder is a completed run when this file is there."""
        return join(self.uri, "run.json")

    def needs(self, stage: str) -> tuple[str, ...]:
        """Return the stages whose artifacts a stage reads in this run."""
        return needs_of(stage, self.config.train.strategy)

    def artifact(self, stage: str) -> str:
        """Return where a stage's artifact lies."""
        return self.workspace.artifact(stage, self.fingerprints[stage])


def resolve(config: Config, *, tables: Tables | None = None) -> ResolvedRun:
    """Return the run of a config. tables: the stamps to go by, where another run of the same tables has read them.

    Raises StorageError for tables that are not there, ConfigError for what no stage can do yet.
    """
    tables = stamps_of(config.graph) if tables is None else tables
    found: dict[str, str] = {}
    for name in PIPELINES[config.train.strategy].stages:
        stage = STAGES[name]
        assert stage.keys is not None, "the stages of a pipeline leave artifacts"
        inputs: dict[str, Any] = {need: found[need] for need in needs_of(name, config.train.strategy)}
        if stage.reads_tables:
            inputs |= {table: [asdict(each) for each in stamps] for table, stamps in tables.items()}
        if own := stage.own_code(config):
            inputs["code"] = {name: _source_digest(name) for name in own}
        found[name] = fingerprint_of(name, keys=stage.keys(config), inputs=inputs, format_version=stage.version)
    return ResolvedRun(config, tables, found)


def stamps_of(graph: GraphConfig) -> Tables:
    """Return the stamps of each table's files, in file order. Opens none of them."""
    if not isinstance(graph.nodes, str) or not isinstance(graph.edges, str):
        raise ConfigError(
            "a map of types is not supported yet",
            where="graph.nodes",
            fix="Give one node table and one edge table.",
        )
    tables = {"nodes": graph.nodes, "edges": graph.edges}
    return {name: tuple(stamp(file) for file in table_files(absolute(uri))) for name, uri in tables.items()}


def _source_digest(name: str) -> str:
    """Return a hash of the module that `module:name` is in. One that cannot be found is refused where it runs."""
    Deployment.here().check_module(name)  # looking for a module imports the packages it lies in
    try:
        spec = importlib.util.find_spec(name.partition(":")[0])
    except (ImportError, ValueError):
        return ""
    origin = Path(spec.origin) if spec and spec.origin else None
    return hashlib.sha256(origin.read_bytes()).hexdigest() if origin and origin.is_file() else ""
