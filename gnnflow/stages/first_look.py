"""A first look at a config and its tables: columns, classes, sizes, and everything that would stop the run.

Nothing is started: schemas and the first rows of the first files are read, and a file is written to the workspace and
removed again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.columns import LEADING_ZEROS
from gnnflow.config.base import tag_name, tagged_members
from gnnflow.config.cluster_section import AddressCluster, SynchronousCluster
from gnnflow.config.environment import config_line
from gnnflow.config.graph_section import table_key
from gnnflow.config.messages import show
from gnnflow.config.root import Config
from gnnflow.config.stages import stages_of
from gnnflow.config.train_section import trains_from_shards
from gnnflow.graph.errors import GnnflowError
from gnnflow.ingest.labels import is_labelled
from gnnflow.ingest.preview_tables import Errors, own_section
from gnnflow.ingest.preview_targets import Counted, count_targets
from gnnflow.ingest.schema import EdgeSchema, NodeSchema
from gnnflow.stages.base import resolve_here
from gnnflow.stages.check import errors_of_run, joined, preview_before
from gnnflow.stages.leaks import Leak, alike_names, find_leaks
from gnnflow.stages.look import ColumnLook, Look, TableLook, on_one_line
from gnnflow.stages.meant_run import find_meant
from gnnflow.stages.meant_tables import unread_times
from gnnflow.stages.resolve import cluster_for, resolve_partly
from gnnflow.stages.table_errors import preview_of
from gnnflow.stages.target_checks import alike_nodes
from gnnflow.storage.columns import combine
from gnnflow.storage.user_tables import form_of, holds_lists, holds_numbers, holds_text, holds_times, read_chunk

if TYPE_CHECKING:
    from gnnflow.config import GraphConfig
    from gnnflow.config.base import Section
    from gnnflow.config.loading import PartialConfig
    from gnnflow.ingest.preview import Preview
    from gnnflow.ingest.preview_tables import SampledTable
    from gnnflow.stages.resolve import ResolvedRun

_EXAMPLES, _LETTERS, _LIST = 3, 24, 3
_OF_SHARDS = ("shard_size", "layout", "targets")
_INPUTS = ("feature", "attribute")
_NUMERICAL = tuple(f"{what} (numerical)" for what in _INPUTS)


def first_look(read: PartialConfig) -> Look:
    """Return all that is known about a run before it begins."""
    if read.config is None:
        return Look("", tuple(_stops_of(read.errors)))
    seen = _see(read, read.config)
    config, preview = seen.run.config, seen.preview
    assert preview is not None, "tables are sampled before all stages of a run"
    counted = count_targets(preview, config.graph)
    tables = tuple(_table_look(table, config, preview) for table in preview.tables if table.parts)
    leaks = _leaks_of(preview, tables, counted, config.graph)
    return Look(
        name=config.name,
        stops=tuple(seen.stops),
        tables=tables,
        targets=counted,
        target_text=_target_text(config, preview, counted),
        splits_text=_splits_text(config),
        times=tuple(_times(preview, config.graph)),
        notes=(
            *_empty_inputs(tables),
            *_codes_as_numbers(preview, tables, config.graph),
            *unread_times(preview, config.graph, seen.stops),
            *_label_notes(preview, leaks, counted, config.graph),
            *(() if preview.read is None or not preview.is_complete else alike_nodes(config, preview.read)),
        ),
        leaks=leaks,
        stages=tuple(stages_of(config)),
        cluster="" if seen.is_unresolved else _cluster_text(seen.run),
        kinds=tuple(_kinds_of(config)),
        keys=tuple(_keys_of(config)),
    )


@dataclass(frozen=True)
class _Seen:
    """A run with everything that would stop it, and the sample of its tables; None where no stage reads these."""

    run: ResolvedRun
    preview: Preview | None
    stops: list[GnnflowError]
    is_unresolved: bool


def _see(read: PartialConfig, given: Config, *, here: Sequence[str] | None = None) -> _Seen:
    """Return a run as far as its config can be read. here: the stages that are about to run, None for all.

    Tables are sampled before all stages of a run; before some of them, where they are not ingested yet.
    """

    def sample(run: ResolvedRun) -> Preview | None:
        return preview_of(run.config, states=run.states) if here is None else preview_before(run, here and run.stages)

    run, unresolved = resolve_partly(given)
    meant = find_meant(run, sample, unresolved=unresolved)
    found = [] if here is not None and not here else errors_of_run(meant.run, here=here, preview=meant.preview)
    told: list[GnnflowError] = [error for error in read.errors if not meant.explains(error)]
    told += map(read.places.with_hint, _own_mistakes([*meant.errors, *found, *meant.unresolved], read))
    return _Seen(meant.run, meant.preview, _stops_of(told), bool(meant.unresolved))


def _own_mistakes(errors: Sequence[GnnflowError], read: PartialConfig) -> list[GnnflowError]:
    """Return errors without those that follow from a mistake of the config, which is told already."""
    return [error for error in errors if not any(_is_about(error, key) for key in read.removed)]


def _stops_of(errors: Sequence[GnnflowError]) -> list[GnnflowError]:
    """Return errors, each once."""
    each_once = Errors()
    for error in errors:
        each_once.add(error)
    return list(each_once.found.values())


def _is_about(error: GnnflowError, key: str) -> bool:
    """Return whether an error is about a key of the config, or a text in it; a section is about its own place alone.

    A key of `graph.columns` decides how its column is read.
    """
    column = key.removeprefix("graph.columns.").rpartition(".")[0].rpartition(".")[2]
    if key.startswith("graph.columns.") and column and error.problem.startswith(f"column {column!r}"):
        return True
    about = f"{error.where}: {error.problem}" if "." in key or not key.isalpha() else error.where
    return re.search(rf"(?<![\w.]){re.escape(key)}(?!\w)", about) is not None


def refuse_first(read: PartialConfig, *, here: Sequence[str] | None = None) -> ResolvedRun:
    """Return the run of a config. Raises one error for all that stops it, where the config or a missing table does.

    What else would stop the run is said when it is checked, which looks at the tables too.

    here: the stages that are about to run, None for all of the run; without any, the tables' content is not looked at.
    """
    first: list[GnnflowError] = [*read.errors]
    if not first and read.config is not None:
        try:
            return resolve_here(read.config)
        except GnnflowError as error:
            first.append(error)
    if read.config is None:
        raise joined(_stops_of(first))
    raise joined(_see(read, read.config, here=here).stops or first)


def _table_look(table: SampledTable, config: Config, preview: Preview) -> TableLook:
    rows = sum(part.num_rows for part in table.parts)
    sample, roles = table.sample, _roles_of(table, config)
    return TableLook(
        key=table_key(table.name),
        uri=table.source.uri,
        files=len(sample.files.files),
        num_bytes=sample.num_bytes,
        rows=sample.about_rows(rows),
        is_exact=sample.is_whole or (sample.counted is not None and sample.counted_share >= 1),
        sampled=rows,
        columns=tuple(_column_look(name, table, roles.get(name, "")) for name in table.parts[0].column_names),
        form=sample.files.snapshot or form_of(table.source.chunks),
        edges=None if table.is_plain or preview.read is None else preview.count_rows(table),
    )


def _empty_inputs(tables: Sequence[TableLook]) -> Iterator[str]:
    """Yield a sentence for each input without a value."""
    for table in tables:
        for column in table.columns:
            if table.sampled and column.missing >= 1 and column.role.startswith(_INPUTS):
                name = on_one_line(column.name)
                yield f"{table.key}: column {name} has no value in the rows that were read: it tells a model nothing."


def _codes_as_numbers(preview: Preview, looks: Sequence[TableLook], graph: GraphConfig) -> Iterator[str]:
    """Yield a sentence for each input of CSV that is read as numbers and has leading zeros, as codes have."""
    tables = [table for table in preview.tables if table.parts]
    for table, look in zip(tables, looks, strict=True):
        owner, chunk = table.name.rpartition("/")[2], table.sample.chunks[0]
        inputs = [each.name for each in look.columns if each.role in _NUMERICAL and each.type == "int64"]
        names = [name for name in inputs if chunk.csv and graph.column_section(owner, name) is None]
        rows = read_chunk(chunk, names) if names else pa.table({})  # as it is written
        for name in rows.column_names:
            codes = combine(rows[name]).cast(pa.large_string()).drop_null()
            codes = codes.filter(pc.match_substring_regex(codes, LEADING_ZEROS))
            if len(codes):
                line = config_line({"columns": {name: {"kind": "categorical"}}})
                yield (
                    f"{look.key}: column {on_one_line(name)} is read as numbers, without the leading zeros of "
                    f"{codes[0].as_py()!r}. Where they are codes, set graph: {line}."
                )


def _leaks_of(preview: Preview, looks: Sequence[TableLook], counted: Counted, graph: GraphConfig) -> tuple[Leak, ...]:
    """Return the inputs of the labelled table that by themselves tell the class."""
    labelled = preview.labelled
    if labelled is None or labelled.schema is None or not counted.classes:
        return ()
    own = own_section(graph, labelled)
    look = next(each for each in looks if each.key == table_key(labelled.name))
    inputs = [each.name for each in look.columns if each.role.startswith(_INPUTS)]
    rows = labelled.rows([own.label_column, *inputs])
    rows = rows.filter(pa.array(is_labelled(rows, labelled.schema, own)))
    return tuple(find_leaks(rows, own.label_column, inputs))


def _label_notes(preview: Preview, leaks: Sequence[Leak], counted: Counted, graph: GraphConfig) -> Iterator[str]:
    """Yield a sentence for classes that are one word written in several ways, and for inputs that tell the class."""
    labelled = preview.labelled
    if labelled is None:
        return
    where = f"{table_key(labelled.name)}: column"
    for names in alike_names([*counted.classes]):
        shown = ", ".join(f"{name!r} ({counted.classes[name]:,})" for name in names)
        yield (
            f"{where} {on_one_line(own_section(graph, labelled).label_column)}: {len(names)} classes differ in case "
            f"and spaces alone: {shown}. Where they are one, write them alike."
        )
    for leak in leaks:
        yield (
            f"{where} {on_one_line(leak.column)} {leak.text}. Where it is known only after the label, take it out of "
            f"{'graph.features' if labelled.is_nodes else 'graph.edge_features'}."
        )


def _column_look(name: str, table: SampledTable, role: str) -> ColumnLook:
    columns = [combine(part[name]) for part in table.parts if part.schema.get_field_index(name) >= 0]
    rows = sum(len(column) for column in columns)
    missing = sum(column.null_count for column in columns) / rows if rows else 0.0
    if table.sample.missing_of and name in table.sample.missing:
        missing = table.sample.missing[name] / table.sample.missing_of
    if role.startswith(_INPUTS):  # as the run counts them
        texts = [column.cast(pa.large_string()) for column in columns if holds_text(column.type)]
        missing += sum(pc.sum(pc.equal(text, "")).as_py() or 0 for text in texts) / max(rows, 1)
    role = role or f"not read ({kind_text(columns[0].type)})"
    return ColumnLook(name, str(columns[0].type), role, missing, examples_of(columns[0]))


def kind_text(found: pa.DataType) -> str:
    """Return the kind of value that a column holds, as a feature."""
    if holds_times(found):
        return "timestamp"
    if holds_numbers(found):
        return "numerical"
    if holds_text(found):
        return "categorical"
    if holds_lists(found):
        return "embedding" if holds_numbers(found.value_type) else "multicategorical"
    return "empty" if pa.types.is_null(found) else "of no kind"


def examples_of(column: pa.Array) -> tuple[str, ...]:
    """Return the first different values of a column, shortened."""
    head = column.slice(0, 100)
    if holds_text(head.type):
        head = head.cast(pa.large_string())
    head = head.drop_null()
    try:
        head = pc.unique(head)
    except pa.ArrowException:  # lists and structures
        head = head.slice(0, 1)
    return tuple(_short(value) for value in _values(head.slice(0, _EXAMPLES)))


def _values(found: pa.Array) -> list[Any]:
    """Return values as Python's; a text for times that Python has none for."""
    try:
        return list(found.to_pylist())
    except (OverflowError, ValueError):
        return ["beyond years 1 to 9999"]


