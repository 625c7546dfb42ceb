"""Several runs on one page: a picture of the metric that ranks variants, and tables of their figures over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.config.matrix import RunRow
from gnnflow.graph.labels import is_bound, lower_is_better
from gnnflow.report.formats import metric_name, score_text, sentence, signed_text
from gnnflow.report.pictures.canvas import HALF_WIDTH, Picture, Swatch, colour, dots, draw, plain_axes
from gnnflow.report.spread import PairedDifference, Spread, paired_difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BAR_HEIGHT, _LINE_HEIGHT, _MARGIN = 22.0, 13.0, 50.0
_LONGEST_LINE = 52  # letters of a label, which leaves room for a score
_SMALLEST_P = 1e-3


@dataclass(frozen=True)
class ComparedRun:
    """One run: its row in the experiment, its location, and its metrics; or the reason why it did not complete.

    report: the path of its report from the page, "" where the page has no link to it.
    """

    row: RunRow
    uri: str
    metrics: Mapping[str, float]
    failed: str = ""
    report: str = ""


@dataclass(frozen=True)
class ComparedVariant:
    """The runs of one variant, which differ in their seed alone, those that failed included."""

    runs: tuple[ComparedRun, ...]

    @property
    def label(self) -> str:
        """The label of the variant."""
        return self.runs[0].row.variant

    @property
    def keys(self) -> Mapping[str, str]:
        """The values of the keys that vary among variants."""
        return self.runs[0].row.keys

    @property
    def completed(self) -> list[ComparedRun]:
        """The runs that completed, in the experiment's order."""
        return [run for run in self.runs if not run.failed]

    @property
    def seeds_text(self) -> str:
        """The number of seeds behind a mean: '5', or '4 of 5' where one failed."""
        done = len(self.completed)
        return str(done) if done == len(self.runs) else f"{done} of {len(self.runs)}"

    def scores(self, metric: str) -> dict[Any, float]:
        """Return a metric of each seed that has it."""
        return {run.row.seed: run.metrics[metric] for run in self.completed if metric in run.metrics}

    def spread(self, metric: str) -> Spread | None:
        """Return the metric's mean and spread over its seeds, None where no run has it."""
        scores = self.scores(metric)
        return Spread.of(scores.values()) if scores else None


def rank_variants(runs: Sequence[ComparedRun], metric: str) -> list[ComparedVariant]:
    """Return the variants of runs by their mean, best first; those without the metric, by name, are last."""
    held: dict[str, list[ComparedRun]] = {}
    for run in runs:
        held.setdefault(run.row.variant, []).append(run)
    sign = 1 if lower_is_better(metric) else -1

    def place(variant: ComparedVariant) -> tuple[bool, bool, float, str]:
        spread = variant.spread(metric)
        return not variant.completed, spread is None, sign * spread.mean if spread else 0.0, variant.label

    return sorted((ComparedVariant(tuple(own)) for own in held.values()), key=place)


def test_metric(metric: str) -> str:
    """Return the same metric on the test split, which is test_metric and never chooses a variant."""
    return f"test.{metric.partition('.')[2]}"


def choose_columns(runs: Sequence[ComparedRun], metric: str) -> list[str]:
    """Return the ranking metric, then the figures of every run: the same metric on test, other scores, the rest."""
    shared = set.intersection(*(set(run.metrics) for run in runs if not run.failed))
    scores = sorted(key for key in shared if key.startswith(("test.", "valid.")) and not is_bound(key))
    first = [key for key in [test_metric(metric)] if key in shared]
    rest = sorted(key for key in shared if key.endswith(".seconds_per_epoch"))
    return list(dict.fromkeys([metric, *first, *scores, *rest]))


def name_columns(variants: Sequence[ComparedVariant]) -> dict[str, list[str]]:
    """Return the columns that tell variants apart: the keys that vary, or the label where none does."""
    keys = list(variants[0].keys)
    columns = {key: [variant.keys[key] for variant in variants] for key in keys}
    return columns or {"variant": [variant.label for variant in variants]}


