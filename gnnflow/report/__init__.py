"""The report: one self-contained HTML page from plain values, that says how good a model is.

Read `inputs.py` first (what a report is made of), then `render.py` (how the page is laid out), `pictures/`
(what is drawn) and `hints.py` (what is advised). Nothing here reads storage or imports torch; a stage fills
`ReportInputs` and writes what `render_report` returns. matplotlib, scikit-learn and jinja2 are imported when
a report is rendered.
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
