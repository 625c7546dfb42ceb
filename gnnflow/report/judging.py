"""Compares a run's score with its best baseline, and finds what makes it say less than it seems to.

Two scores differ beyond noise where their difference exceeds half the width of its 95 % interval. A run has that where
it knows both scores of each target. Elsewhere it is the root of the summed squares of both intervals' half-widths;
scores of the same targets differ by less, so "better" is then rather too rare than too frequent. A score without an
interval counts as wide as the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gnnflow.graph.labels import BOUNDS, LABEL_KINDS, NOISE, LabelKind, lower_is_better
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.graph.splits import SPLITS
from gnnflow.report.formats import class_name, count_text, score_text, sentence

PREFIX = "baseline."
NO_EDGES = ""
FEWEST_OF_CLASS = 30
"""Targets of a class below which its scores are uncertain."""
FEWEST = 100
"""Targets below which a score is uncertain: the 95 % interval of a share of .5 is then .1 to either side."""
_NAMES = {
    NO_EDGES: "the same classifier without edges",
    "majority": "the most frequent class",
    "trees": "trees on the columns",
    "neighbor_trees": "trees on the columns and the neighbours' averages",
    "popularity": "popularity",
    "most_recent": "the most recent first",
    "item_knn": "item-kNN",
}
Outcome = Literal["better", "no better", "worse"]


@dataclass(frozen=True)
class Judgement:
    """The comparison of a score with the best baseline's.

    noise: the difference that may be chance; None where it is unknown.
    """

    key: str
    score: float
    baseline: str
    beside: float
    noise: float | None
    outcome: Outcome

    @property
    def text(self) -> str:
        """The comparison as half a sentence."""
        return f"{self.against}: {score_text(self.score)} beside {self.baseline_score}"

    @property
    def against(self) -> str:
        """The outcome without figures: better than popularity."""
        return f"{self.outcome} than {baseline_name(self.baseline, self.key)}"

    @property
    def baseline_score(self) -> str:
        """The baseline's score, and how much of a difference may be chance, where that is known."""
        return ", where ".join(filter(None, (score_text(self.beside), self.chance)))

    @property
    def chance(self) -> str:
        """The noise in words: a reader takes "0.8 ± 0.1" for the error of the baseline. Empty where it is unknown."""
        return "" if self.noise is None else f"a difference of up to {score_text(self.noise)} may be chance"

    def as_json(self) -> dict[str, object]:
        """Return plain values."""
        return {
            "metric": self.key,
            "score": self.score,
            "baseline": self.baseline or "no_edges",
            "beside": self.beside,
            "noise": self.noise,
            "outcome": self.outcome,
            "text": self.text,
        }


def headline_key(metrics: Mapping[str, float], metric: str) -> str | None:
    """Return the key of the headline's metric: the configured one on test, else on valid, else the first score."""
    for split in ("test", "valid"):
        if metric and f"{split}.{metric}" in metrics:
            return f"{split}.{metric}"
    for split in ("test.", "valid."):
        found = [key for key in metrics if key.startswith(split) and not key.endswith(("loss", *BOUNDS))]
        if found:
            return found[0]
    return None


def baselines_in(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the metrics of each baseline of a run, by its name: `baseline.trees.test.accuracy` is one of trees."""
    found: dict[str, dict[str, float]] = {}
    for key, value in metrics.items():
        if key.startswith(PREFIX):
            name, _, rest = key.removeprefix(PREFIX).partition(".")
            # the classifier without edges has no name
            name, rest = (NO_EDGES, f"{name}.{rest}") if name in SPLITS else (name, rest)
            found.setdefault(name, {})[rest] = value
    return found


def baseline_name(name: str, key: str) -> str:
    """Return a baseline's name in a sentence about a metric."""
    if name == "majority" and lower_is_better(key):
        return "the mean"
    return _NAMES.get(name, name.replace("_", " "))


def judge(
    metrics: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]], key: str | None
) -> Judgement | None:
    """Compare a score with the best of the baselines, as `baselines_in` has them; None without one that has it."""
    if key is None or not math.isfinite(metrics[key]):
        return None
    scores = {name: held for name, held in baselines.items() if math.isfinite(held.get(key, math.nan))}
    if not scores:
        return None
    sign = -1 if lower_is_better(key) else 1
    best = max(scores, key=lambda name: sign * scores[name][key])
    score, beside = metrics[key], scores[best][key]
    noise = scores[best].get(f"{key}{NOISE}")
    if noise is None:
        noise = _noise([_half_width(metrics, key), _half_width(scores[best], key)])
    gain, margin = sign * (score - beside), noise or 0.0
    outcome: Outcome = "better" if gain > margin else "worse" if gain < -margin else "no better"
    return Judgement(key, score, best, beside, noise, outcome)


