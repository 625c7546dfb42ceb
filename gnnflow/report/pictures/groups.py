"""Bars of one figure per row: methods by their score, groups of targets, and columns by their importance."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gnnflow.graph.labels import lower_is_better
from gnnflow.graph.score_facts import ScoreFacts, ScoreGroup
from gnnflow.report.formats import count_text, score_text, sentence, short_count
from gnnflow.report.inputs import ReportInputs
from gnnflow.report.judging import FEWEST, FEWEST_OF_CLASS, NO_EDGES, baseline_name
from gnnflow.report.pictures.bars import Bar, draw_bars
from gnnflow.report.pictures.canvas import Picture, Table

_MOST_COLUMNS = 12


def method_bars(inputs: ReportInputs) -> Picture:
    """Return the headline's score of the model and of every baseline, the best first."""
    key, title = inputs.headline_key, "This model and simpler ways"
    held = {name: each[key] for name, each in inputs.every_baseline.items() if key is not None and key in each}
    held = {name: value for name, value in held.items() if math.isfinite(value)}
    if key is None or not held:
        words = (
            "This run scored nothing else, so nothing says whether the model is worth its cost. Set "
            "train.baselines: all, and train.baseline: true for the same classifier without edges."
        )
        return Picture(key="baseline", title=title, missing=words)
    score = inputs.metrics[key]
    bars = [Bar("this model", score, score_text(score), spread=_bounds(inputs, key))]
    bars += [Bar(_short_name(name, key), value, score_text(value), "quiet") for name, value in held.items()]
    lower = lower_is_better(key)
    bars.sort(key=lambda bar: bar.value if lower else -bar.value)
    better = "Lower is better." if lower else "Higher is better."
    noise = " The thin line is the score's 95 % interval." if bars[0].spread or any(bar.spread for bar in bars) else ""
    summary = ", ".join(f"{bar.name} {score_text(bar.value)}" for bar in bars)
    return Picture(
        key="baseline",
        title=f"{sentence(inputs.metric_name(key))} of {title[0].lower()}{title[1:]}",
        alt=f"Bars of {inputs.metric_name(key)}: {summary}.",
        caption=f"{better}{noise}",
        svg=draw_bars("baseline", bars, label=inputs.metric_name(key)),
    )


def _short_name(name: str, key: str) -> str:
    return "without edges" if name == NO_EDGES else baseline_name(name, key)


def _bounds(inputs: ReportInputs, key: str) -> tuple[float, float] | None:
    low, high = (inputs.metrics.get(f"{key}{side}", math.nan) for side in ("_low", "_high"))
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def degree_bars(inputs: ReportInputs) -> Picture:
    """Return the metric over groups of targets by in-degree; for links, by the popularity of the node they lead to."""
    links = inputs.label_kind == "link"
    title = "By popularity" if links else "By number of in-edges"
    scores = inputs.scores
    groups = _known(scores, "")
    if scores is None or not groups:
        words = "Training stored no groups of targets: an earlier version trained the model, or no target has a label."
        return Picture(key="groups", title=title, missing=words)
    name, noun = inputs.metric_name(scores.metric), "links to nodes with" if links else "targets with"
    lower, few = lower_is_better(scores.metric), _Few(inputs, groups)
    bars = [few.bar(f"{_range(each.low, each.high)} in-edges", each) for each in groups]
    worst = few.worst(lower=lower)
    told = worst is not None and (
        f"{sentence(name)} is {'highest' if lower else 'lowest'}, {score_text(worst.score or 0.0)}, for the "
        f"{count_text(worst.targets)} {scores.split} {noun} {_range(worst.low, worst.high)} in-edges."
    )
    better = f"{'Lower' if lower else 'Higher'} is better."
    caption = " ".join(each for each in (told, better, few.warning) if each)
    head = ("in-edges", "links" if links else "targets", *few.head, name)
    rows = [few.row(_range(each.low, each.high), each) for each in groups]
    return Picture(
        key="groups",
        title=f"{sentence(name)} {title[0].lower()}{title[1:]}",
        alt=f"Bars of {name} in {len(groups)} groups. {caption}",
        caption=caption,
        svg=draw_bars("groups", bars, label=name),
        table=Table(summary="Groups in figures", head=head, rows=rows),
    )


def value_bars(inputs: ReportInputs) -> tuple[Picture, ...]:
    """Return the metric by the values of categorical columns, a picture for each column."""
    scores = inputs.scores
    columns = dict.fromkeys(each.column for each in scores.groups if each.column) if scores is not None else {}
    return tuple(
        _value_picture(inputs, scores, column, number)
        for number, column in enumerate(columns)
        if scores is not None and _known(scores, column)
    )


