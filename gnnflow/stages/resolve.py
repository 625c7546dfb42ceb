"""A run, resolved once: its stages and their fingerprints, which decide the places of all its files.

A fingerprint is the name under which a stage's work is done once. It covers the stage's config keys, its inputs'
fingerprints, its format version, the source of the user's code that it runs and, for the stage that reads the tables,
the stamps of their files. All are computed here, from file names and stamps alone: no table is opened. A run keeps
these names even if a table is replaced meanwhile; ingest then refuses to commit. The head of one file is read
where the config leaves open what only its columns say: the split of nodes, and whether floats are classes.

Columns can be scaled and encoded as they were for a published model (`graph.scaled_as`). A model learns the meaning of
a number from the mean and deviation of its training tables; on later tables, `normalize: standard` would remove a shift
of a whole column, and the model would not see it. The figures enter the fingerprint of ingest, not the version that
holds them: a version with the same figures is no reason to ingest again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gnnflow import registry
from gnnflow.config import STAGES
from gnnflow.config.base import published_name
from gnnflow.config.cluster_section import AddressCluster, LocalCluster, SynchronousCluster
from gnnflow.config.graph_section import GraphConfig, table_key, tables_by_name
from gnnflow.config.own_code import source_digest
from gnnflow.config.stages import needs_of, stages_of
from gnnflow.config.task_section import (
    ColumnSplit,
    EdgeTask,
    NodeColumnSplit,
    NodeRandomSplit,
    NodeTask,
    RandomSplit,
    TimeSplit,
)
from gnnflow.config.train_section import MiniBatchConfig, is_hybrid, needs_ranks
from gnnflow.graph.encodings import are_encoded
from gnnflow.graph.errors import ConfigError, GnnflowError
from gnnflow.graph.labels import selection_metrics
from gnnflow.graph.narrow import LEVELS
from gnnflow.stages.start import find_start, start_of_version
from gnnflow.storage.filesystem import Stamp, absolute, has_pattern, join, stamp
from gnnflow.storage.manifest import fingerprint_of
from gnnflow.storage.table_files import find_table_files
from gnnflow.storage.table_sizes import OF_PACKED, bytes_in_memory, growth_of
from gnnflow.storage.user_tables import first_schema, holds_times
from gnnflow.storage.workspace import RUN, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gnnflow.config import ClusterConfig, Config
    from gnnflow.graph.encodings import States
    from gnnflow.graph.narrow import Ranges
    from gnnflow.graph.scales import Scales
    from gnnflow.registry import Version
    from gnnflow.stages.start import FoundStart
    from gnnflow.storage.table_parts import TableFiles

Tables = dict[str, tuple[Stamp, ...]]

_FORMAT_VERSION = 1
_UNKNOWN = "not-known"  # the fingerprint of a stage whose tables are missing
SCALES_KEY = "graph.scaled_as"
FEWEST_PARTITIONS, MOST_PARTITIONS = 4, 65536
_PARTS_OF_MEMORY = 16
_USUAL_MEMORY = 2 << 30
_MIB = 1 << 20
SMALL_BYTES = 64 * _MIB
"""The most bytes of tables in memory that no workers are started for, unless the config asks for them."""


@dataclass(frozen=True)
class ResolvedRun:
    """One config on its tables at the time when it was resolved.

    given: the config before that, without what follows from its tables and from published models; two of these may be
    one run. fingerprints: of its strategy's stages, in order. scales, states, ranges: of columns, if a published model
    gives them. code: a hash of the source of the user's classes and functions, by their names in the config. trains:
    False where a published model only scores the tables, which then need no train or valid targets; their graph store
    is the same.
    """

    config: Config
    given: Config = field(compare=False)
    tables: Tables
    fingerprints: Mapping[str, str]
    scales: Scales = field(default_factory=dict)
    states: States = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)
    trains: bool = field(default=True, compare=False)

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
        """The run's folder: the same config on the same tables is the same run."""
        keys = {"stages": dict(self.fingerprints), "name": self.config.name}
        fingerprint = fingerprint_of("run", keys=keys, inputs={}, format_version=_FORMAT_VERSION)
        return self.workspace.run(self.config.name, fingerprint)

    @property
    def record(self) -> str:
        """The run's commit: a folder with this file is a completed run."""
        return join(self.uri, RUN)

    @property
    def partitions(self) -> int:
        """The number of partitions of the graph store."""
        partitions = self.config.graph.partitions
        assert partitions is not None, "a resolved run has a number of partitions"
        return partitions

    def needs(self, stage: str) -> tuple[str, ...]:
        """Return the stages whose artifacts a stage reads in this run."""
        return needs_of(stage, self.stages)

    def artifact(self, stage: str) -> str:
        """Return the folder of a stage's artifact."""
        return self.workspace.artifact(stage, self.fingerprints[stage])

    def code_of(self, stage: str) -> dict[str, str]:
        """Return the hashes of the user's code that a stage runs, by its name."""
        return {name: self.code[name] for name in STAGES[stage].own_code(self.config)}


