"""A scoring on one page: its metrics and the model's own, the drift in words, and the place of the predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DriftRow:
    """A distribution that was compared: its name, with what, its index, what chance gives, and the verdict in words."""

    name: str
    against: str
    psi: float
    chance: float
    verdict: str


@dataclass(frozen=True)
class ScoringInputs:
    """The content of a scoring's page.

    metrics: of these tables, by key such as `score.accuracy`, with bounds; before: values of the scoring
    `metrics_against`, each with the reason if the two cannot be compared; own: of the model's run, as `test.accuracy`.
    metric_class: see `TrainFacts`. unmeasured: the reason where there are no metrics. classes: the share of each
    predicted class, with the share before, if there was one. decided: the size of the decided list and its rule;
    decided_before: shares of the scoring before, by class; decided_why_not: the reason where these cannot be compared.
    facts: of the scored column, by name. links: to the `predictions` and the model's `report`, where they are in the
    page's workspace.
    """

    model: str
    at: str
    verdict: str
    rows: int
    labelled: int
    headline: str
    against: str
    predictions: str
    report: str
    tables: Mapping[str, str]
    links: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    before: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    metrics_against: str = ""
    own: Mapping[str, float] = field(default_factory=dict)
    metric_class: str = ""
    unmeasured: str = ""
    notes: Sequence[str] = ()
    classes: Mapping[str, tuple[float, float | None]] = field(default_factory=dict)
    decided: str = ""
    decided_before: Sequence[tuple[str, float]] = ()
    decided_why_not: str = ""
    scored: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    drift: Sequence[DriftRow] = ()
    columns_compared: int = 0
    columns_shifted: int = 0
    columns_unsure: int = 0


def render_scoring(inputs: ScoringInputs) -> str:
    """Return the page, which loads nothing; equal inputs give equal bytes."""
    from gnnflow.graph.labels import is_bound, of_class
    from gnnflow.report.formats import metric_name, score_cell, sentence
    from gnnflow.report.render import render_page

    keys = [key for key in inputs.metrics if not is_bound(key)]
    names = [key.partition(".")[2] for key in sorted(keys, key=lambda key: (key != inputs.headline, key))]
    rows = [
        (
            sentence(metric_name(name) + of_class(name, inputs.metric_class)),
            score_cell(inputs.metrics, f"score.{name}"),
            _before(inputs, f"score.{name}"),
            score_cell(inputs.own, f"test.{name}"),
        )
        for name in names
    ]
    return render_page("scoring.html.j2", inputs=inputs, rows=rows)


def _before(inputs: ScoringInputs, key: str) -> str:
    """Return a metric of the scoring before as a cell, with the reason where the two cannot be compared."""
    from gnnflow.report.formats import score_text

    if key not in inputs.before:
        return ""
    value, why = inputs.before[key]
    return f"{score_text(value)} (not comparable: {why})" if why else score_text(value)
