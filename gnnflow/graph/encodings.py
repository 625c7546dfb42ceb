"""The states of fitted columns: how a column of any kind becomes columns of numbers.

A state is fitted once over a table (`gnnflow.columns`), is a fact of ingest, is kept with a published model, and
encodes the columns of later tables. States are JSON-ready. `rows` and `missing` count the fitted table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

ColumnScaling = Literal["none", "standard", "log", "quantile"]
Missing = Literal["mean", "zero", "refuse"]


@dataclass(frozen=True, kw_only=True)
class NumericalState:
    """A column of numbers, and an indicator of missing ones where the fitted table has any.

    fill: the number that replaces a missing one, scaled already. mean, deviation: of the numbers, for log of their
    logarithms; deviation 1 and mean 0 where nothing is scaled. quantiles: ascending, for quantile. decimal: comma or
    point, for text of amounts.
    """

    name: str
    rows: int
    missing: int
    kind: Literal["numerical"] = "numerical"
    missing_as: Missing = "mean"
    scale: ColumnScaling = "none"
    fill: float = 0.0
    mean: float = 0.0
    deviation: float = 1.0
    quantiles: tuple[float, ...] = ()
    decimal: str = ""

    @property
    def has_indicator(self) -> bool:
        """True where a second column says which numbers are missing."""
        return self.missing > 0 and self.missing_as != "refuse"

    @property
    def is_plain(self) -> bool:
        """True where a table without missing numbers is read as it is."""
        return self.scale == "none" and not self.has_indicator and not self.decimal

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        return (self.name, f"{self.name} is missing") if self.has_indicator else (self.name,)

    @property
    def scaled(self) -> tuple[bool, ...]:
        """The encoded columns that `standard` scales."""
        return (self.scale == "none", False) if self.has_indicator else (self.scale == "none",)


@dataclass(frozen=True, kw_only=True)
class CategoricalState:
    """A column of values: a column of 0 and 1 for each frequent one, ascending.

    has_rest: rarer and unknown values share one more column. has_missing: so do missing ones; without these columns
    such values are zeros. separator: between values of a multicategorical column of text, of which several may be 1.
    distinct, rest: the values of the fitted table, and the rows with rarer ones.
    """

    name: str
    rows: int
    missing: int
    kind: Literal["categorical", "multicategorical"] = "categorical"
    values: tuple[str, ...]
    has_rest: bool
    separator: str = ""
    distinct: int = 0
    rest: int = 0

    @property
    def has_missing(self) -> bool:
        """True where missing values have a column."""
        return self.missing > 0

    @property
    def is_plain(self) -> bool:
        """False: values are always encoded."""
        return False

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        last = ((self.has_rest, "has another value"), (self.has_missing, "is missing"))
        named = [f"{self.name} {what}" for is_there, what in last if is_there]
        return (*(f"{self.name} = {value}" for value in self.values), *named)

    @property
    def scaled(self) -> tuple[bool, ...]:
        """The encoded columns that `standard` scales: none."""
        return (False,) * len(self.outputs)


@dataclass(frozen=True, kw_only=True)
class TimestampState:
    """A column of times: the age in days before `latest`, seconds since 1970, and the place in day, week and year.

    format: of text in another form than ISO's, as strptime writes it.
    """

    name: str
    rows: int
    missing: int
    kind: Literal["timestamp"] = "timestamp"
    latest: float = 0.0
    has_hours: bool = False
    format: str = ""

    @property
    def is_plain(self) -> bool:
        """False: times are always encoded."""
        return False

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        cycles = (*(("hour",) if self.has_hours else ()), "weekday", "month")
        turned = [f"{self.name} {part} of {cycle}" for cycle in cycles for part in ("sine", "cosine")]
        return (f"{self.name} in days", *turned, *((f"{self.name} is missing",) if self.missing else ()))

    @property
    def scaled(self) -> tuple[bool, ...]:
        """The encoded columns that `standard` scales: the age."""
        return (True, *(False,) * (len(self.outputs) - 1))


@dataclass(frozen=True, kw_only=True)
class TextState:
    """A column of text: a row of `width` numbers. encoder: the user's function that gives it; empty hashes words."""

    name: str
    rows: int
    missing: int
    kind: Literal["text"] = "text"
    width: int
    encoder: str = ""

    @property
    def is_plain(self) -> bool:
        """False: text is always encoded."""
        return False

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        return tuple(f"{self.name}[{position}]" for position in range(self.width))

    @property
    def scaled(self) -> tuple[bool, ...]:
        """The encoded columns that `standard` scales: none."""
        return (False,) * self.width


