"""The report of a scoring: a page in the folder of its record, made from that and the version that scored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow import registry
from gnnflow.report.scoring import DriftRow, ScoringInputs, render_scoring
from gnnflow.stages.report import report_of
from gnnflow.stages.score_drift import ScoreDrift
from gnnflow.stages.score_figures import Figures
from gnnflow.storage.filesystem import absolute, exists
from gnnflow.storage.workspace import Workspace
from gnnflow.storage.writing import write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gnnflow.registry import ScoreRecord, Version

_UNLABELLED = "the tables have no labels, so nobody can say here how good these predictions are"


def report_at(named: str, *, workspace: str) -> str:
    """Return the path of a report, which is made where it is missing.

    named: a scoring as `registry.find_scoring` reads it, NAME@champion or a folder of predictions; or a run. Raises
    StorageError if there is no such run, RegistryError for a version without a scoring.
    """
    record = registry.find_scoring(named, workspace=workspace)
    if record is None:
        return report_of(named, workspace=workspace)
    return page_of(record, registry.read_version(Workspace.of(record.folder).uri, record.name, record.version))


def page_of(record: ScoreRecord, version: Version) -> str:
    """Return the path of a scoring's page, which is written where it is missing."""
    workspace = Workspace.of(version.uri)
    where = record.page_in(workspace.uri)
    if not exists(where):
        targets = {"predictions": absolute(record.predictions), "report": absolute(version.report)}
        found = {name: workspace.link(uri, folder=where.rpartition("/")[0]) for name, uri in targets.items()}
        links = {name: link for name, link in found.items() if link}
        write_atomic(where, render_scoring(_inputs(record, version, links)).encode())
    return where


def _inputs(record: ScoreRecord, version: Version, links: Mapping[str, str]) -> ScoringInputs:
    figures, drift = Figures.read(record.figures), ScoreDrift.read(record.drift) if record.drift else None
    shares = {name: count / max(figures.rows, 1) for name, count in figures.counts.items()}
    before = {} if drift is None else drift.shares
    facts = {} if figures.mean is None else {"mean": figures.mean, **figures.spread}
    no_metric = figures.notes[0] if figures.notes else _UNLABELLED
    return ScoringInputs(
        model=f"{record.name}, version {record.version}",
        at=record.at,
        verdict="nothing was scored before, so there is nothing to compare with"
        if drift is None
        else drift.verdict(figures.headline),
        rows=figures.rows,
        labelled=figures.labelled,
        headline=figures.headline,
        against="" if drift is None else drift.against,
        metrics_against="" if drift is None else drift.metrics_against or drift.against,
        predictions=absolute(record.predictions),
        report=absolute(version.report),
        tables=registry.list_tables(record.tables),
        links=links,
        metrics=figures.metrics,
        before={} if drift is None else {each.name: (each.before, each.why_not) for each in drift.changes},
        own=version.metrics,
        metric_class=figures.metric_class,
        unmeasured="" if figures.metrics else no_metric,
        notes=figures.notes if figures.metrics else figures.notes[1:],
        classes={
            name: (shares[name], before[name][0] if name in before else None)
            for name in sorted(shares, key=lambda each: (-shares[each], each))
        },
        decided=figures.decided_text if figures.rule else "",
        decided_before=() if drift is None else tuple((name, before) for name, (before, _) in drift.decided.items()),
        decided_why_not="" if drift is None else drift.decided_why_not,
        scored=figures.scored,
        facts={name: f"{value:.4g}" for name, value in facts.items()},
        drift=() if drift is None else (*_drift_rows(drift),),
        columns_compared=0 if drift is None else drift.columns_compared,
        columns_shifted=0 if drift is None else drift.columns_shifted,
        columns_unsure=0 if drift is None else drift.columns_unsure,
    )


def _drift_rows(drift: ScoreDrift) -> Iterator[DriftRow]:
    for against, shifts in (("the scoring before", drift.scores), ("the tables of training", drift.most_moved)):
        for name, shift in shifts:
            yield DriftRow(name, against, shift.psi, shift.chance, shift.verdict)
