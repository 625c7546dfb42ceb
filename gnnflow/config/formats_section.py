"""The `graph.formats` section: the form of a table of CSV, where its first lines do not show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from gnnflow.config.base import Column, Section, problem
from gnnflow.config.columns_section import DecimalName

_SEPARATORS = {"comma": ",", "tab": "\t", "space": " ", "semicolon": ";", "pipe": "|"}


def _separator(value: Any) -> Any:
    """Return the character that a name of a separator stands for."""
    found = _SEPARATORS.get(value, value) if isinstance(value, str) else value
    if isinstance(found, str) and found != "::" and (len(found) != 1 or not found.isascii() or found in '"\r\n\0'):
        raise problem("is no separator", fix=f"Use one character, '::', or {', '.join(_SEPARATORS)}.")
    return found


class CsvFormat(Section):
    """The form of a table of CSV; what is left out is found in its first lines, or refused where it cannot be known."""

    kind: Literal["csv"] = Field("csv", description="Text with a separator; a single file may have any suffix then.")
    header: bool | None = Field(
        None,
        description="Whether the first line has the columns' names; null: it has. Needed with columns.",
    )
    columns: Annotated[tuple[Column, ...], Field(min_length=1)] | None = Field(
        None, description="Names of all columns in order; without them and without a header these are f0, f1, ..."
    )
    separator: Annotated[str, BeforeValidator(_separator)] | None = Field(
        None, description="One character, '::', or comma, tab, space, semicolon or pipe."
    )
    encoding: str | None = Field(None, min_length=1, description="Encoding as Python calls it: latin-1, utf-16.")
    decimal: DecimalName | None = Field(
        None,
        description="What stands before the fraction of a number, by name or sign: comma reads 1,5 and 1.234,5 as "
        "numbers.",
    )

    @property
    def has_header(self) -> bool:
        """True where the first line has names."""
        return self.header is not False


def format_problems(formats: Mapping[str, CsvFormat], places: Mapping[str, str]) -> Iterator[PydanticCustomError]:
    """Yield a problem for a form of no table, two forms of one table, and columns that cannot be.

    places: of tables, by their names.
    """
    held: dict[str, str] = {}
    for name, form in formats.items():
        yield from _column_problems(name, form)
        if name not in places:
            yield problem(
                f"{name!r} is no table: there are {', '.join(places)}",
                key=f"formats.{name}",
                fix="Name nodes or edges; in typed graphs a type or a relation.",
            )
            continue
        other = held.setdefault(places[name], name)
        if form != formats[other]:
            yield problem(
                f"{name} and {other} read the same table, which has one form",
                key=f"formats.{name}",
                fix="Say the form once.",
            )


def _column_problems(name: str, form: CsvFormat) -> Iterator[PydanticCustomError]:
    columns = form.columns or ()
    if columns and form.header is None:
        yield problem(
            "required but missing, where columns are named",
            key=f"formats.{name}.header",
            fix="Set it to false where the first line is a row, true where its names are replaced.",
        )
    if len(set(columns)) < len(columns):
        twice = next(each for each in columns if columns.count(each) > 1)
        yield problem(f"{twice!r} is there twice", key=f"formats.{name}.columns", fix="Give each column another name.")
