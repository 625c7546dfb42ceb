"""The drift of predictions from earlier ones: metrics, predicted classes and scores, and the columns that explain them.

Distributions are compared by the population stability index that guards use: predictions with the scoring before, the
columns of nodes with the tables that the model was trained on. A metric that fell where neither shifted is the sign
that the same columns now go with other labels, so both are told together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.graph.errors import listed
from gnnflow.graph.labels import BOUNDS, is_bound, lower_is_better, metric_text
from gnnflow.ingest.statistics import class_drift, drift_of
from gnnflow.stages.score_figures import Figures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gnnflow.ingest.statistics import Drift

SHIFTED = 0.25
"""The index of a shift by custom; the default of `guards.psi`."""
_SHOWN = 5  # classes and columns that are printed
_MOST_COLUMNS = 20  # columns that a record keeps


@dataclass(frozen=True)
class Change:
    """A metric now and before, and whether the difference is larger than the noise of both; None: it is not known.

    of_other_classes: whether it is a mean over other classes than before, so that the two cannot be compared.
    """

    name: str
    now: float
    before: float
    beyond_noise: bool | None
    of_other_classes: bool = False

    @property
    def text(self) -> str:
        """The change as half a sentence."""
        if self.of_other_classes:
            now, before = metric_text(self.now), metric_text(self.before)
            return f"{self.name} {now}, {before} before, as a mean over other classes"
        if self.now == self.before:
            return f"{self.name} {metric_text(self.now)}, the same before"
        noise = {True: ", more than noise", False: ", which may be noise", None: ""}[self.beyond_noise]
        return f"{self.name} {metric_text(self.now)}, {metric_text(self.before)} before{noise}"

    @property
    def is_worse(self) -> bool:
        """True if the metric got worse, unless that may be noise; where noise is not known any loss counts."""
        loss = self.now - self.before if lower_is_better(self.name) else self.before - self.now
        return loss > 0 and self.beyond_noise is not False and not self.of_other_classes


@dataclass(frozen=True)
class Shift:
    """The population stability index of a distribution, and how much of it chance alone gives."""

    psi: float
    chance: float

    @property
    def is_shift(self) -> bool:
        """True if the distribution shifted, by custom and beyond chance."""
        return self.psi > SHIFTED + self.chance

    @property
    def text(self) -> str:
        """The shift as half a sentence."""
        verdict = "shifted" if self.is_shift else "did not shift"
        return f"{verdict}: PSI {self.psi:.3g} (a shift from {SHIFTED + self.chance:.3g} on)"


@dataclass(frozen=True)
class ScoreDrift:
    """The difference of predictions from earlier ones.

    against: the earlier ones, in words. indices: the population stability index of predicted classes and of scores,
    each with how much of it chance gives. shares: of the predicted classes before and now. changes: of metrics, the
    headline's first if it has one. columns: as indices, of the columns of nodes that moved most from the tables of
    training; columns_compared, columns_shifted: the numbers of all of them.
    """

    against: str
    indices: dict[str, tuple[float, float]] = field(default_factory=dict)
    shares: dict[str, tuple[float, float]] = field(default_factory=dict)
    mean: tuple[float, float] | None = None
    changes: tuple[Change, ...] = ()
    columns: dict[str, tuple[float, float]] = field(default_factory=dict)
    columns_compared: int = 0
    columns_shifted: int = 0

    @staticmethod
    def read(held: Mapping[str, Any]) -> ScoreDrift:
        """Return a drift from a document, which may be an older one without columns."""
        pairs = {
            key: {name: tuple(each) for name, each in held.get(key, {}).items()}
            for key in ("indices", "shares", "columns")
        }
        mean = None if held["mean"] is None else tuple(held["mean"])
        changes = tuple(Change(**each) for each in held["changes"])
        return ScoreDrift(**{**held, **pairs, "mean": mean, "changes": changes})

    @property
    def scores(self) -> list[tuple[str, Shift]]:
        """The shifts of predicted classes and scores, by name."""
        return [(name, Shift(*index)) for name, index in sorted(self.indices.items())]

    @property
    def most_moved(self) -> list[tuple[str, Shift]]:
        """The shifts of columns, the largest first."""
        found = [(name, Shift(*index)) for name, index in self.columns.items()]
        return sorted(found, key=lambda each: (each[1].chance - each[1].psi, each[0]))

    def as_document(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def with_columns(self, drifts: Mapping[str, Drift]) -> ScoreDrift:
        """Return this drift with the columns of nodes, by name."""
        most = sorted(drifts, key=lambda name: (drifts[name].chance - drifts[name].psi, name))
        return replace(
            self,
            columns={name: (drifts[name].psi, drifts[name].chance) for name in most[:_MOST_COLUMNS]},
            columns_compared=len(drifts),
            columns_shifted=sum(Shift(each.psi, each.chance).is_shift for each in drifts.values()),
        )

    def verdict(self, headline: str) -> str:
        """Return whether the headline metric got worse, what was compared, and what shifted, in words."""
        change = next((each for each in self.changes if each.name == headline), None)
        compared = [name for name, _ in self.scores]
        shifted = [name for name, shift in self.scores if shift.is_shift]
        if self.columns_compared:
            compared.append(f"{self.columns_compared:,} columns of nodes (with the tables of training)")
        if self.columns_shifted:
            shifted.append(f"{self.columns_shifted:,} of {self.columns_compared:,} columns")
        found = f"{listed(shifted)} shifted" if shifted else "none of them shifted"
        looked = f"Compared were {listed(compared)}: {found}" if compared else "No distribution was compared"
        if change is None:
            return f"the metric that chose the model was not measured both now and before. {looked}"
        if change.of_other_classes:
            return f"{change.text}, so the two cannot be compared. {looked}"
        noise = "" if change.beyond_noise is None else " by more than noise"
        got = "got worse" if change.is_worse else "did not get worse"
        text = f"{headline} {got}{noise} ({metric_text(change.now)}, {metric_text(change.before)} before). {looked}"
        if shifted or not change.is_worse:
            return text
        cause = "the relation of columns to label may have changed"
        if not self.columns_compared:
            cause = f"columns may have shifted unseen, or {cause}"
        return f"{text}, and the metric got worse all the same, so {cause}"

    def lines(self) -> Iterator[str]:
        """Yield sentences for a person, the headline's change first."""
        yield f"compared with {self.against}:"
        yield from (f"  {each.text}" for each in self.changes)
        for name, (before, now) in sorted(self.shares.items(), key=lambda each: (-abs(each[1][1] - each[1][0]), each)):
            yield f"  predicted {name} {now:.2%}, {before:.2%} before"
        if self.mean is not None:
            yield f"  mean {self.mean[1]:.4g}, {self.mean[0]:.4g} before"
        for name, shift in self.scores:
            yield f"  {name} {shift.text}"
        for name, shift in self.most_moved[:_SHOWN]:
            yield f"  column {name}, from the tables of training, {shift.text}"


