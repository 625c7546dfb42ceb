"""The report's pictures: each function takes `ReportInputs` and returns a `Picture`, an inline SVG with its words.

Read `canvas.py` first (drawing and trimming), then any of the others. Where its values are missing, a picture has the
reason instead.
"""

from __future__ import annotations

from gnnflow.report.pictures.canvas import Picture, Swatch, Table
from gnnflow.report.pictures.embedding import embedding_map
from gnnflow.report.pictures.graph import blow_up_bars, in_degree_histogram
from gnnflow.report.pictures.pipeline import pipeline_bars
from gnnflow.report.pictures.quality import confusion_of, prediction_picture
from gnnflow.report.pictures.timeline import stage_timeline
from gnnflow.report.pictures.training import baseline_bars, epoch_curves, learning_curves

__all__ = [
    "Picture",
    "Swatch",
    "Table",
    "baseline_bars",
    "blow_up_bars",
    "confusion_of",
    "embedding_map",
    "epoch_curves",
    "in_degree_histogram",
    "learning_curves",
    "pipeline_bars",
    "prediction_picture",
    "stage_timeline",
]