def _short(value: Any) -> str:
    if isinstance(value, list):
        more = ", ..." if len(value) > _LIST else ""
        return f"[{', '.join(_short(each) for each in value[:_LIST])}{more}] ({len(value)})"
    text = repr(value) if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]}..."


def _roles_of(table: SampledTable, config: Config) -> dict[str, str]:
    """Return the part of each column in the run, by name; columns that are not read have none."""
    graph, schema = own_section(config.graph, table), table.schema
    if isinstance(schema, NodeSchema) or (schema is None and table.is_nodes):
        roles = {graph.id_column: "id"}
        features = graph.feature_names(graph.schema.types[table.number], table.names)
        what = "feature"
    else:
        roles = {graph.src_column: "source", graph.dst_column: "target", graph.weight_column: "weight"}
        features = graph.edge_feature_names(list(graph.edge_tables)[table.number], table.names)
        what = "attribute"
        if isinstance(schema, EdgeSchema) and schema.has_time:
            roles[graph.time_column] = "time"
    is_target = schema is not None and schema.has_labels
    if is_target or (schema is None and graph.label_column in table.source.columns):
        roles[graph.label_column] = "label"
    if schema is not None and schema.reads_split:
        roles[graph.split_column] = "split"
    drawn = schema.drawn if isinstance(schema, NodeSchema) else None
    times = dict.fromkeys(() if drawn is None else drawn.columns, "time of the split")
    return times | _input_roles(table, features, what=what) | roles


