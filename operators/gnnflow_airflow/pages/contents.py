"""Reads a workspace for its pages, and nothing outside it.

A name of an address is looked up in the list of its folder's names, so it never becomes a path by itself. A folder or
file is read only if it lies in the workspace after links are resolved, since people who write into a workspace may not
read everything that Airflow can. `app.py` confines all that a page opens or writes to its workspace; here are the
checks for what is then absent, or is left out of a list.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import GnnflowError, StorageError
from gnnflow.graph.labels import AUTO, metric_text, of_class
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.report.judging import headline_key
from gnnflow.storage.attempts import ATTEMPT, list_attempts
from gnnflow.storage.filesystem import (
    absolute,
    age_of,
    exists,
    is_below,
    join,
    list_names,
    read_bytes,
    require_file,
    size_of,
)
from gnnflow.storage.manifest import committed, read_facts, read_manifest
from gnnflow.storage.run_folder import (
    METRICS,
    REPORT,
    age_of_run,
    files_of,
    list_runs,
    metric_class_of,
    metric_of,
    prediction_files,
    read_metrics,
    read_run,
)
from gnnflow.storage.verified import read_verified, remedy
from gnnflow.storage.workspace import HISTORY, MANIFEST, RUN, Workspace

if TYPE_CHECKING:
    from gnnflow_airflow.places import Place

COMPARISON = "comparison.html"
_COMPARED = "runs.csv"
_RUN_PATH = re.compile(r"runs/[A-Za-z0-9][A-Za-z0-9._-]*/[0-9a-f]+")
_MOST_BYTES = 64 << 20  # of a page that is read whole; reports have a few hundred kilobytes
NOT_A_RECORD = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError)
_COLUMN = re.compile(r"[a-z][a-z0-9_@]{0,60}")


class AbsentError(Exception):
    """The workspace has nothing under an address."""


@dataclass(frozen=True)
class ListedRun:
    """A run in the list of a workspace. key: its folder's name; path: of its pages, empty where it has none."""

    name: str
    key: str
    path: str
    age: float
    status: str
    score: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Training:
    """The course of a training: one row of figures for each epoch of each fit. status: complete, running or absent."""

    status: str
    fits: Mapping[str, Sequence[Mapping[str, float]]] = field(default_factory=dict)
    metric: str = ""
    best_epoch: int | None = None


def find_folder(place: Place, *names: str) -> str:
    """Return the folder of these names below each other. Raises AbsentError where the workspace has none."""
    folder = place.uri
    for name in names:
        if name not in list_names(folder):
            raise AbsentError
        folder = join(folder, name)
    if not is_inside(place, folder):
        raise AbsentError
    return folder


def find_file(place: Place, folder: str, name: str) -> str:
    """Return a file below a folder of the workspace. Raises AbsentError where there is none, or it lies elsewhere."""
    uri = join(folder, name)
    if not is_inside(place, uri) or not exists(uri):
        raise AbsentError
    require_file(uri)
    return uri


def is_inside(place: Place, uri: str) -> bool:
    """Return whether a URI lies in the workspace."""
    try:
        return is_below(uri, place.uri)
    except StorageError:  # another scheme, or one that is not installed
        return False


def read_page(place: Place, folder: str, name: str) -> bytes:
    """Return a file that a stage wrote for people."""
    uri = find_file(place, folder, name)
    if (size_of(uri) or 0) > _MOST_BYTES:
        raise StorageError(f"is larger than {_MOST_BYTES >> 20} MiB", where=uri, fix="Open it where it lies.")
    return read_bytes(uri)


def read_report(place: Place, folder: str) -> bytes:
    """Return the report of a run. Raises StorageError where it is not the one that the run's record lists."""
    content = read_page(place, folder, REPORT)
    listed = {entry.name for entry in files_of(folder, _read_record(place, folder))}
    return read_verified(folder, REPORT) if REPORT in listed else content


def list_rows(place: Place, *, most: int) -> list[ListedRun]:
    """Return the latest runs of the workspace, the last one first; a damaged one with its problem."""
    workspace = Workspace.at(place.uri)
    complete = [uri for uri in list_runs(workspace) if is_inside(place, join(uri, RUN))]
    rows = [_run_row(place, uri) for uri in complete[-most:]]
    rows += [
        ListedRun(each.name, each.uri.split("/")[-1], "", each.age, each.status, problem=each.problem)
        for each in list_attempts(workspace)[-most:]
        if is_inside(place, join(each.uri, ATTEMPT))
    ]
    return sorted(rows, key=lambda row: row.age)[:most]


