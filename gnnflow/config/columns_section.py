"""The `graph.columns` section: the kind of a column, where its type does not say it; and patterns of columns' names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from gnnflow.config.base import OWN_SPELLING, Integer, Section, problem

_FREQUENT = Field(
    64, ge=1, le=10_000, description="Most values with a column: the most frequent ones. Rarer ones share one more."
)


_DECIMALS = {",": "comma", ".": "point"}
DecimalName = Annotated[
    Literal["comma", "point"],
    BeforeValidator(lambda value: _DECIMALS.get(value, value) if isinstance(value, str) else value),
]
"""What stands before the fraction of a number."""
_MOMENT = datetime(2031, 1, 25, 13, 45, 59)  # noqa: DTZ001 - a format may have no zone


def _names_days(form: str) -> str:
    """Refuse a format that does not name a day as strptime does."""
    try:
        is_day = datetime.strptime(_MOMENT.strftime(form), form).date() == _MOMENT.date()  # noqa: DTZ007
    except ValueError:
        is_day = False
    if not is_day:
        raise problem("names no day", fix="Write day, month and year as strptime does, such as '%d.%m.%Y'.")
    return form


class NumericalColumn(Section):
    """A column of numbers."""

    kind: Literal["numerical"] = Field(
        "numerical",
        description="Numbers, booleans, dates and timestamps (seconds since 1970), or text of numbers.",
    )
    missing: Literal["mean", "zero", "refuse"] = Field(
        "mean",
        description="A missing number (null or NaN) becomes the mean of the column, or 0; where the table has any, one "
        "more column says which are missing. refuse: such a row is a bad row.",
    )
    scale: Literal["none", "standard", "log", "quantile"] = Field(
        "none",
        description="standard makes the column mean 0 and variance 1, log does so with the logarithm of one more than "
        "the magnitude, quantile makes it normally distributed; none leaves it to graph.normalize.",
    )
    decimal: DecimalName | None = Field(
        None,
        description="For text of amounts, what stands before the fraction, by name or sign: point reads $1,234.50, "
        "comma 1.234,50 €. The other sign, spaces and apostrophes between thousands and a unit are left out.",
    )


class CategoricalColumn(Section):
    """A column with one of several values."""

    kind: Literal["categorical"] = Field(
        "categorical",
        description="One of several values, text or others: a column of 0 and 1 per value, and one for missing ones.",
    )
    values: Integer = _FREQUENT


class MulticategoricalColumn(Section):
    """A column with any of several values."""

    kind: Literal["multicategorical"] = Field(
        "multicategorical", description="Any of several values: lists, or text with a separator. A column per value."
    )
    values: Integer = _FREQUENT
    separator: Annotated[str, Field(min_length=1, max_length=10)] | None = Field(
        None, description="Text between the values of a column of text; null: the column holds lists."
    )


class TimestampColumn(Section):
    """A column of times."""

    kind: Literal["timestamp"] = Field(
        "timestamp",
        description="Dates, timestamps, or text of ISO dates and times: the age in days before the latest of the "
        "table, and sine and cosine of hour (not of dates), weekday and month.",
    )
    format: Annotated[str, AfterValidator(_names_days)] | None = Field(
        None, description="For text in another form, as strptime writes it: '%d.%m.%Y' reads 31.12.2020."
    )


class TextColumn(Section):
    """A column of text."""

    kind: Literal["text"] = Field(
        "text", description="Text of words: a row of numbers of length 1, to which each word adds at its hash."
    )
    width: Integer = Field(64, ge=1, le=65_536, description="Number of columns, where encoder does not decide it.")
    encoder: Annotated[str, Field(pattern=OWN_SPELLING.pattern)] | None = Field(
        None,
        description="A function of your own, package.module:function, called with a list of texts: it returns a row of "
        "numbers for each.",
    )


class EmbeddingColumn(Section):
    """A column of lists of numbers."""

    kind: Literal["embedding"] = Field("embedding", description="Lists of numbers of one length, read as they are.")


ColumnSection = (
    NumericalColumn | CategoricalColumn | MulticategoricalColumn | TimestampColumn | TextColumn | EmbeddingColumn
)
ColumnSections = dict[str, Annotated[ColumnSection, Field(discriminator="kind")]]


def is_pattern(name: str) -> bool:
    """Return whether a name in a list of columns may stand for several."""
    return any(letter in name for letter in "*?[")


def expanded(
    asked: Sequence[str], names: Sequence[str], *, taken: Collection[str], exclude: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns that names and patterns ask for, each once, patterns in the order of the table's `names`.

    A pattern leaves out what is `taken` by another role, and what a pattern of `exclude` names.
    """
    found: dict[str, None] = {}
    held = {*names}
    for each in asked:
        if each in held or not is_pattern(each):
            found[each] = None
            continue
        left = [name for name in names if name not in taken and not any(fnmatchcase(name, other) for other in exclude)]
        found |= dict.fromkeys(name for name in left if fnmatchcase(name, each))
    return tuple(found)
