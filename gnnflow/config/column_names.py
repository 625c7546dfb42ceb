"""Names of columns that are one for all tables, or a map by type or relation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, TypeVar

from pydantic import Field

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


def check_inputs(key: str, columns: tuple[str, ...], taken: Mapping[str, Collection[str]]) -> None:
    """Raise where a feature column is named twice, or has another role. taken: the columns of each role."""
    for role, held in taken.items():
        if both := [column for column in columns if column in held]:
            raise problem(
                f"{both[0]!r} is the column of graph.{role}",
                key=key,
                fix="Take it out of the list: it is not an input of a model.",
            )
    if len(set(columns)) != len(columns):
        raise problem(f"{list(columns)} names a column twice", key=key, fix="Name each column once.")