def drift_between(now: Figures, before: Figures, *, against: str) -> ScoreDrift:
    """Return how predictions differ from earlier ones, as far as both are described alike."""
    found = ScoreDrift(against, changes=tuple(_changes(now, before)))
    if now.counts and before.counts:
        moved = class_drift(dict(before.counts.items()), dict(now.counts.items()))
        found.indices["predicted classes"] = (moved.psi, moved.chance)
        shares = {name: (_share(before, name), _share(now, name)) for name in now.counts}
        most = sorted(shares, key=lambda name: -abs(shares[name][1] - shares[name][0]))
        found.shares.update({name: shares[name] for name in most[:_SHOWN]})
    if now.scores is None or before.scores is None or now.scored != before.scored or not (now.rows and before.rows):
        return found
    moved = drift_of(before.scores, now.scores)
    found.indices[now.scored] = (moved.psi, moved.chance)
    assert now.mean is not None
    assert before.mean is not None
    return replace(found, mean=(before.mean, now.mean))


def _share(figures: Figures, name: str) -> float:
    return figures.counts.get(name, 0) / max(figures.rows, 1)


def _changes(now: Figures, before: Figures) -> Iterator[Change]:
    names = [name for name in now.metrics if name in before.metrics and not is_bound(name)]
    for name in sorted(names, key=lambda each: each != now.headline):
        held = now.metrics[name], before.metrics[name]
        if name in now.class_means and name in before.class_means and now.classes != before.classes:
            yield Change(name, *held, beyond_noise=None, of_other_classes=True)
        else:
            yield Change(name, *held, beyond_noise=_beyond_noise(name, now.metrics, before.metrics))


def _beyond_noise(name: str, now: Mapping[str, float], before: Mapping[str, float]) -> bool | None:
    """Return whether 0 lies outside of the 95 % interval of the difference of two independent estimates.

    Its half width is the root of the squares of the two that face each other (Zou and Donner, Construction of
    confidence limits about effect measures, Statistics in Medicine 27, 2008).
    """
    low, high = BOUNDS
    if any(name + side not in held for side in BOUNDS for held in (now, before)):
        return None
    higher, lower = (now, before) if now[name] >= before[name] else (before, now)
    facing = higher[name] - higher[name + low], lower[name + high] - lower[name]
    return bool(abs(now[name] - before[name]) > np.hypot(*facing))