def _input_roles(table: SampledTable, features: Sequence[str], *, what: str) -> dict[str, str]:
    """Return the roles of columns that are inputs, with their kinds. what: feature or attribute."""
    roles, held = {}, {field.name: field.type for field in table.parts[0].schema}
    for name in (name for each in features for name in (each, f"{each}_index", f"{each}_value")):
        if name in held:
            roles[name] = f"{what} ({kind_text(held[name])})"
    for part in () if table.schema is None else table.schema.parts:
        if part.section is not None:
            roles[part.name] = f"{what} ({part.section.kind})"
    return roles


def _target_text(config: Config, preview: Preview, counted: Counted) -> str:
    kind, graph = config.task.kind, config.graph
    of = "" if graph.target is None else f" of {graph.target}"
    if preview.read is None or preview.labelled is None:
        return f"{kind}s{of}"
    label = preview.read.labelled.schema.label_kind
    rows = sum(
        p.num_rows for each in preview.tables if each.source.uri == preview.read.labelled.uri for p in each.parts
    )
    if not counted.labelled:
        return f"{kind}s{of}, labels: {label}"
    return f"{kind}s{of}, labels: {label}; {counted.labelled:,} of the {rows:,} rows that were read have one"


def _splits_text(config: Config) -> str:
    split: Any = config.task.split
    return "" if split.kind == "column" else f"made by the run: task.split is {split.kind}"


