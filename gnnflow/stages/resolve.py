"""A run, resolved once: which stages it has, what each one's fingerprint is, and so where everything of it lies.

A fingerprint is the name under which a stage's work is done once. It covers the stage's config keys, its inputs'
fingerprints, its format version, the source of the user's own code that it runs and, for the stage that reads the
tables, the stamps of their files. All are computed here, from file names and stamps alone: no table is opened. What a
run does later it does under these names, also where a table is replaced meanwhile; ingest then refuses to commit.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gnnflow.config import STAGES
from gnnflow.config.cluster_section import LocalCluster
from gnnflow.config.graph_section import table_key, tables_by_name
from gnnflow.config.own_code import source_digest
from gnnflow.config.stages import needs_of, stages_of
from gnnflow.graph.errors import ConfigError
from gnnflow.stages.scaling import find_scales
from gnnflow.stages.start import find_start, start_of_version
from gnnflow.storage.filesystem import absolute, has_pattern, join, stamp
from gnnflow.storage.manifest import fingerprint_of
from gnnflow.storage.table_files import find_table_files, format_of
from gnnflow.storage.workspace import RUN, Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gnnflow.config import Config, GraphConfig
    from gnnflow.graph.scales import Scales
    from gnnflow.stages.start import FoundStart
    from gnnflow.storage.filesystem import Stamp

Tables = dict[str, tuple["Stamp", ...]]

_FORMAT_VERSION = 1
FEWEST_PARTITIONS, MOST_PARTITIONS = 4, 65536
_PARTS_OF_MEMORY = 16
_USUAL_MEMORY = 2 << 30


@dataclass(frozen=True)
class ResolvedRun:
    """One config on the tables as they were when it was resolved.

    fingerprints: of its strategy's stages, in order. scales: what columns are scaled by where a model says it. code: a
    hash of the source of each of the user's own modules, by the name that the config has for what is in it.
    """

    config: Config
    tables: Tables
    fingerprints: Mapping[str, str]
    scales: Scales = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)

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
        return join(self.uri, RUN)

    @property
    def partitions(self) -> int:
        """How many partitions the graph store has."""
        partitions = self.config.graph.partitions
        assert partitions is not None, "a resolved run has a number of partitions"
        return partitions

    def needs(self, stage: str) -> tuple[str, ...]:
        """Return the stages whose artifacts a stage reads in this run."""
        return needs_of(stage, self.stages)

    def artifact(self, stage: str) -> str:
        """Return where a stage's artifact lies."""
        return self.workspace.artifact(stage, self.fingerprints[stage])

    def code_of(self, stage: str) -> dict[str, str]:
        """Return the hashes of the user's own code that a stage runs, by its name; a stage of no run has none."""
        return {name: self.code[name] for name in STAGES[stage].own_code(self.config)}


def resolve(config: Config, *, tables: Tables | None = None) -> ResolvedRun:
    """Return the run of a config. tables: the stamps to go by, where another run of the same tables has read them.

    Raises StorageError for tables that are not there, ConfigError for what no stage can do yet, RegistryError where no
    such model as `train.start` or `graph.scaled_as` names is published.
    """
    if tables is None:
        tables = stamps_of(config.graph)
        _refuse_own_files(config)
    config = _with_partitions(config, tables)
    scales: Scales = {}
    if (scaled := find_scales(config)) is not None:
        graph = config.graph.model_copy(update={"scaled_as": scaled.pinned})
        config, scales = config.model_copy(update={"graph": graph}), scaled.scales
    code = {name: source_digest(name) for stage in stages_of(config) for name in STAGES[stage].own_code(config)}
    run = ResolvedRun(config, tables, {}, scales, code)
    start = find_start(config)
    # A version that this very run gave may be what the alias stands for by now: the run is still the one it was.
    if start is not None and start.version is not None and (earlier := start_of_version(config, start.version)):
        found = _fingerprints(run, earlier)
        if start.version.fingerprints.get("train") == found["train"]:
            return replace(run, config=_with_start(config, earlier), fingerprints=found)
    return replace(run, config=_with_start(config, start), fingerprints=_fingerprints(run, start))


def _with_start(config: Config, start: FoundStart | None) -> Config:
    if start is None:
        return config
    return config.model_copy(update={"train": config.train.model_copy(update={"start": start.name})})


def _fingerprints(run: ResolvedRun, start: FoundStart | None) -> dict[str, str]:
    """Return the fingerprints of a run's stages, in order, where it has none yet."""
    found: dict[str, str] = {}
    stages = stages_of(run.config)
    for name in stages:
        stage = STAGES[name]
        assert stage.keys is not None, "the stages of a pipeline leave artifacts"
        inputs: dict[str, Any] = {need: found[need] for need in needs_of(name, stages)}
        if stage.reads_tables:
            inputs |= {table: [asdict(each) for each in stamps] for table, stamps in run.tables.items()}
            inputs |= {"scales": {table: asdict(each) for table, each in run.scales.items()}} if run.scales else {}
        if stage.starts_from_model and start is not None:
            inputs["start"] = start.key
        if code := run.code_of(name):
            inputs["code"] = code
        found[name] = fingerprint_of(name, keys=stage.keys(run.config), inputs=inputs, format_version=stage.version)
    return found


def _with_partitions(config: Config, tables: Tables) -> Config:
    """Return the config with a number of partitions: its own, or one that follows from the tables' bytes.

    Text takes about its size in memory, Parquet and what is zipped several times that; a task holds its partition a few
    times over, sorted and on its way. So a partition gets a sixteenth of a worker's memory, which is taken as 2 GiB
    where the config does not say it.
    """
    if config.graph.partitions is not None:
        return config
    limit = config.cluster.memory_limit if isinstance(config.cluster, LocalCluster) else 0
    held = sum(each.size * _growth(each.name) for stamps in tables.values() for each in stamps)
    count = -(-held * _PARTS_OF_MEMORY // (limit or _USUAL_MEMORY))
    graph = config.graph.model_copy(update={"partitions": min(max(count, FEWEST_PARTITIONS), MOST_PARTITIONS)})
    return config.model_copy(update={"graph": graph})


def _growth(name: str) -> int:
    """Return how many times its size a file takes in memory, about."""
    return 4 if format_of(name) == "parquet" or name.lower().endswith(".gz") else 1


def stamps_of(graph: GraphConfig) -> Tables:
    """Return the stamps of each table's files, in file order. Opens none of them."""
    # The name below the table's folder: a file moved from one `key=value` folder to another holds other rows.
    return {
        name: tuple(replace(stamp(file.uri), name=file.name) for file in find_table_files(absolute(uri)).files)
        for name, uri in tables_by_name(graph).items()
    }


def _refuse_own_files(config: Config) -> None:
    """Raise ConfigError where a pattern would take in what stages write to the workspace."""
    workspace = Workspace.at(config.workspace)
    for name, table in tables_by_name(config.graph).items():
        # A folder that holds the workspace is refused where the config is read.
        if has_pattern(table) and any(workspace.owns(file.uri) for file in find_table_files(absolute(table)).files):
            raise ConfigError(
                f"{config.workspace!r} lies among the files of {table_key(name)} ({table}), which would "
                "read it as a table",
                where="workspace",
                fix="Give a folder outside of the table's.",
            )