def resolve(config: Config, *, tables: Tables | None = None) -> ResolvedRun:
    """Return the run of a config. tables: the stamps that another run of the same tables has read, if any.

    Raises StorageError for missing tables, ConfigError for configs that no stage supports, RegistryError if the model
    that `train.start` or `graph.scaled_as` names is not published.
    """
    given = config
    if tables is None:
        tables = stamps_of(config.graph)
        _refuse_own_files(config)
    schema_of = cache(partial(_schema_of, graph=config.graph))  # two keys may follow from one table
    config = _with_classes(_with_split(_with_partitions(config, tables), schema_of), schema_of)
    scales: Scales = {}
    states: States = {}
    ranges: Ranges = {}
    if (scaled := find_scales(config)) is not None:
        graph = config.graph.model_copy(update={"scaled_as": scaled.pinned})
        config, scales, states = config.model_copy(update={"graph": graph}), scaled.scales, scaled.states
        ranges = scaled.ranges if graph.storage in LEVELS else {}
    code = {name: source_digest(name) for stage in stages_of(config) for name in STAGES[stage].own_code(config)}
    run = ResolvedRun(config, given, tables, {}, scales, states, code, ranges)
    start = find_start(config)
    # The alias may by now stand for a version that this very run gave: the run is still the same one.
    if start is not None and start.version is not None and (earlier := start_of_version(config, start.version)):
        found = _fingerprints(run, earlier)
        if start.version.fingerprints.get("train") == found["train"]:
            start = earlier
    if start is not None:
        config = config.model_copy(update={"train": config.train.model_copy(update={"start": start.name})})
    return replace(run, config=config, fingerprints=_fingerprints(run, start))


def resolve_again(run: ResolvedRun, config: Config) -> ResolvedRun:
    """Return the run of another config on the tables of a run; it trains if that one does."""
    return replace(resolve(config, tables=run.tables), trains=run.trains)


def resolve_partly(config: Config) -> tuple[ResolvedRun, list[GnnflowError]]:
    """Return the run of a config, and the errors of tables and models that are not there.

    Where there are errors, none of its stages has an artifact.
    """
    try:
        return resolve(config), []
    except GnnflowError as error:
        errors = [error]
    given, tables = config, Tables()
    for name, uri in tables_by_name(config.graph).items():
        try:
            tables[name] = stamps_of_files(find_table_files(absolute(uri)))
        except GnnflowError as error:
            errors.append(error)
    schema_of = cache(partial(_schema_of, graph=config.graph))
    config = _with_classes(_with_split(_with_partitions(config, tables), schema_of), schema_of)
    for find in (partial(_refuse_own_files, config), partial(find_scales, config), partial(find_start, config)):
        try:
            find()
        except GnnflowError as error:
            errors.append(error)
    return ResolvedRun(config, given, tables, dict.fromkeys(stages_of(config), _UNKNOWN)), errors


def find_scales(config: Config) -> Version | None:
    """Return the published version whose scales a config asks for, None if its tables give their own.

    Raises RegistryError if no such version is published, ConfigError if it was trained on unscaled columns.
    """
    named = config.graph.scaled_as and published_name(config.graph.scaled_as)
    if not named:
        return None
    version = registry.find_version(config.workspace, *named)
    is_scaled = "standard" in {config.graph.normalize, config.graph.edge_normalize}
    is_ranged = config.graph.storage in LEVELS
    if not is_scaled and not is_ranged and not are_encoded(version.states):
        raise ConfigError(
            f"{config.graph.scaled_as!r}, and no columns are scaled",
            where=SCALES_KEY,
            fix="Set graph.normalize or graph.edge_normalize to standard, or leave graph.scaled_as out.",
        )
    if is_ranged and not version.ranges:
        raise ConfigError(
            f"{config.graph.scaled_as!r}: version {version.version} does not hold the ranges of its columns, and "
            f"graph.storage is {config.graph.storage}",
            where=SCALES_KEY,
            fix="Leave it out, or set graph.storage as that version has it.",
        )
    if is_scaled and not version.scales:
        raise ConfigError(
            f"{config.graph.scaled_as!r}: version {version.version} does not hold the scales of its columns",
            where=SCALES_KEY,
            fix="Leave it out, publish a run whose columns are scaled by standard, and name that.",
        )
    return version


