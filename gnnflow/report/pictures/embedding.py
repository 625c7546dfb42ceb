"""A map of the embeddings: nodes that are similar to the model are close to each other.

The axes are the two directions in which embeddings differ most (PCA, Pearson 1901), so distances on the map are true as
far as two directions hold them, and the caption says how far. A map by t-SNE took two seconds and
scikit-learn's import two more, of a small run's eight, and its distances between groups meant nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.labels import LABEL_KINDS
from gnnflow.report.formats import count_text, percent_text, short_count
from gnnflow.report.inputs import Array, EmbeddingSample, FloatArray, ReportInputs
from gnnflow.report.pictures.canvas import (
    HALF_WIDTH,
    NUM_CLASS_COLOURS,
    NUM_RAMP_COLOURS,
    Picture,
    Swatch,
    dots,
    draw,
    plain_axes,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_POINTS = 1000
_FEWEST_POINTS = 12
_HEIGHT = 360.0
_FLAT = 2


@dataclass(frozen=True)
class Projection:
    """Points of a map [n, 2], and the share of the embeddings' variance that they hold."""

    points: FloatArray
    share: float


@dataclass(frozen=True)
class _Group:
    label: str
    role: str
    members: Array


def embedding_map(inputs: ReportInputs) -> Picture:
    """Return the 2-D map of up to 1,000 embeddings, coloured by label where nodes have one."""
    kind = inputs.graph.target
    title = f"Map of the embeddings of type {kind}" if kind else "Map of the embeddings"
    sample = inputs.embeddings
    if inputs.task == "edge":
        words = "Edges are scored, and edges have no embeddings for a map."
        return Picture(key="map", title=title, missing=words)
    if sample is None:
        words = "This run kept no embeddings. Set infer.embeddings: true to store them and see their map here."
        return Picture(key="map", title=title, missing=words)
    sample = _usable(sample)
    if len(sample.rows) < _FEWEST_POINTS or not np.ptp(sample.rows, axis=0).any():
        words = "There are too few finite, different embeddings for a map."
        return Picture(key="map", title=title, missing=words)
    places = project(sample.rows)
    points = places.points
    groups = _groups(inputs, labels=sample.labels, num_points=len(points))
    shown = f"{count_text(len(points))} nodes{f' of type {kind}' if kind else ''}"
    return Picture(
        key="map",
        title=title,
        alt=f"Scatter map of {shown} by their embeddings, in {len(groups)} groups of labels.",
        caption=(
            f"PCA of {shown}: the two directions in which their {sample.rows.shape[1]} numbers differ most, with "
            f"{percent_text(places.share)} of the variance. Nodes that differ in another direction lie close here too."
        ),
        svg=draw("map", partial(_paint, points=points, groups=groups), width=HALF_WIDTH, height=_HEIGHT),
        legend=tuple(Swatch(group.role, "dot", group.label) for group in groups),
    )


def project(rows: FloatArray) -> Projection:
    """Return 2-D points for the rows of [n, d] by their two main directions; one sign for each, so deterministic."""
    rows = np.asarray(rows, dtype=np.float64)
    rows = (rows - rows.mean(axis=0)) / rows.std()
    # variances, ascending [d], and their directions [d, d]
    variances, directions = np.linalg.eigh(rows.T @ rows)
    main = directions[:, ::-1][:, :_FLAT]
    # a direction has no sign: its largest number is positive
    largest = main[np.abs(main).argmax(axis=0), np.arange(main.shape[1])]
    points = rows @ (main * np.sign(largest))
    share = variances[::-1][:_FLAT].sum() / variances.sum()
    return Projection(np.pad(points, ((0, 0), (0, _FLAT - main.shape[1]))), float(share))


def _usable(sample: EmbeddingSample) -> EmbeddingSample:
    """Drop rows that are not finite and keep at most MOST_POINTS, chosen by a fixed seed."""
    rows = np.asarray(sample.rows)
    kept = np.flatnonzero(np.isfinite(rows).all(axis=1))
    if len(kept) > MOST_POINTS:
        kept = np.sort(np.random.default_rng(0).permutation(kept)[:MOST_POINTS])
    labels = None if sample.labels is None else np.asarray(sample.labels)[kept]
    return EmbeddingSample(rows[kept], labels)


def _groups(inputs: ReportInputs, *, labels: Array | None, num_points: int) -> tuple[_Group, ...]:
    if labels is None or labels.ndim > 1:
        everyone = "a node" if labels is None else "a node (several labels each, so no colours)"
        return (_Group(everyone, "accent", np.ones(num_points, dtype=bool)),)
    if LABEL_KINDS[inputs.label_kind].has_classes:
        return _class_groups(inputs, labels=labels.astype(np.int64))
    return _value_groups(labels.astype(float))


def _class_groups(inputs: ReportInputs, *, labels: Array) -> tuple[_Group, ...]:
    """Return a colour for each of the most frequent classes, and grey for others and for nodes without a label."""
    values, counts = np.unique(labels[labels >= 0], return_counts=True)
    common = np.sort(values[np.argsort(-counts, kind="stable")[:NUM_CLASS_COLOURS]])
    groups = [
        _Group(inputs.class_name(int(value)), f"class{index}", labels == value) for index, value in enumerate(common)
    ]
    others = ~np.isin(labels, common)
    if others.any():
        groups.insert(0, _Group("other or none", "quiet", others))
    return tuple(groups)


def _value_groups(values: FloatArray) -> tuple[_Group, ...]:
    """Return five shades for five equally large groups of values, from low to high."""
    known = np.isfinite(values)
    if not known.any():
        return (_Group("no value", "quiet", ~known),)
    # bounds of the groups, then the group of each value [n]
    edges = np.unique(np.quantile(values[known], np.linspace(0, 1, NUM_RAMP_COLOURS + 1)))
    bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(len(edges) - 2, 0))
    groups = [] if known.all() else [_Group("no value", "quiet", ~known)]
    for index in range(max(len(edges) - 1, 1)):
        low, high = float(edges[index]), float(edges[min(index + 1, len(edges) - 1)])
        label = f"{short_count(low)} to {short_count(high)}"
        groups.append(_Group(label, f"ramp{index}", known & (bins == index)))
    return tuple(groups)


def _paint(figure: Figure, *, points: FloatArray, groups: Sequence[_Group]) -> None:
    axes = figure.add_subplot()
    plain_axes(axes, x_label="first direction (no unit)", y_label="second direction (no unit)", grid="")
    size = 3.4 if len(points) > MOST_POINTS // 4 else 5.0
    for group in groups:
        if len(points[group.members]):
            dots(axes, points[group.members], role=group.role, size=size, alpha=0.85)
    axes.autoscale_view()
    axes.margins(0.04)
    axes.set_xticks([])
    axes.set_yticks([])
