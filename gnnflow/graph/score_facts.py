"""Facts about a model's scores that a report draws: binned, so that they stay small for any number of targets."""

from __future__ import annotations

from dataclasses import dataclass

MOST_STEPS = 200
"""Points of a curve."""
BINS = 20
"""Bins of a histogram."""
MOST_CLASSES = 200
"""Classes of a table."""
MOST_CURVES = 5
"""Classes whose curves are drawn."""
_TWO = 2


@dataclass(frozen=True)
class ScoreGroup:
    """Some targets of one split and the metric over them, None where it is undefined.

    Their in-degree is low to high; or, where `column` is named, this categorical column has this value. of_rare: the
    ones of class `ScoreFacts.rare`, where there is one.
    """

    low: int
    high: int
    targets: int
    score: float | None
    column: str = ""
    value: str = ""
    of_rare: int | None = None


@dataclass(frozen=True)
class ClassScores:
    """One class against the others: its targets, and the scores that the labels and decisions define.

    steps: as of ScoreFacts, for the few classes that are drawn.
    """

    number: int
    targets: int
    precision: float | None
    recall: float | None
    f1: float | None
    average_precision: float | None
    steps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class ScoreFacts:
    """The scores of one split's labelled targets. Fields of other kinds of labels are empty.

    metric: the one of `groups`, which divide targets by in-degree, and nodes by their first categorical columns too.
    rare: the class whose targets the metric stands on, where it is one that few of them make uncertain; else None.
    One class, of two or named against the others: `positives` targets have class `positive`. steps: targets with at
    least some score, and the positives among them, from the highest score down, at most MOST_STEPS of the distinct
    scores. gains: the first k targets and the positives among them, where equal scores share the last places. decided
    [2][2]: counts by label (another class, the class) and decision at the threshold; empty without one. Where costs
    decide between classes it is [C][C], of at most MOST_CLASSES classes.
    bins [2][BINS]: targets by probability, in equal bins from 0 to 1: the probability of class 1 by label, or, with
    more classes, of the predicted class, for the wrong and for the right predictions.
    classes: of more than two classes the ones with targets, the rarest first, at most MOST_CLASSES; measured by the
    decided class where one of several is decided, else by the likeliest.
    Numbers: errors [BINS], counts of prediction minus label in equal bins from -largest_error to largest_error, with
    larger ones in the outermost bins.
    Links: ranks: links with rank 1, 2 to 3, 4 to 7, and so on. hits: numbers k and links with a rank of k or better.
    candidates: the pairs that each link is ranked among, itself included.
    """

    split: str
    targets: int
    metric: str
    groups: tuple[ScoreGroup, ...] = ()
    positive: int = 1
    positives: int = 0
    steps: tuple[tuple[int, int], ...] = ()
    gains: tuple[tuple[int, float], ...] = ()
    decided: tuple[tuple[int, ...], ...] = ()
    bins: tuple[tuple[int, ...], ...] = ()
    errors: tuple[int, ...] = ()
    largest_error: float = 0.0
    ranks: tuple[int, ...] = ()
    hits: tuple[tuple[int, int], ...] = ()
    candidates: int = 0
    rare: int | None = None
    classes: tuple[ClassScores, ...] = ()

    @property
    def decides_both(self) -> bool:
        """True where some targets are decided for and some against a class."""
        return len(self.decided) == _TWO and all(sum(column) for column in zip(*self.decided, strict=True))


@dataclass(frozen=True)
class ColumnDrop:
    """The loss of score when one column's values are exchanged at random: mean and deviation over repeats."""

    column: str
    drop: float
    deviation: float


@dataclass(frozen=True)
class ColumnFacts:
    """The importance of columns, largest first, measured on some targets of valid by one metric.

    score: with the columns as they are. repeats: exchanges of each column. left_out: columns that were not tried.
    why: the reason where nothing was measured.
    """

    metric: str = ""
    targets: int = 0
    score: float = 0.0
    repeats: int = 0
    columns: tuple[ColumnDrop, ...] = ()
    left_out: int = 0
    why: str = ""
