"""The drift of predictions from earlier ones: metrics, predicted classes and scores, and the columns that explain them.

Distributions are compared by the population stability index that guards use: predictions with the scoring before, the
columns of nodes and edges with the tables that the model was trained on. A metric that fell where neither shifted is
the sign that the same columns now go with other labels, so both are told together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.graph.errors import listed
from gnnflow.graph.labels import BOUNDS, is_bound, lower_is_better, metric_text
from gnnflow.ingest.statistics import class_drift, drift_of
from gnnflow.stages.score_figures import PREFIX, Figures
from gnnflow.train.measured import OF_DECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gnnflow.ingest.statistics import Drift

SHIFTED = 0.25
"""The index of a shift by custom; the default of `guards.psi`."""
_NOT_RECORDED = "of classes or costs that are not recorded"  # by an older version of gnnflow
_SHOWN = 5  # classes and columns that are printed
_MOST_COLUMNS = 20  # columns that a record keeps


@dataclass(frozen=True)
class Change:
    """A metric now and before, and whether the difference is larger than the noise of both; None: it is not known.

    why_not: the reason where the two cannot be compared, as a clause after both.
    """

    name: str
    now: float
    before: float
    beyond_noise: bool | None
    why_not: str = ""

    @property
    def text(self) -> str:
        """The change as half a sentence."""
        if self.why_not:
            return f"{self.name} {metric_text(self.now)}, {metric_text(self.before)} before, {self.why_not}"
        if self.now == self.before:
            return f"{self.name} {metric_text(self.now)}, the same before"
        noise = {True: ", more than noise", False: ", which may be noise", None: ""}[self.beyond_noise]
        return f"{self.name} {metric_text(self.now)}, {metric_text(self.before)} before{noise}"

    @property
    def is_worse(self) -> bool:
        """True if the metric got worse, unless that may be noise; where noise is not known any loss counts."""
        loss = self.now - self.before if lower_is_better(self.name) else self.before - self.now
        return loss > 0 and self.beyond_noise is not False and not self.why_not


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
    def is_unsure(self) -> bool:
        """True if chance alone could move the distribution as far as a shift does."""
        return self.chance > SHIFTED and not self.is_shift

    @property
    def verdict(self) -> str:
        """The shift in words."""
        return "shifted" if self.is_shift else "too few to say" if self.is_unsure else "did not shift"

    @property
    def text(self) -> str:
        """The shift as half a sentence."""
        return f"{self.verdict}: PSI {self.psi:.3g} (a shift from {SHIFTED + self.chance:.3g} on)"


@dataclass(frozen=True)
class ScoreDrift:
    """The difference of predictions from earlier ones.

    against: the earlier ones, in words; metrics_against: the ones whose metrics are compared, "" where it is the same.
    indices: the population stability index of predicted classes and of scores, each with how much of it chance gives.
    shares: of the predicted classes before and now; decided: of the decided ones; decided_why_not: the reason where
    these cannot be compared. changes: of metrics, the headline's first if it has one. columns: as indices, of the
    columns of nodes and edges that moved most from the tables of training; columns_compared, columns_shifted,
    columns_unsure: the numbers of all of them.
    """

    against: str
    indices: dict[str, tuple[float, float]] = field(default_factory=dict)
    shares: dict[str, tuple[float, float]] = field(default_factory=dict)
    mean: tuple[float, float] | None = None
    changes: tuple[Change, ...] = ()
    columns: dict[str, tuple[float, float]] = field(default_factory=dict)
    columns_compared: int = 0
    columns_shifted: int = 0
    columns_unsure: int = 0
    metrics_against: str = ""
    decided: dict[str, tuple[float, float]] = field(default_factory=dict)
    decided_why_not: str = ""

    @staticmethod
    def read(held: Mapping[str, Any]) -> ScoreDrift:
        """Return a drift from a document, which may be an older one without columns."""
        pairs = {
            key: {name: tuple(each) for name, each in held.get(key, {}).items()}
            for key in ("indices", "shares", "columns", "decided")
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
        """Return this drift with columns of nodes and edges, by name."""
        most = sorted(drifts, key=lambda name: (drifts[name].chance - drifts[name].psi, name))
        shifts = [Shift(each.psi, each.chance) for each in drifts.values()]
        return replace(
            self,
            columns={name: (drifts[name].psi, drifts[name].chance) for name in most[:_MOST_COLUMNS]},
            columns_compared=len(drifts),
            columns_shifted=sum(each.is_shift for each in shifts),
            columns_unsure=sum(each.is_unsure for each in shifts),
        )

    def verdict(self, headline: str) -> str:
        """Return whether the headline metric got worse, what was compared, and what shifted, in words."""
        change = next((each for each in self.changes if each.name == headline), None)
        shifted = [name for name, shift in self.scores if shift.is_shift]
        unsure = [name for name, shift in self.scores if shift.is_unsure]
        looked = self._looked(shifted, unsure)
        if not headline:  # embeddings have no metric
            return looked
        if change is None:
            return f"the metric that chose the model was not measured both now and before. {looked}"
        if change.why_not:
            return f"{change.text}, so the two cannot be compared. {looked}"
        noise = "" if change.beyond_noise is None else " by more than noise"
        got = "got worse" if change.is_worse else "did not get worse"
        text = f"{headline} {got}{noise} ({metric_text(change.now)}, {metric_text(change.before)} before). {looked}"
        if shifted or self.columns_shifted or not change.is_worse:
            return text
        cause = "the relation of columns to label may have changed"
        if unsure or self.columns_unsure or not self.columns_compared:
            cause = f"columns may have shifted unseen, or {cause}"
        return f"{text}, and the metric got worse all the same, so {cause}"

    def _looked(self, shifted: list[str], unsure: list[str]) -> str:
        """Return what was compared, what shifted, and what is of too few targets to tell, in words."""
        compared = [name for name, _ in self.scores]
        if self.columns_compared:
            columns = "column" if self.columns_compared == 1 else "columns"
            compared.append(f"{self.columns_compared:,} {columns} (with the tables of training)")
        if not compared:
            return "No distribution was compared"
        parts = []
        if shifted := _with_columns(shifted, self.columns_shifted, self.columns_compared):
            parts.append(f"{listed(shifted)} shifted")
        if unsure := _with_columns(unsure, self.columns_unsure, self.columns_compared):
            parts.append(f"too few rows to say of {listed(unsure)}")
        return f"Compared were {listed(compared)}: {'; '.join(parts) or 'none of them shifted'}"

    def lines(self) -> Iterator[str]:
        """Yield sentences for a person, the headline's change first."""
        if self.metrics_against:
            yield f"metrics compared with {self.metrics_against}:"
            yield from (f"  {each.text}" for each in self.changes)
        yield f"compared with {self.against}:"
        if not self.metrics_against:
            yield from (f"  {each.text}" for each in self.changes)
        if self.decided_why_not:
            yield f"  decisions cannot be compared: {self.decided_why_not}"
        for verb, shares in (("decided", self.decided), ("predicted", self.shares)):
            for name, (before, now) in sorted(shares.items(), key=lambda each: (-abs(each[1][1] - each[1][0]), each)):
                yield f"  {verb} {name} {now:.2%}, {before:.2%} before"
        if self.mean is not None:
            yield f"  mean {self.mean[1]:.4g}, {self.mean[0]:.4g} before"
        for name, shift in self.scores:
            yield f"  {name} {shift.text}"
        for name, shift in self.most_moved[:_SHOWN]:
            yield f"  column {name}, from the tables of training, {shift.text}"