def spread_text(spread: Spread | None, *, sign: str = "\N{PLUS-MINUS SIGN}") -> str:
    """Return a mean with the standard deviation after a sign, the mean alone for one seed, "" without.

    The deviation has the mean's decimals, unless these would make zero of it.
    """
    if spread is None:
        return ""
    mean = score_text(spread.mean)
    if spread.deviation is None:
        return mean
    decimals = len(mean.partition(".")[2])
    is_shown = "e" not in mean and 0.5 * 10**-decimals <= spread.deviation < math.inf
    deviation = f"{spread.deviation:,.{decimals}f}" if is_shown else score_text(spread.deviation)
    return f"{mean} {sign} {deviation}"


def compare_best(variants: Sequence[ComparedVariant], metric: str) -> PairedDifference | None:
    """Return the difference of the two best variants, positive where the first is better; None without two scores."""
    if len(variants) == 1:
        return None
    first, second = (variant.scores(metric) for variant in variants[:2])
    return paired_difference(second, first) if lower_is_better(metric) else paired_difference(first, second)


def comparison_bars(variants: Sequence[ComparedVariant], metric: str) -> Picture:
    """Return one bar per variant, the best on top, with the spread over seeds and each seed's score."""
    found = [(variant, spread) for variant in variants if (spread := variant.spread(metric))]
    title = sentence(f"{metric_name(metric)} by variant")
    if not found:
        return Picture(key="variants", title=title, missing=f"No run has {metric}.")
    summary = "; ".join(f"{variant.label} {spread_text(spread)}" for variant, spread in found)
    better = "Lower is better." if lower_is_better(metric) else "Higher is better."
    several = any(spread.count > 1 for _, spread in found)
    legend = (
        Swatch("accent", "area", "mean of the best"),
        Swatch("quiet", "area", "mean of the others"),
        Swatch("ink", "line", "one standard deviation to each side"),
        Swatch("warm", "dot", "one seed"),
    )
    labels = [fill(variant.label, _LONGEST_LINE) for variant, _ in found]
    row = _BAR_HEIGHT + _LINE_HEIGHT * (1 + max(label.count("\n") for label in labels))
    svg = draw(
        "variants",
        partial(_paint, found=found, labels=labels, row=row, metric=metric),
        width=HALF_WIDTH,
        height=_MARGIN + row * len(found),
    )
    return Picture(
        key="variants",
        title=title,
        alt=f"Bars: {summary}.",
        caption=better,
        svg=svg,
        legend=legend if several else (),
    )


def _paint(
    figure: Figure, *, found: Sequence[tuple[ComparedVariant, Spread]], labels: Sequence[str], row: float, metric: str
) -> None:
    """Draw a bar per variant, its label and score on lines above: a long label takes no width from the bars."""
    axes = figure.add_subplot()
    means = np.array([spread.mean for _, spread in found])
    heights = np.arange(len(found) - 1, -1, -1) * row
    axes.barh(heights, means, height=10, color=[colour("accent"), *[colour("quiet")] * (len(found) - 1)])
    above = axes.get_yaxis_transform()
    for height, label, (variant, spread) in zip(heights, labels, found, strict=True):
        axes.text(0, height + 7, label, transform=above, va="bottom")
        axes.text(1, height + 7, spread_text(spread), transform=above, va="bottom", ha="right", fontweight="bold")
        if spread.deviation is None:
            continue
        low, high = spread.mean - spread.deviation, spread.mean + spread.deviation
        axes.plot([low, high], [height, height], color=colour("ink"), linewidth=1.4, solid_capstyle="butt")
        axes.vlines([low, high], height - 3.5, height + 3.5, color=colour("ink"), linewidth=1.4)
        scores = list(variant.scores(metric).values())
        dots(axes, np.column_stack([scores, np.full(len(scores), height - 7.5)]), role="warm", size=4)
    axes.set_yticks([])
    axes.set_ylim(10 - _BAR_HEIGHT, len(found) * row - 5)
    plain_axes(axes, x_label=metric_name(metric), y_label="", grid="x")


