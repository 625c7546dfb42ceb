"""The report: one self-contained HTML page from plain values, which says how good a model is.

Read `inputs.py` first (the values of a report), then `render.py` (the page), `pictures/` and `hints.py` (advice).
Nothing here reads storage or imports torch; a stage fills `ReportInputs` and writes the result of `render_report`.
matplotlib, scikit-learn and jinja2 are imported when a report is rendered.
"""

from __future__ import annotations

from gnnflow.report.inputs import (
    BlowUp,
    EmbeddingSample,
    GraphSummary,
    Parity,
    PredictionSample,
    RelationRow,
    ReportInputs,
    RoundRow,
    StageRow,
    TypeRow,
)
from gnnflow.report.render import render_report

__all__ = [
    "BlowUp",
    "EmbeddingSample",
    "GraphSummary",
    "Parity",
    "PredictionSample",
    "RelationRow",
    "ReportInputs",
    "RoundRow",
    "StageRow",
    "TypeRow",
    "render_report",
]
