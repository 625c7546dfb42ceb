"""Reads a run's folder: its record, which lists its files, and the metrics.

    runs/<name>/<fingerprint>/run.json, metrics.json, predictions/*.parquet, report.html, audit.json

The record is written last, is the run's commit, and says when the run was completed. The run's artifacts can make the
listed files again. The findings of an audit are not listed: they are made later, by whoever asks for them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from gnnflow.graph.errors import StorageError
from gnnflow.graph.labels import AUTO
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.storage.documents import read_document, write_document
from gnnflow.storage.filesystem import absolute, age_of, exists, join, list_names, read_json
from gnnflow.storage.manifest import read_facts, read_manifest
from gnnflow.storage.tables import read_artifact_table
from gnnflow.storage.verified import check_file, entries_of, is_whole, read_verified, remedy
from gnnflow.storage.workspace import MANIFEST, RUN, Workspace
from gnnflow.storage.writing import FileEntry

METRICS = "metrics.json"
REPORT = "report.html"
AUDIT = "audit.json"
PREDICTIONS = "predictions"
_AT = "at"
_KEYS = {"name", "config", "store", "artifacts"}


def latest_run(workspace: Workspace, name: str) -> str | None:
    """Return the last completed run of a name, None where there is none. Raises StorageError for a damaged pointer."""
    where = workspace.latest(name)
    if not exists(where):
        return None
    fix = "It is damaged: `gnnflow run CONFIG` writes it again."
    held = read_json(where, fix=fix)
    if not isinstance(held, dict) or not isinstance(held.get("run"), str):
        raise StorageError("does not name a run", where=where, fix=fix)
    return workspace.now_at(str(held["run"]))


def list_runs(workspace: Workspace) -> list[str]:
    """Return the folders of a workspace's completed runs, the latest last."""
    above = join(workspace.uri, "runs")
    found = [join(above, name, each) for name in list_names(above) for each in list_names(join(above, name))]
    ages = {uri: age_of_run(uri) for uri in found if exists(join(uri, RUN))}
    return sorted(ages, key=lambda uri: (-ages[uri], uri))


def age_of_run(run: str) -> float:
    """Return the seconds since a run was completed; 0 where its store has no times."""
    at = completed_at(run)
    return 0.0 if at is None else (datetime.now(UTC) - at).total_seconds()


def completed_at(run: str) -> datetime | None:
    """Return the time when a run was completed; None for a new run, or where its store has no times.

    The record holds it, since a record is written again with a lost file of the run. Where an earlier version wrote the
    record, or it is damaged, it is the file's time.
    """
    with suppress(StorageError, KeyError, TypeError, ValueError, OverflowError):  # of a year that UTC does not have
        return datetime.fromisoformat(read_run(run)[_AT]).astimezone(UTC)
    age = age_of(join(run, RUN))
    return None if age is None else datetime.now(UTC) - timedelta(seconds=age)


def write_record(run: str, record: Mapping[str, Any], files: Sequence[FileEntry]) -> None:
    """Commit a run by its record, again with the time of its first completion where a file was made again."""
    at = completed_at(run) or datetime.now(UTC)
    write_document(join(run, RUN), {**record, _AT: at.isoformat(), "files": [asdict(entry) for entry in files]})


def read_predictions(folder: str) -> pa.Table:
    """Return the predictions of a run, or of the artifact of a scoring. Raises StorageError for a damaged file."""
    return pa.concat_tables([read_artifact_table(folder, name) for name in prediction_files(folder)])


def prediction_files(folder: str) -> tuple[str, ...]:
    """Return the names of the files of predictions in a run's folder, or in the artifact of a scoring."""
    whole = exists(join(folder, MANIFEST))
    files = read_manifest(folder).files if whole else files_of(folder, read_run(folder))
    return tuple(each.name for each in files if each.name.startswith(f"{PREDICTIONS}/"))