def _with_columns(names: list[str], count: int, compared: int) -> list[str]:
    return [*names, f"{count:,} of {compared:,} columns"] if count else names


def drift_from(now: Figures, earlier: Iterable[tuple[Figures, str]]) -> ScoreDrift | None:
    """Return how predictions differ from earlier ones, the last first, each with its name; None without any.

    Their metrics are compared with the last ones that have the headline's, or any where it is not measured now. Metrics
    of targets that chose the model are no reference: honest ones would look worse.
    """
    last: tuple[Figures, str] | None = None
    wanted = {now.headline} & now.metrics.keys() or now.metrics.keys()
    for each in earlier:
        last = last or each
        if not wanted or (wanted & each[0].metrics.keys() and not each[0].chose_model):
            found = drift_between(now, last[0], against=last[1])
            if each is last:
                return found
            return replace(found, changes=tuple(_changes(now, each[0])), metrics_against=each[1])
    return None if last is None else drift_between(now, last[0], against=last[1])


def drift_between(now: Figures, before: Figures, *, against: str) -> ScoreDrift:
    """Return how predictions differ from earlier ones, as far as both are described alike."""
    found = ScoreDrift(against, changes=tuple(_changes(now, before)))
    if now.counts and before.counts:
        moved = class_drift(dict(before.counts.items()), dict(now.counts.items()))
        found.indices["predicted classes"] = (moved.psi, moved.chance)
        found.shares.update(_shares(now, before, lambda figures: figures.counts))
    if now.decided and before.decided and (why := _other_decisions(now, before)):
        found = replace(found, decided_why_not=why)
    elif now.decided and before.decided:
        found.decided.update(_shares(now, before, lambda figures: figures.decided))
    if now.scores is None or before.scores is None or now.scored != before.scored or not (now.rows and before.rows):
        return found
    moved = drift_of(before.scores, now.scores)
    found.indices[now.scored] = (moved.psi, moved.chance)
    assert now.mean is not None
    assert before.mean is not None
    return replace(found, mean=(before.mean, now.mean))