def _half_width(metrics: Mapping[str, float], key: str) -> float:
    low, high = (metrics.get(f"{key}{side}", math.nan) for side in BOUNDS)
    return (high - low) / 2


def _noise(widths: Iterable[float]) -> float | None:
    known = [width for width in widths if math.isfinite(width)]
    return math.hypot(*known, *known[: 2 - len(known)]) if known else None


def cautions(
    trained: TrainFacts,
    key: str | None,
    *,
    label_kind: LabelKind,
    split_counts: Mapping[str, int],
    class_names: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return sentences about what makes a score say less than it seems to, to stand next to it."""
    if key is None:
        return ()
    split, found = key.partition(".")[0], []
    if trained.constant:
        found.append(_constant(trained, class_names))
    if (count := split_counts.get(split, 0)) and count < FEWEST:
        found.append(f"The {split} split has {_targets(count)}, too few to tell models apart.")
    if LABEL_KINDS[label_kind].is_class:
        # a headline on valid may be there because test has one class
        splits = dict.fromkeys(("test", split))
        named = None if trained.decision is None else trained.decision.positive
        found += [text for each in splits for text in _of_classes(trained.confusion, each, class_names, named)]
    if trained.link_facts is not None and trained.link_facts.candidates < trained.link_facts.nodes:
        links = trained.link_facts
        found.append(
            f"Each link is ranked among {count_text(links.candidates)} sampled candidates, not among all "
            f"{count_text(links.nodes)} others."
        )
    return tuple(found)


def _targets(count: int) -> str:
    return "1 target" if count == 1 else f"{count_text(count)} targets"


def _constant(trained: TrainFacts, class_names: Sequence[str]) -> str:
    """Return the sentence about one prediction for all; it names the threshold where that tells targets apart."""
    scores, decision = trained.scores, trained.decision
    if scores is None or decision is None or decision.threshold is None or not scores.decides_both:
        return f"{sentence(trained.constant)}."
    decided = [sum(column) for column in zip(*scores.decided, strict=True)]
    one = class_name(class_names, scores.positive)
    return (
        f"The column prediction has one class for every {scores.split} target. The column decision has both: class "
        f"{one} from a probability of {decision.threshold:.4g} on, {count_text(decided[1])} of "
        f"{count_text(sum(decided))} targets."
    )


def _of_classes(
    confusion: Mapping[str, Sequence[Sequence[object]]], split: str, names: Sequence[str], named: int | None
) -> list[str]:
    """Return a sentence where the targets of a split have one class, or few have the rarer one of two.

    named: the class that is decided for; of more than two classes few may have this one.
    """
    counts = [sum(number for number in row if isinstance(number, int)) for row in confusion.get(split, ())]
    if sum(count > 0 for count in counts) == 1:
        return [f"All targets of the {split} split have one class."]
    least: int | None = named
    if len(counts) == len(("no", "yes")):
        least = min(range(len(counts)), key=counts.__getitem__)
    if not counts or least is None or counts[least] >= FEWEST_OF_CLASS:
        return []
    few, has = _targets(counts[least]), "has" if counts[least] == 1 else "have"
    few = f"Only {few} of the {split} split {has} class {class_name(names, least)}"
    return [f"{few}: another test split may score very differently."]
