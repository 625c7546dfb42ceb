"""A run on a card for a notebook: its scores by split, its curves and a link to its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from gnnflow.graph.labels import is_bound
from gnnflow.graph.splits import SPLITS
from gnnflow.report.formats import metric_name, score_text
from gnnflow.report.pictures import Swatch, epoch_curves

# a notebook has its own look, light or dark: text and lines take its colour, and the others are read on both
_STYLE = (
    "--ink:currentColor;--muted:currentColor;--line:currentColor;--grid:#8884;--paper:none;"
    "--accent:#1f86b8;--warm:#d4691a;--quiet:#8795a2;--onaccent:#fff;overflow-wrap:anywhere"
)
_LEFT = 'style="text-align:left;font-weight:normal"'
_OTHERS = ("", "baseline.")


def render_card(
    name: str,
    *,
    metrics: Mapping[str, float],
    metric: str,
    curves: Sequence[Mapping[str, float]],
    best_epoch: int | None,
    report: str,
) -> str:
    """Return a run as HTML. curves: figures of each epoch; report: the path or URL of the run's report."""
    pictures = epoch_curves(curves, metric=metric, best_epoch=best_epoch)
    drawn = "".join(
        f'<div style="flex:1 1 320px;max-width:420px"><b>{escape(picture.title)}</b>{_key(picture.legend)}{picture.svg}'
        "</div>"
        for picture in pictures
        if picture.svg
    )
    place = report if "://" in report else f"file://{report}"
    return (
        f'<div style="{_STYLE}"><p><b>{escape(name)}</b></p>{_table(metrics)}'
        f'<div style="display:flex;flex-wrap:wrap;gap:16px">{drawn}</div>'
        f'<p><a href="{escape(place)}" target="_blank">{escape(report)}</a></p></div>'
    )


def _key(legend: Sequence[Swatch]) -> str:
    marks = (f'<span style="color:var(--{each.role})">{escape(each.label)}</span>' for each in legend)
    return f"<div>{' &middot; '.join(marks)}</div>"


def _table(metrics: Mapping[str, float]) -> str:
    """Return the scores as a table with a column for each split, the baseline's after the model's."""
    present = [split for split in SPLITS if any(key.startswith(f"{split}.") for key in metrics)]
    scored = [key.partition(".")[2] for key in metrics if key.startswith(("valid.", "test.")) and not is_bound(key)]
    rows = [(prefix, name) for prefix in _OTHERS for name in sorted(set(scored))]
    body = ""
    for prefix, name in rows:
        values = [metrics.get(f"{prefix}{split}.{name}") for split in present]
        if any(value is not None for value in values):
            cells = "".join(f"<td>{'' if value is None else score_text(value)}</td>" for value in values)
            body += f"<tr><th {_LEFT}>{escape(metric_name(name))}{' without edges' if prefix else ''}</th>{cells}</tr>"
    head = "".join(f"<th>{split}</th>" for split in present)
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow-x:auto;overflow-wrap:normal">{table}</div>'
