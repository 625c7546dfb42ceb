"""A stage's outcome as Airflow may keep it: URIs, counts and short text, never data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnnflow.stages.base import StageResult
    from gnnflow.stages.guards import GuardReport
    from gnnflow.stages.pipeline import RunResult
    from gnnflow.stages.publish import PublishResult
    from gnnflow.stages.score import ScoreResult


def outcome_of(result: Any) -> dict[str, Any]:
    """Return the outcome of a stage, a whole run, a publication, a scoring or a check of the guards."""
    if hasattr(result, "manifest"):
        return _stage(result)
    if hasattr(result, "stages"):
        return _run(result)
    if hasattr(result, "predictions"):
        return _publication(result) if hasattr(result, "promoted") else _scores(result)
    return _guards(result)


def _stage(result: StageResult) -> dict[str, Any]:
    manifest = result.manifest
    return {
        "artifact": result.artifact,
        "manifest": result.manifest_uri,
        "digest": result.digest,
        "reused": result.reused,
        "seconds": round(result.seconds, 3),
        "rows_in": manifest.rows_in,
        "rows_out": manifest.rows_out,
        "rows_quarantined": manifest.rows_quarantined,
    }


def _run(result: RunResult) -> dict[str, Any]:
    return {
        "run": result.uri,
        "predictions": result.predictions,
        "report": result.report,
        "rows_out": result.stages["infer"].manifest.rows_out,
        "metrics": {key: value for key, value in result.metrics.items() if key.startswith(("test.", "valid."))},
    }


def _publication(result: PublishResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "version": result.version,
        "uri": result.uri,
        "promoted": result.promoted,
        "in_service": result.in_service,
        "reason": result.reason,
        "run": result.run,
    }


def _scores(result: ScoreResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "version": result.version,
        "predictions": result.predictions,
        "rows_out": result.rows,
        "reused": result.reused,
    }


def _guards(result: GuardReport) -> dict[str, Any]:
    worst = result.worst_column
    return {
        "previous": result.previous,
        "columns_compared": sum(name.startswith("psi.") for name in result.figures),
        "worst_column": worst[0] if worst else "",
        "worst_psi": round(worst[1], 4) if worst else 0.0,
    }
