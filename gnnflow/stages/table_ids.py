"""Finds the column of a table's ids, by its name and by the other tables' columns whose values it holds."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.datasets.edge_headers import find_ends, split_words
from gnnflow.graph.errors import ConfigError, listed
from gnnflow.stages.given_tables import GivenTable, say_id

KEY_WORDS = frozenset(("id", "ids", "uid", "key"))
ID_WORDS = KEY_WORDS | {"idx", "index", "nr", "no", "number"}
INDEX = "Unnamed: 0"  # as pandas calls the index that it writes without a name
_BY_NAME = 3  # the score of a column that is called as the table's ids are
SURE = 0.9
"""The share of a column's values among a table's ids that makes it refer to these, whatever it is called."""
_INTEGER = r"^-?(0|[1-9][0-9]*)$"  # without leading zeros


def stems_of(name: str) -> set[tuple[str, ...]]:
    """Return the words of a table's name, and of its singular."""
    lower = name.lower()
    forms = {lower, lower.removesuffix("s"), lower.removesuffix("es")}
    forms |= {f"{lower.removesuffix('ies')}y"} if lower.endswith("ies") else set()
    return {split_words(form) for form in forms}


def id_of(table: GivenTable, ids: Sequence[str], tables: Sequence[GivenTable], ends: set[str]) -> str | None:
    """Return the column of a table's ids, by the user's option or else by names and values.

    tables: all that are given; of several columns one that holds the ends of another is preferred. ends: columns that
    the user names as ends.
    """
    for given in ids:
        if (column := table.named(given)) is not None:
            return column
    scores = {name: _id_score(name, table.name) for name in _different(table)}
    named = [name for name, score in scores.items() if score]
    if not named:
        return None
    if len(scores) > 1 and max(scores.values()) < _BY_NAME:  # values show more than a name such as `name`
        held = [name for name, score in scores.items() if _is_referred_to(table, name, tables, ends, sure=not score)]
        named = [name for name in held if scores[name]] or held or named
    best = max(scores[name] for name in named)
    chosen = [name for name in named if scores[name] == best]
    if len(chosen) > 1:
        raise ConfigError(
            f"{listed(chosen)} may each be the ids of {table.uri}",
            where="gnnflow init",
            fix=f"Name one: {say_id(table, chosen[0])}",
        )
    return chosen[0]


def _different(table: GivenTable) -> list[str]:
    """Return the columns that differ in each row, and so can be ids."""
    values = {name: table.values(name) for name in table.columns}
    return [name for name, held in values.items() if 0 < len(pc.unique(held)) == len(held) == table.rows.num_rows]


def held_ids(table: GivenTable, tables: Sequence[GivenTable], ends: set[str], keys: set[str]) -> str | None:
    """Return the only column that holds the ends of another table, whatever it is called; None for other tables.

    keys: the columns that hold ids of another table, and so are none of this one.
    """
    if find_ends(table.columns) is not None or ends & {*table.columns}:
        return None
    held = [name for name in _different(table) if name not in keys and _is_referred_to(table, name, tables, ends)]
    return held[0] if len(held) == 1 else None


def _is_referred_to(
    table: GivenTable, name: str, tables: Sequence[GivenTable], said: set[str], *, sure: bool = False
) -> bool:
    """Return whether another table has a column whose values this column holds.

    Integers are among others by chance, so their column must be named as ids, ends or this one are. said: columns that
    the user names as ends. sure: a name as ids have it does not do.
    """
    values = table.values(name)
    is_text = are_text(values)
    for other in tables:
        ends = {*(find_ends(other.columns) or ()), *said}
        for column in other.columns if other.uri != table.uri else ():
            is_key = column in ends or (column == name != INDEX)
            is_key |= not sure and bool({*split_words(column)[-1:]} & ID_WORDS)
            held = pc.unique(other.values(column)) if is_key or is_text else ()
            if len(held) and pc.mean(pc.is_in(held, value_set=values).cast(pa.float64())).as_py() >= SURE:
                return True
    return False


def _id_score(name: str, table: str) -> int:
    words = split_words(name)
    if not words or name == INDEX:
        return int(name == INDEX)
    subject = words[:-1] if words[-1] in ID_WORDS else words
    if words[-1] in ID_WORDS and (not subject or subject in stems_of(table)):
        return _BY_NAME
    if words in stems_of(table) or words in {("node",), ("name",)}:
        return 2
    return 1 if words[-1] in ID_WORDS else 0


def are_text(values: pa.Array) -> bool:
    """Return whether ids are text, and no integers, of whatever type these are."""
    return not pc.all(pc.match_substring_regex(values, _INTEGER)).as_py()
