"""Ingest: user tables in, graph store out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gnnflow import registry
from gnnflow.config.graph_section import edge_tables_by_name, node_tables_by_name, tables_by_name
from gnnflow.graph.encodings import are_encoded
from gnnflow.graph.errors import TableError, listed
from gnnflow.graph.made_features import table_columns
from gnnflow.graph.train_labels import unlearnable_labels
from gnnflow.ingest.encodings import fit_columns, report_encodings, sections_of
from gnnflow.ingest.job import IngestJob
from gnnflow.ingest.records import columns_read
from gnnflow.ingest.run import run_rounds
from gnnflow.ingest.splits import find_splits
from gnnflow.ingest.tables import (
    check_column_sections,
    read_tables,
    report_missing_features,
    report_missing_times,
    report_text,
)
from gnnflow.ingest.targets import DrawnSplit, EdgeTargets
from gnnflow.neighbors.pairs import check_negatives
from gnnflow.stages.bad_rows import check_bad_rows, tell_of_bad_rows
from gnnflow.stages.base import Made
from gnnflow.stages.resolve import SCALES_KEY, find_scales, memory_of_worker, stamps_of
from gnnflow.stages.table_errors import check_partitions
from gnnflow.stages.target_checks import alike_nodes, check_label_metric
from gnnflow.storage.filesystem import absolute
from gnnflow.storage.table_files import find_table_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.ingest.run import IngestResult
    from gnnflow.ingest.tables import Tables
    from gnnflow.registry import Version
    from gnnflow.stages.base import StageRun
    from gnnflow.stages.resolve import ResolvedRun

_NAMED = 20  # most columns in a message
_ADVICE = {
    "random": ". task.split: {kind: stratified} puts rows of each class of three or more into every split",
    "stratified": ": too few rows have it",
    "time": ". Raise task.split.valid or task.split.test",
}


def work(run: StageRun) -> Made:
    """Turn the config's tables into the graph store.

    Raises TableError for tables that break their contract, GuardError if too many rows were set aside.
    """
    graph, tell = run.config.graph, run.tell
    found = {uri: find_table_files(absolute(uri), form=graph.format_at(uri)) for uri in tables_by_name(graph).values()}
    for name, uri in tables_by_name(graph).items():
        tell(f"{name}: {found[uri].summary}")
    targets = EdgeTargets.of(run.config.task, graph, seed=run.config.seed)
    drawn = DrawnSplit.of(run.config.task, seed=run.config.seed)
    as_known = sections_of(run.resolved.states, graph)
    tables = read_tables(as_known, run.rounds, targets=targets, found=found, drawn=drawn)
    check_column_sections(tables, graph)
    tables = fit_columns(tables, graph, run.rounds, given=run.resolved.states)
    tables = find_splits(tables, graph, run.rounds)
    _tell_of_splits(tables, tell)
    report_text(tables, [*node_tables_by_name(graph), *edge_tables_by_name(graph)], tell)
    report_missing_features(tables, graph, tell)
    report_missing_times(tables, graph, tell)
    for text in alike_nodes(run.config, tables):
        tell(text)
    schema = tables.labelled.schema
    check_partitions(tables, run.resolved.config.graph)
    check_label_metric(run.config, tables.labelled)
    if schema.label_kind == "regression":
        column = tables.labelled.config.label_column
        tell(f"column {column!r} holds floats: numbers to predict. For classes set graph.classes: distinct.")
    if tables.classes is not None:
        tell(tables.classes.text)
    job = IngestJob(
        run.artifact,
        graph,
        tables,
        run.resolved.scales,
        run.resolved.ranges,
        memory=memory_of_worker(run.config),
        trains=run.resolved.trains,
    )
    if (version := find_scales(run.config)) is not None:
        _check_scales(job, version)
        done = {"scaled": version.scales, "encoded": are_encoded(version.states), "rounded": run.resolved.ranges}
        tell(f"columns are {' and '.join(what for what, is_done in done.items() if is_done)} as for {graph.scaled_as}")
    result = run_rounds(
        job, run.rounds, check_rows=partial(check_bad_rows, graph=graph, artifact=run.artifact, tell=tell)
    )
    _refuse_changed_tables(run.resolved)
    for name, rows in result.left_out.items():
        tell(f"{name}: {rows:,} rows of its table are no edges of this relation")
    tell_of_bad_rows(result.facts.tables, run.artifact, tell)
    _tell_of_classes(result, tell, are_given=schema.labels_are_names or graph.classes_given is not None)
    if run.config.task.kind != "node":
        check_negatives(result.facts, run.config.task, where=tables.labelled.uri)
    _tell_of_split_rows(result, tables, tell)
    _tell_of_digits(result, tell)
    for name, errors in result.facts.column_errors.items():
        tell(f"{name}: {errors.text}")
    report_encodings(result.facts.encodings, result.facts.tables, tell, given=run.resolved.states)
    for key, columns in result.facts.large_columns.items():
        tell(f"large numbers in {listed(columns)}: layers learn badly from them. Set {key}: standard.")
    return Made(
        result.files,
        rows_in=result.rows.rows_in,
        rows_out=result.rows.rows_out,
        rows_quarantined=result.rows.rows_quarantined,
        facts=result.facts,
    )


def _tell_of_classes(result: IngestResult, tell: Callable[[str], None], *, are_given: bool) -> None:
    """Report classes without rows, and labels that training cannot teach. are_given: listed, counted or found."""
    if missing := [number for number, held in enumerate(result.facts.class_counts) if not held]:
        names = dict(enumerate(result.facts.class_names))
        shown = listed([names.get(number, str(number)) for number in missing])
        what = "row has class" if len(missing) == 1 else "row has any of the classes"
        fix = "" if are_given else ". With graph.classes: distinct it has outputs for the labels of rows alone"
        tell(f"no {what} {shown}: a model still has an output for each of {result.facts.num_classes:,}{fix}")
    if unlearnable := unlearnable_labels(result.facts).text:
        tell(f"{unlearnable}: no model can learn that, but metrics count it")


def _tell_of_splits(tables: Tables, tell: Callable[[str], None]) -> None:
    """Report splits that no column has."""
    drawn, targets = tables.labelled.schema.drawn, tables.targets
    if text := drawn.text if drawn is not None else "" if targets is None else targets.text:
        tell(f"splits: {text}")


def _tell_of_split_rows(result: IngestResult, tables: Tables, tell: Callable[[str], None]) -> None:
    """Report the first times of splits by time, and classes that a split that was made has no row of."""
    if begins := [f"{name} from {time}" for name, time in result.facts.split_times.items()]:
        tell(f"splits by time: {', '.join(begins)}")
    drawn, targets = tables.labelled.schema.drawn, tables.targets
    if targets is not None and targets.text:
        kind: str = targets.task.split.kind
    elif drawn is not None:
        kind = drawn.kind
    else:
        return
    every, names = result.facts.class_counts, dict(enumerate(result.facts.class_names))
    for split, counts in result.held_out.items():
        absent = [names.get(number, str(number)) for number, held in enumerate(counts) if every[number] and not held]
        if absent:
            tell(f"no {split} row has class {listed(absent, at_most=_NAMED)}{_ADVICE[kind]}")


def _tell_of_digits(result: IngestResult, tell: Callable[[str], None]) -> None:
    """Report columns of each table whose numbers have more digits than the store keeps, and the differences."""
    for name, columns in result.rounded.items():
        for bits, when in ((24, "as they are stored"), (53, "before they are scaled")):
            lost = [f"{column!r} (by {each.lost:.3g} at most)" for column, each in columns.items() if each.bits == bits]
            if lost:
                tell(f"{name}: numbers are rounded to {bits} bits, {when}, in {listed(lost, at_most=_NAMED)}")


def _refuse_changed_tables(run: ResolvedRun) -> None:
    """Raise TableError if a table changed since the run was resolved: old and new rows may be mixed."""
    now, tables = stamps_of(run.config.graph), tables_by_name(run.config.graph)
    for name, stamps in run.tables.items():
        if now[name] != stamps:
            changed = sorted({each.name for each in {*now[name]} ^ {*stamps}})
            raise TableError(
                f"the table changed while it was read ({', '.join(changed)})",
                where=tables[name],
                fix="Run again once nothing writes to it.",
            )


def _check_scales(job: IngestJob, version: Version) -> None:
    """Raise TableError if the columns to scale or encode differ from the columns that a model knows."""
    columns = {name: table_columns(held) for name, held in columns_read(job).items()}
    scaled = {each.name for each in job.scaled_tables} | {*version.states, *job.ranges} & {*columns}
    trained_on = {name: table_columns(held) for name, held in version.signature.columns.items() if name in scaled}
    if found := registry.other_columns(trained_on, {name: columns[name] for name in scaled}):
        raise TableError("; ".join(found), where=SCALES_KEY, fix="Name the same columns in the same order, or omit it.")
    for name, uri, width in job.scaled_tables:
        known = job.scales.get(name)
        if known is None or known.width != width:
            raise TableError(
                f"{name} has {width} columns to scale, {job.config.scaled_as} has {known.width if known else 'none'}",
                where=uri,
                fix=f"Name a model that was trained on these columns, or omit {SCALES_KEY}.",
            )
    for name, table in zip(job.table_names.nodes, job.tables.nodes, strict=True):
        width, ranges = table.schema.feature_width, job.ranges.get(name)
        if job.ranges and table.schema.features and (ranges is None or len(ranges.low) != width):
            raise TableError(
                f"{name} has {width} columns to round, and {job.config.scaled_as} another number",
                where=table.uri,
                fix=f"Name a model that was trained on these columns, or omit {SCALES_KEY}.",
            )