def _shares(
    now: Figures, before: Figures, counts: Callable[[Figures], Mapping[str, int]]
) -> dict[str, tuple[float, float]]:
    """Return the shares of classes before and now, of the ones that moved most."""

    def share(figures: Figures, name: str) -> float:
        return counts(figures).get(name, 0) / max(figures.rows, 1)

    shares = {name: (share(before, name), share(now, name)) for name in counts(now)}
    most = sorted(shares, key=lambda name: -abs(shares[name][1] - shares[name][0]))
    return {name: shares[name] for name in most[:_SHOWN]}


def _changes(now: Figures, before: Figures) -> Iterator[Change]:
    names = [name for name in now.metrics if name in before.metrics and not is_bound(name)]
    for name in sorted(names, key=lambda each: each != now.headline):
        why = _why_not(name, now, before)
        noise = None if why else _beyond_noise(name, now.metrics, before.metrics)
        yield Change(name, now.metrics[name], before.metrics[name], noise, why)


def _why_not(name: str, now: Figures, before: Figures) -> str:
    """Return why a metric cannot be compared, as a clause; "" where it can."""
    if now.chose_model or before.chose_model:
        return f"of targets that chose the model{'' if now.chose_model else ' then'}"
    own, other = (each.measured.get(name, _NOT_RECORDED) for each in (now, before))
    if own != other:
        return f"{own} now and {other} before"
    if name.removeprefix(PREFIX) in OF_DECISIONS and (why := _other_decisions(now, before)):
        return why
    if name in now.class_means and name in before.class_means and now.classes != before.classes:
        return "as a mean over other classes"
    # the first k of twice as many targets are another share of them
    same_share = now.top * now.labelled / max(before.labelled, 1)
    if now.top and name.endswith(f"_at_{now.top}") and round(same_share) != now.top:
        return f"among {now.labelled:,} targets now and {before.labelled:,} before"
    return ""


def _other_decisions(now: Figures, before: Figures) -> str:
    """Return how the rules of decisions differ, as a clause; "" where they are one."""
    if now.decided_by == before.decided_by:
        return ""
    return f"{now.decided_by} now and {before.decided_by or 'by a rule that is not recorded'} before"


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