def _times(preview: Preview, graph: GraphConfig) -> Iterator[str]:
    for table in preview.tables:
        own = own_section(graph, table)
        if not isinstance(table.schema, EdgeSchema) or own.time_column not in table.parts[0].column_names:
            continue
        try:
            found = [pc.min_max(part[own.time_column]) for part in table.parts if part.num_rows]
        except (pa.ArrowException, KeyError):  # no times
            continue
        held = [value for each in found for end in each.values() if end.is_valid for value in _values(pa.array([end]))]
        if held and not isinstance(held[0], list | dict):
            is_read = "read" if table.schema.has_time else "not read, see task.split"
            yield f"{table.name}: {_short(min(held))} to {_short(max(held))} in the rows that were read ({is_read})"


def _cluster_text(run: ResolvedRun) -> str:
    chosen = cluster_for(run)
    if isinstance(chosen, SynchronousCluster):
        return "none: the work runs in this process"
    if isinstance(chosen, AddressCluster):
        return f"{chosen.kind} {chosen.address}"
    return f"{chosen.kind}, {chosen.workers} workers"


def _kinds_of(config: Config) -> Iterator[str]:
    """Yield each section of several kinds with the one that was chosen; the cluster has its own line."""
    for name, described in Config.model_fields.items():
        section, members = getattr(config, name), tagged_members(described)
        if members and name != "cluster" and hasattr(section, "model_fields_set"):
            yield f"{name} {getattr(section, tag_name(members))}"


def _keys_of(config: Config) -> Iterator[str]:
    """Yield a line for each section: its kind, its keys, and the values that the config gives."""
    for name, described in Config.model_fields.items():
        section: Any = getattr(config, name)
        if not hasattr(section, "model_fields_set"):
            continue
        members = tagged_members(described)
        chosen = f" ({tag_name(members)}: {getattr(section, tag_name(members))})" if members else ""
        skipped = {tag_name(members)} if members else set()
        if name == "flat" and not trains_from_shards(config.train):
            skipped |= {*_OF_SHARDS}
        keys = [key for key in type(section).model_fields if key not in skipped]
        yield f"{name}{chosen}: {', '.join(_key_text(section, key) for key in keys) or 'no more keys'}"


def _key_text(section: Section, key: str) -> str:
    value: Any = getattr(section, key)
    if key not in section.model_fields_set or isinstance(value, dict) or hasattr(value, "model_fields_set"):
        return key
    return f"{key}={show(value)}"