ColumnState = NumericalState | CategoricalState | TimestampState | TextState
States = Mapping[str, Sequence[ColumnState]]
"""The states of each table's fitted columns by its name, as in `gnnflow.graph.scales`."""


@dataclass(frozen=True)
class EncodedColumn:
    """A column's state, and the rows of the table it encoded with a missing or an unknown value.

    An unknown value has no column.
    """

    state: ColumnState
    missing: int
    unknown: int

    @property
    def is_told(self) -> bool:
        """False where the column was read as it is."""
        return not self.state.is_plain or self.missing > 0

    @property
    def done(self) -> str:
        """A phrase about the encoding."""
        return _done(self.state)

    def text(self, rows: int, *, is_given: bool = False) -> str:
        """Return what was done to a column of so many rows; empty where it was read as it is.

        is_given: a published model knows the column, whose encoding then cannot be changed.
        """
        state = self.state
        if not self.is_told:
            return ""
        done = f"column {state.name!r} is {state.kind}: {self.done}"
        counts = {"missing": self.missing, "rarer or unknown": self.unknown}
        told = [f"{count:,} of {rows:,} values are {what}" for what, count in counts.items() if count]
        if isinstance(state, CategoricalState) and self.unknown and not state.has_rest:
            told.append("their columns are all 0")
        elif isinstance(state, CategoricalState) and 2 * self.unknown > rows:
            told.append(_OTHER_VALUES if is_given else _MANY_VALUES)
        return "; ".join([done, *told])


_MANY_VALUES = "raise values, leave the column out, or read its words with kind: text"
_OTHER_VALUES = (
    "the model was trained on other values: write these as the tables that it was trained on have them, or train a new "
    "version on tables that have these"
)
_SCALED: dict[ColumnScaling, str] = {
    "none": "",
    "standard": "scaled to mean 0 and variance 1",
    "log": "scaled by its logarithm",
    "quantile": "scaled by its quantiles",
}


def _done(state: ColumnState) -> str:
    if isinstance(state, NumericalState):
        filled = {"mean": "the mean", "zero": "0", "refuse": ""}[state.missing_as]
        done = [_SCALED[state.scale], f"missing numbers become {filled}" if filled and state.missing else ""]
        done[1] += " and are marked in a second column" if state.has_indicator else ""
        return ", ".join(filter(None, done)) or "read as it is"
    if isinstance(state, CategoricalState):
        kept = f"{len(state.values):,} of {state.distinct:,} values have a column"
        return kept + (", and one more is for others" if state.has_rest else "")
    if isinstance(state, TimestampState):
        return "days before the latest, and sine and cosine of " + (
            "hour, weekday and month" if state.has_hours else "weekday and month"
        )
    return f"a row of {state.width:,} numbers by {state.encoder or 'the hashes of its words'}"


def encode_alike(one: States, other: States) -> bool:
    """Return whether both states encode tables in the same way; the numbers of their rows do not matter."""
    return _effective(one) == _effective(other)


def are_encoded(states: States) -> bool:
    """Return whether any column is not read as it is."""
    return bool(_effective(states))


def _effective(states: States) -> dict[tuple[str, str], ColumnState]:
    held = {(table, each.name): each for table, columns in states.items() for each in columns if not each.is_plain}
    return {key: _without_counts(state) for key, state in held.items()}


def _without_counts(state: ColumnState) -> ColumnState:
    marked = min(state.missing, 1)
    if isinstance(state, CategoricalState):
        return replace(state, rows=0, missing=marked, distinct=0, rest=0)
    return replace(state, rows=0, missing=marked)
