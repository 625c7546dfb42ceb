"""Names of columns that are one for all tables, or a map by type or relation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, TypeVar

from pydantic import Field
from pydantic_core import PydanticCustomError

from gnnflow.config.base import Column, problem

Name = TypeVar("Name", bound=str | None)
ColumnNames = Column | Annotated[dict[str, Column], Field(min_length=1)]
"""One name for all tables, or a map by type or relation; a table that the map leaves out has the key's default."""


def own_name(names: str | Mapping[str, Name], table: str, *, default: str) -> str | Name:
    """Return the name of a table's column; None where the map says null. table: its type or relation."""
    return names if isinstance(names, str) else names.get(table, default)


def one_name(names: str | Mapping[str, Name] | None) -> str:
    """Return the name in a section that is of one table (`GraphConfig.of_type`); empty, no column's name, for null."""
    assert names is None or isinstance(names, str), "the section of all tables, not of one"
    return names or ""


def input_problems(
    key: str, columns: tuple[str, ...], taken: Mapping[str, Collection[str]]
) -> Iterator[PydanticCustomError]:
    """Yield a problem where a feature column is named twice, or has another role. taken: the columns of each role."""
    for role, held in taken.items():
        for column in dict.fromkeys(each for each in columns if each in held):
            yield problem(
                f"{column!r} is the column of graph.{role}",
                key=key,
                fix="Take it out of the list: it is not an input of a model.",
                meant={"item": column},
            )
    if len(set(columns)) != len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        text, fix = f"{list(columns)} names a column twice", "Name each column once."
        yield problem(text, key=key, fix=fix, meant={"item": twice})