def _fingerprints(run: ResolvedRun, start: FoundStart | None) -> dict[str, str]:
    """Return the fingerprints of a run's stages, in order."""
    found: dict[str, str] = {}
    stages = stages_of(run.config)
    for name in stages:
        stage = STAGES[name]
        assert stage.keys is not None, "the stages of a pipeline leave artifacts"
        inputs: dict[str, Any] = {need: found[need] for need in needs_of(name, stages)}
        if stage.reads_tables:
            inputs |= {table: [asdict(each) for each in stamps] for table, stamps in run.tables.items()}
            inputs |= {"scales": {table: asdict(each) for table, each in run.scales.items()}} if run.scales else {}
            inputs |= {"ranges": {table: asdict(each) for table, each in run.ranges.items()}} if run.ranges else {}
            inputs |= (
                {"states": {table: [*map(asdict, each)] for table, each in run.states.items()}} if run.states else {}
            )
        if stage.starts_from_model and start is not None:
            inputs["start"] = start.key
        if code := run.code_of(name):
            inputs["code"] = code
        found[name] = fingerprint_of(name, keys=stage.keys(run.config), inputs=inputs, format_version=stage.version)
    return found


def _with_partitions(config: Config, tables: Tables) -> Config:
    """Return the config with a number of partitions: the given one, or one that follows from the tables' bytes.

    A task holds its partition several times over, to sort and to send it. So a partition gets a sixteenth of a worker's
    memory, 2 GiB by default.
    """
    if config.graph.partitions is not None:
        return config
    held = sum(bytes_in_memory(files, _parquet_growth(name, config.graph)) for name, files in tables.items())
    count = -(-held * _PARTS_OF_MEMORY // memory_of_worker(config))
    graph = config.graph.model_copy(update={"partitions": min(max(count, FEWEST_PARTITIONS), MOST_PARTITIONS)})
    return config.model_copy(update={"graph": graph})


def _parquet_growth(name: str, graph: GraphConfig) -> float:
    """Return the bytes in memory of a byte of a table's Parquet; the usual ones where its files cannot be listed."""
    with suppress(GnnflowError):
        uri = tables_by_name(graph)[name]
        return growth_of(find_table_files(absolute(uri), form=graph.format_at(uri)))
    return OF_PACKED


def memory_of_worker(config: Config) -> int:
    """Return the bytes that a worker may have; where the config does not say, the usual ones."""
    return memory_limit(config) or _USUAL_MEMORY


def memory_limit(config: Config) -> int:
    """Return the bytes at which a worker of this machine is stopped; 0 where it is not."""
    return int(config.cluster.memory_limit) if isinstance(config.cluster, LocalCluster) else 0


def bytes_of_tables(tables: Tables) -> int:
    """Return about the bytes that tables take in memory, by the sizes of their files alone."""
    return sum(map(bytes_in_memory, tables.values()))


def cluster_for(run: ResolvedRun) -> ClusterConfig:
    """Return the cluster that runs the rounds: the config's, or this process where a small graph's names none.

    Workers take longer to start than a small graph's rounds. Ranks are tasks of workers, so these are started for them.
    """
    config = run.config
    if _asks_for_cluster(config):
        return config.cluster
    return SynchronousCluster() if bytes_of_tables(run.tables) <= SMALL_BYTES else config.cluster


def tasks_text(config: Config) -> str:
    """Return where a run's tasks are done and the bytes that decide it; without tables, the rule."""
    workers = _cluster_text(config.cluster)
    if _asks_for_cluster(config):
        return f"{workers}, as {'the config says' if 'cluster' in config.model_fields_set else 'ranks need'}"
    least = f"{SMALL_BYTES // _MIB} MiB"
    try:
        held = bytes_of_tables(stamps_of(config.graph))
    except GnnflowError:
        return f"in this process where the tables take at most {least} in memory, else {workers}"
    size = f"the tables take about {-(-held // _MIB):,} MiB in memory"
    return f"in this process: {size}, at most {least}" if held <= SMALL_BYTES else f"{workers}: {size}, above {least}"


def _asks_for_cluster(config: Config) -> bool:
    return "cluster" in config.model_fields_set or needs_ranks(config.train)


def _cluster_text(cluster: ClusterConfig) -> str:
    if isinstance(cluster, SynchronousCluster):
        return "in this process"
    if isinstance(cluster, AddressCluster):
        return f"on the cluster at {cluster.address}"
    return f"on {cluster.workers} {'local workers' if cluster.kind == 'local' else f'workers of {cluster.kind}'}"


def _with_split(config: Config, schema_of: Callable[[str], pa.Schema]) -> Config:
    """Return the config with a kind of split for `auto`: by time or random where labels have no split column.

    A column that the config names is the split, there or not.
    """
    task, graph = config.task, config.graph
    if task.split.kind != "auto":
        return config
    of_edges = isinstance(task, EdgeTask)
    split: NodeColumnSplit | NodeRandomSplit | ColumnSplit | RandomSplit | TimeSplit = NodeColumnSplit()
    if isinstance(task, EdgeTask):
        split = ColumnSplit(earlier_only=task.split.earlier_only)
    own = graph.of_targets(edges=of_edges)
    if graph.label is not None and graph.split == GraphConfig.model_fields["split"].default:
        nodes = graph.node_tables[graph.schema.types[graph.target_type]]
        schema = schema_of(graph.edge_tables[graph.target_edges] if of_edges else nodes)
        if own.label_column in schema.names and own.split_column not in schema.names:
            split = NodeRandomSplit() if isinstance(task, NodeTask) else _drawn_of_edges(config, task, schema_of)
    return config.model_copy(update={"task": task.model_copy(update={"split": split})})


def _drawn_of_edges(config: Config, task: EdgeTask, schema_of: Callable[[str], pa.Schema]) -> RandomSplit | TimeSplit:
    """Return a split of labelled edges by time where all edges between their types have times, else a random one."""
    graph, target = config.graph, config.graph.target_edges
    alike = [each for each in graph.edge_tables if {each.source, each.target} == {target.source, target.target}]
    names = {each: graph.of_relation(each).time_column for each in alike}
    schemas = {each: schema_of(graph.edge_tables[each]) for each in alike}
    is_named = graph.timestamp != GraphConfig.model_fields["timestamp"].default
    have_times = all(
        schemas[each].names.count(name) == 1 and (is_named or holds_times(schemas[each].field(name).type))
        for each, name in names.items()
    )
    if have_times and isinstance(config.train, MiniBatchConfig) and not is_hybrid(config.train):
        return TimeSplit()
    return RandomSplit(earlier_only=task.split.earlier_only)


def _with_classes(config: Config, schema_of: Callable[[str], pa.Schema]) -> Config:
    """Return the config with floats as classes where its metric is of classes and its labels are floats.

    These are numbers to predict where the metric is of numbers, so it decides what ingest makes of the labels.
    """
    graph, of_edges = config.graph, config.task.kind == "edge"
    says_classes = config.train.metric not in selection_metrics("regression") and config.task.kind != "link"
    if not says_classes or graph.label is None or graph.classes is not None or graph.num_classes is not None:
        return config
    tables = graph.edge_tables[graph.target_edges], graph.node_tables[graph.schema.types[graph.target_type]]
    schema, label = schema_of(tables[0] if of_edges else tables[1]), graph.of_targets(edges=of_edges).label_column
    if schema.names.count(label) != 1 or not pa.types.is_floating(schema.field(label).type):
        return config
    return config.model_copy(update={"graph": graph.model_copy(update={"classes": "whole"})})


def _schema_of(table: str, *, graph: GraphConfig) -> pa.Schema:
    """Return the schema of a table's first file, an empty one if it cannot be read: ingest says why."""
    with suppress(GnnflowError):
        return first_schema(find_table_files(absolute(table), form=graph.format_at(table)))
    return pa.schema([])


def stamps_of(graph: GraphConfig) -> Tables:
    """Return the stamps of each table's files, in file order. Opens none of them."""
    # The name below the table's folder: a file moved from one `key=value` folder to another holds other rows.
    found = {name: find_table_files(absolute(uri)) for name, uri in tables_by_name(graph).items()}
    return {name: stamps_of_files(table) for name, table in found.items()}


def stamps_of_files(table: TableFiles) -> tuple[Stamp, ...]:
    """Return the stamps of a table's files, in their order, and of its snapshot where it has one. Opens none."""
    snapshot = (Stamp("snapshot", 0, table.snapshot),) if table.snapshot else ()
    return (*(replace(stamp(file.uri), name=file.name) for file in table.files), *snapshot)


def _refuse_own_files(config: Config) -> None:
    """Raise ConfigError if a pattern for a table matches files that stages write to the workspace."""
    workspace = Workspace.at(config.workspace)
    for name, table in tables_by_name(config.graph).items():
        # A folder that holds the workspace was refused when the config was read.
        if has_pattern(table) and any(workspace.owns(file.uri) for file in find_table_files(absolute(table)).files):
            raise ConfigError(
                f"{config.workspace!r} lies among the files of {table_key(name)} ({table}), and would be read as a "
                "table",
                where="workspace",
                fix="Name a folder outside of the table's folder.",
            )
