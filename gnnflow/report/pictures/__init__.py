"""The report's pictures, one function each: inputs in, a titled inline SVG with its words out.

Read `canvas.py` first (how a picture is drawn and trimmed), then any of the others. Every function takes the
whole of `ReportInputs` and returns a `Picture`; where what it needs is missing, the picture carries the
reason instead.
"""

from __future__ import annotations

from gnnflow.report.pictures.canvas import Picture, Swatch, Table
from gnnflow.report.pictures.embedding import embedding_map
from gnnflow.report.pictures.graph import blow_up_bars, in_degree_histogram
from gnnflow.report.pictures.pipeline import pipeline_bars
from gnnflow.report.pictures.quality import confusion_of, prediction_picture
from gnnflow.report.pictures.timeline import stage_timeline
from gnnflow.report.pictures.training import baseline_bars, learning_curves

__all__ = [
    "Picture",
    "Swatch",
    "Table",
    "baseline_bars",
    "blow_up_bars",
    "confusion_of",
    "embedding_map",
    "in_degree_histogram",
    "learning_curves",
    "pipeline_bars",
    "prediction_picture",
    "stage_timeline",
]