def _run_row(place: Place, uri: str) -> ListedRun:
    path, (name, key) = place.find_path(uri), uri.split("/")[-2:]
    try:
        return ListedRun(name, key, path, age_of_run(uri), "complete", score_of(place, uri))
    except AbsentError:
        return ListedRun(
            name, key, path, 0.0, "damaged", problem="one of its files is missing or outside the workspace"
        )
    except (GnnflowError, *NOT_A_RECORD) as error:
        return ListedRun(name, key, path, 0.0, "damaged", problem=str(error))


def score_of(place: Place, run: str) -> str:
    """Return the headline of a run as text; empty without one."""
    find_file(place, run, METRICS)
    record, metrics = _read_record(place, run), read_metrics(run)
    # the facts of training know what `auto` stood for, but a record may name a place anywhere
    trained = is_inside(place, join(record["artifacts"]["train"], MANIFEST))
    metric = metric_of(record) if trained else str(record["config"]["train"]["metric"])
    key = headline_key(metrics, "" if metric == AUTO else metric)
    if key is None:
        return ""
    named = metric_class_of(record) if trained else ""
    return f"{key}{of_class(key, named)} {metric_text(metrics[key])}"


def _read_record(place: Place, run: str) -> dict[str, Any]:
    """Return a run's record, if it and what it takes to list its files lie in the workspace."""
    find_file(place, run, RUN)
    try:
        record = read_run(run)
        listing = str(record["artifacts"].get("infer", place.uri))
    except NOT_A_RECORD as error:
        raise StorageError(f"is not a run's record ({error})", where=join(run, RUN), fix=remedy(run, RUN)) from error
    if "files" not in record and not is_inside(place, listing):
        raise AbsentError
    return record


def list_comparisons(place: Place) -> list[tuple[str, str, float]]:
    """Return name, path and age of each comparison, the latest first."""
    above, found = join(place.uri, "comparisons"), []
    for name in list_names(above):
        for key in list_names(join(above, name)):
            page = join(above, name, key, COMPARISON)
            if is_inside(place, page) and (age := age_of(page)) is not None:
                found.append((name, place.find_path(page), age))
    return sorted(found, key=lambda each: each[2])


def list_compared(place: Place, folder: str) -> list[tuple[str, str]]:
    """Return label and path of the runs of a comparison that are in the workspace."""
    if _COMPARED not in list_names(folder):  # an earlier version did not write it
        return []
    rows = csv.DictReader(io.StringIO(read_page(place, folder, _COMPARED).decode(errors="replace")))
    try:
        found = [(row.get("run") or "", place.find_path(absolute(row.get("uri") or "/"))) for row in rows]
    except csv.Error as error:
        where = join(folder, _COMPARED)
        raise StorageError(f"cannot be read as CSV ({error})", where=where, fix="It is damaged.") from error
    return [(label, path) for label, path in found if _RUN_PATH.fullmatch(path)]


def list_trainings(place: Place) -> list[tuple[str, float]]:
    """Return fingerprint and age of the trainings that have not ended, the latest first."""
    above = join(place.uri, "work", "train")
    found = [
        (name, age)
        for name in list_names(above)
        if is_inside(place, join(above, name)) and (age := age_of(join(above, name, HISTORY))) is not None
    ]
    return sorted(found, key=lambda each: each[1])


def read_training(place: Place, fingerprint: str) -> Training:
    """Return the course of a training from its manifest, or while it runs from its history file."""
    above = join(place.uri, "artifacts", "train")
    if fingerprint in list_names(above) and committed(artifact := join(above, fingerprint)):
        find_file(place, artifact, MANIFEST)
        facts = read_facts(artifact, read_manifest(artifact), TrainFacts)
        return Training("complete", {"train": facts.history}, facts.metric, facts.best_epoch)
    work = join(place.uri, "work", "train")
    if fingerprint not in list_names(work) or HISTORY not in list_names(join(work, fingerprint)):
        return Training("absent")
    return Training("running", _fits(read_page(place, join(work, fingerprint), HISTORY)))


def _fits(content: bytes) -> dict[str, list[dict[str, float]]]:
    """Return the rows of a history file by fit; what is not a figure of an epoch is left out."""
    fits: dict[str, list[dict[str, float]]] = {}
    for line in content.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if not isinstance(row, dict):
            continue
        figures = {key: float(each) for key, each in row.items() if _COLUMN.fullmatch(key) and _is_figure(each)}
        if math.isfinite(figures.get("epoch", math.nan)):
            fits.setdefault(str(row.get("fit", "train")), []).append(figures)
    return fits


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300  # noqa: PLR2004


def predictions_of(place: Place, folder: str) -> tuple[str, ...]:
    """Return the names of a folder's files of predictions. Raises AbsentError without one, or if one lies elsewhere."""
    if exists(join(folder, MANIFEST)):
        find_file(place, folder, MANIFEST)
    else:
        _read_record(place, folder)
    names = prediction_files(folder)
    for name in names:
        find_file(place, folder, name)
    if not names:
        raise AbsentError
    return names