def find_run(run: str, *, workspace: Workspace) -> str:
    """Return a run's folder. run: a URI, or a name in the workspace. Raises StorageError where there is no such run."""
    uri = join(absolute(run))
    if exists(join(uri, RUN)):
        return uri
    latest = latest_run(workspace, run)
    if latest is None:
        of_config = "This is a config and not a run. " if run.endswith((".yaml", ".yml", ".json")) else ""
        raise StorageError(
            "no such run",
            where=run,
            fix=f"{of_config}Give a run's folder, the name of a completed run (`gnnflow runs` lists them), or "
            "NAME@champion of a published model.",
        )
    return latest


def read_run(run: str) -> dict[str, Any]:
    """Return a run's record with its artifacts where they lie now. Raises StorageError for a missing or damaged one."""
    where, fix = join(run, RUN), remedy(run, RUN)
    if not exists(where):
        raise StorageError("this run is not complete", where=run, fix="Run `gnnflow run CONFIG` first.")
    record = read_document(where, fix=fix)
    if missing := _KEYS - record.keys():
        raise StorageError(f"is not a run's record: it lacks {', '.join(sorted(missing))}", where=where, fix=fix)
    own = join(absolute(run)).rsplit("/", 1)[1]
    if record.get("run", own) != own:  # an earlier version did not name the run
        raise StorageError(f"is the record of run {record['run']}", where=where, fix=fix)
    artifacts = record["artifacts"]
    if not isinstance(artifacts, dict) or not all(isinstance(each, str) for each in artifacts.values()):
        raise StorageError("is not a run's record: its artifacts are no folders by stage", where=where, fix=fix)
    home = Workspace.of(run)
    return {**record, "artifacts": {stage: home.now_at(artifact) for stage, artifact in artifacts.items()}}


def read_metrics(run: str) -> dict[str, float]:
    """Return a run's metrics. Raises StorageError where the file is missing or not as the record lists it."""
    where, fix = join(run, METRICS), remedy(run, RUN)
    listed = {entry.name for entry in files_of(run, read_run(run))}
    try:
        held = json.loads(read_verified(run, METRICS)) if METRICS in listed else read_json(where)
    except ValueError as error:
        raise StorageError(f"not valid JSON ({error})", where=where, fix=fix) from error
    if not isinstance(held, dict):
        raise StorageError("does not hold metrics", where=where, fix=fix)
    return held


def metric_of(record: dict[str, Any]) -> str:
    """Return the metric that chose a run's best epoch: the facts have the one that `auto` stood for."""
    metric: str = record["config"]["train"]["metric"]
    if metric != AUTO:
        return metric
    trained = record["artifacts"]["train"]
    return read_facts(trained, read_manifest(trained), TrainFacts).metric


def metric_class_of(record: dict[str, Any]) -> str:
    """Return the class that areas under curves of a run are of, where its config names one; empty otherwise."""
    decide = record["config"].get("task", {}).get("decide")
    if not isinstance(decide, Mapping) or decide.get("positive") is None:
        return ""
    trained = record["artifacts"]["train"]
    return read_facts(trained, read_manifest(trained), TrainFacts).metric_class


def files_of(run: str, record: dict[str, Any]) -> tuple[FileEntry, ...]:
    """Return the files in a run's record, or its predictions where an earlier version listed none."""
    if "files" in record:
        return entries_of(record["files"], where=join(run, RUN), fix=remedy(run, RUN))
    if "infer" not in record["artifacts"]:
        return ()
    listed = read_manifest(record["artifacts"]["infer"]).files
    return tuple(entry for entry in listed if entry.name.startswith(f"{PREDICTIONS}/"))


def damaged_files(run: str) -> tuple[str, ...]:
    """Return the files of a completed run, its record included, that are missing or differ from the record."""
    try:
        files = files_of(run, read_run(run))
    except StorageError:
        return (RUN,)
    return tuple(entry.name for entry in files if not is_whole(run, entry))


def check_run(run: str) -> None:
    """Raise StorageError for the first file of a completed run that is missing or differs from the record."""
    record = read_run(run)
    for entry in files_of(run, record):
        if "files" in record:
            check_file(run, entry.name)
        elif not is_whole(run, entry):
            fix = remedy(run, RUN)
            raise StorageError("is gone, or not what the run wrote", where=join(run, entry.name), fix=fix)
