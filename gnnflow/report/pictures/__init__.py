"""The report's pictures: each function takes `ReportInputs` and returns a `Picture`, an inline SVG with its words.

Read `canvas.py` first (drawing and trimming), then any of the others. Where its values are missing, a picture has the
reason instead.
"""

from __future__ import annotations

from gnnflow.report.pictures.canvas import Picture, Swatch, Table
from gnnflow.report.pictures.classes import class_table_of
from gnnflow.report.pictures.confusion import confusion_of
from gnnflow.report.pictures.decisions import gains_text
from gnnflow.report.pictures.embedding import embedding_map
from gnnflow.report.pictures.graph import blow_up_bars, in_degree_histogram
from gnnflow.report.pictures.groups import column_bars, degree_bars, method_bars, value_bars
from gnnflow.report.pictures.pipeline import pipeline_bars
from gnnflow.report.pictures.quality import prediction_pictures
from gnnflow.report.pictures.timeline import stage_timeline
from gnnflow.report.pictures.training import epoch_curves, learning_curves

__all__ = [
    "Picture",
    "Swatch",
    "Table",
    "blow_up_bars",
    "class_table_of",
    "column_bars",
    "confusion_of",
    "degree_bars",
    "embedding_map",
    "epoch_curves",
    "gains_text",
    "in_degree_histogram",
    "learning_curves",
    "method_bars",
    "pipeline_bars",
    "prediction_pictures",
    "stage_timeline",
    "value_bars",
]