def _value_picture(inputs: ReportInputs, scores: ScoreFacts, column: str, number: int) -> Picture:
    groups, name = _known(scores, column), inputs.metric_name(scores.metric)
    lower, few = lower_is_better(scores.metric), _Few(inputs, groups)
    worst = few.worst(lower=lower)
    told = worst is not None and (
        f"{sentence(name)} is {'highest' if lower else 'lowest'}, {score_text(worst.score or 0.0)}, where {column} is "
        f"{worst.value} ({count_text(worst.targets)} {scores.split} targets)."
    )
    caption = " ".join(each for each in (told, few.warning) if each)
    key = f"values-{number}"
    bars = [few.bar(each.value, each) for each in groups]
    rows = [few.row(each.value, each) for each in groups]
    return Picture(
        key=key,
        title=f"{sentence(name)} by {column}",
        alt=f"Bars of {name} by {column}. {caption}",
        caption=caption,
        svg=draw_bars(key, bars, label=name),
        table=Table(summary="Groups in figures", head=(column, "targets", *few.head, name), rows=rows),
    )


class _Few:
    """Tells which groups of a picture have too few targets, or too few of the rare class of their metric."""

    def __init__(self, inputs: ReportInputs, groups: Sequence[ScoreGroup]) -> None:
        rare = inputs.scores.rare if inputs.scores is not None else None
        self._of = "" if rare is None else f" of class {inputs.class_name(rare)}"
        self._fewest = FEWEST if rare is None else FEWEST_OF_CLASS
        self._others = [each for each in groups if not self._is_few(each)]
        self._are_few = len(self._others) < len(groups)

    def worst(self, *, lower: bool) -> ScoreGroup | None:
        """Return the worst of the other groups, where lower scores are better or not; None where there is none."""
        return (max if lower else min)(self._others, key=lambda each: each.score or 0.0, default=None)

    @property
    def warning(self) -> str:
        """The sentence of a caption about these groups; empty where there are none."""
        if not self._are_few:
            return ""
        which = "Grey bars stand" if self._others else "Every bar stands"
        return f"{which} on fewer than {self._fewest} targets{self._of}, too few to tell groups apart."

    @property
    def head(self) -> tuple[str, ...]:
        """The head of the column that counts the rare class, if any."""
        return (self._of.strip(),) if self._of else ()

    def bar(self, name: str, group: ScoreGroup) -> Bar:
        """Return a group's bar, with the number of targets that it stands on where they are too few."""
        text = score_text(group.score or 0.0)
        if self._is_few(group):
            count = f"{count_text(self._count(group))}{self._of or ' targets'}"
            return Bar(name, group.score or 0.0, f"{text} ({count})", "quiet")
        return Bar(name, group.score or 0.0, text)

    def row(self, name: str, group: ScoreGroup) -> tuple[str, ...]:
        """Return a group's figures."""
        of_rare = (count_text(self._count(group)),) if self._of else ()
        return (name, count_text(group.targets), *of_rare, score_text(group.score or 0.0))

    def _count(self, group: ScoreGroup) -> int:
        return group.targets if group.of_rare is None else group.of_rare

    def _is_few(self, group: ScoreGroup) -> bool:
        return self._count(group) < self._fewest


def _known(scores: ScoreFacts | None, column: str) -> list[ScoreGroup]:
    """Return the groups of a column that have a score; of in-degrees where the column is empty."""
    groups = () if scores is None else scores.groups
    return [each for each in groups if each.column == column and each.score is not None]


def _range(low: int, high: int) -> str:
    return short_count(low) if low == high else f"{short_count(low)} to {short_count(high)}"


def column_bars(inputs: ReportInputs) -> Picture:
    """Return the importance of columns: the loss of score when one column's values are exchanged at random."""
    title, found = "Columns that matter", inputs.columns
    if found is None or not found.columns:
        words = found.why if found is not None and found.why else "The importance of columns was not measured"
        return Picture(key="columns", title=title, missing=f"{sentence(words)}.")
    shown = found.columns[:_MOST_COLUMNS]
    bars = [
        Bar(
            each.column,
            each.drop,
            score_text(each.drop),
            spread=(each.drop - each.deviation, each.drop + each.deviation),
        )
        for each in shown
    ]
    name, first = inputs.metric_name(found.metric), shown[0]
    everywhere = inputs.metrics.get(f"valid.{found.metric}")
    of_all = "" if everywhere is None else f"; on all of valid it is {score_text(everywhere)}"
    caption = (
        f"How much worse {name} gets when the values of one column are exchanged at random among "
        f"{count_text(found.targets)} valid targets and their neighbours, {found.repeats} times; the thin line is one "
        f"standard deviation. On these targets {name} is {score_text(found.score)}{of_all}. Columns that say the same "
        "share their importance."
    )
    if found.left_out:
        caption += f" {count_text(found.left_out)} more columns were not tried."
    return Picture(
        key="columns",
        title=title,
        alt=f"Bars of the importance of {len(shown)} columns, {first.column} first with {score_text(first.drop)}.",
        caption=caption,
        svg=draw_bars("columns", bars, label=f"loss of {name}"),
        table=Table(
            summary="Columns in figures",
            head=("column", f"loss of {name}", "standard deviation"),
            rows=[(each.column, score_text(each.drop), score_text(each.deviation)) for each in found.columns],
        ),
    )