def tell_verdict(variants: Sequence[ComparedVariant], metric: str) -> str:
    """Return the best variant with its scores, and whether it differs from the second beyond the noise of seeds.

    Variants are counted that have a score, and runs that failed.
    """
    first, scored = variants[0], [variant for variant in variants if variant.spread(metric)]
    runs = [run for variant in variants for run in variant.runs]
    failed = sum(bool(run.failed) for run in runs)
    lost = f" ({failed} of {len(runs)} runs failed)" if failed else ""
    spread, tested = first.spread(metric), first.spread(test_metric(metric))
    if spread is None:
        return (
            f"No variant is called best of {len(variants)}{lost}: none has a score on a validation split, and test "
            "must not choose."
        )
    mean = "" if spread.deviation is None else "mean "
    behind = [f"standard deviation {score_text(spread.deviation)}"] if spread.deviation is not None else []
    behind += [f"{first.seeds_text} seeds"] if len(first.runs) > 1 else []
    over = f" ({', '.join(behind)})" if behind else ""
    told = f"; {mean}{metric_name(test_metric(metric))} is {score_text(tested.mean)}" if tested else ""
    if len(variants) == 1:
        subject = "One variant"
    elif len(scored) == 1:
        subject = f"Of {len(variants)} variants only {first.label} has a score"
    else:
        subject = f"{first.label} is best of {len(scored)} variants"
    return (
        f"{subject}{lost}: its {mean}{metric_name(metric)} is {score_text(spread.mean)}{over}{told}. "
        f"{_noise(variants, metric)}"
    )


def _noise(variants: Sequence[ComparedVariant], metric: str) -> str:
    """Return in words whether the best variant differs from the second beyond the noise of seeds."""
    if len(variants) == 1 or variants[1].spread(metric) is None:
        return "No other variant has a score to compare with."
    if all(len(variant.runs) == 1 for variant in variants[:2]):
        return "One seed does not show noise: `seeds: 5` in the experiment does."
    second, found = variants[1].label, compare_best(variants, metric)
    if found is None:
        return f"It has fewer than two seeds in common with {second}, so noise cannot be judged."
    if found.low is None or found.high is None or found.p is None:
        return (
            f"It differs from {second} by {signed_text(found.mean)} on each of {found.seeds} seeds, without a spread."
        )
    p = f"p < {_SMALLEST_P:g}" if found.p < _SMALLEST_P else f"p = {found.p:.3f}"
    differs = "differs" if found.beyond_noise else "does not differ"
    low, high = (signed_text(bound) for bound in (found.low, found.high))
    return (
        f"It {differs} from the second, {second}, beyond the noise of seeds: {signed_text(found.mean)} over "
        f"{found.seeds} seeds, 95 % interval {low} to {high} (paired t-test, {p}; plus means better)."
    )


def render_comparison(runs: Sequence[ComparedRun], *, name: str, metric: str) -> str:
    """Return the page: the variants, best first, the runs that failed with their reasons, and every run."""
    from gnnflow.report.render import render_page

    variants, metrics = rank_variants(runs, metric), choose_columns(runs, metric)
    keys = name_columns(variants)
    rows = [
        (
            [column[place] for column in keys.values()],
            [spread_text(variant.spread(key)) for key in metrics],
            variant.seeds_text,
        )
        for place, variant in enumerate(variants)
    ]
    each = [
        (run, [score_text(run.metrics[key]) if key in run.metrics else "" for key in metrics])
        for variant in variants
        for run in variant.completed
    ]
    return render_page(
        "comparison.html.j2",
        name=name,
        picture=comparison_bars(variants, metric),
        verdict=tell_verdict(variants, metric),
        keys=list(keys),
        metrics=metrics,
        rows=rows,
        runs=each,
        failed=[run for run in runs if run.failed],
    )
