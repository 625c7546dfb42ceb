"""Proposes the label, the split and the features of a graph's tables, by the names and the values of columns."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.columns import LEADING_ZEROS, find_forms, floats_of, numbers_of, words_of
from gnnflow.config.environment import config_line
from gnnflow.datasets.edge_headers import split_words
from gnnflow.graph.errors import ConfigError, listed
from gnnflow.graph.splits import SPLITS
from gnnflow.stages.given_tables import GivenTable
from gnnflow.stages.table_ids import INDEX
from gnnflow.storage.columns import combine
from gnnflow.storage.user_tables import holds_lists, holds_numbers, holds_text, holds_times, plain

_STRONG = {("label",), ("labels",), ("y",), ("class",), ("target",), ("is", "label")}
_LABEL_WORDS = frozenset(("label", "class", "churn", "churned", "fraud", "fraudulent", "illicit", "outcome", "default"))
_SPLIT = {("split",), ("fold",), ("subset",), ("set",), ("partition",)}
_MOST_CLASSES = 1000
_FEW = 20
_RARE = 0.2  # share of the rarer of two classes below which accuracy says little
_SEPARATED = 0.2  # share of texts with a separator
_ALIKE = 0.9  # share of different texts above which a column names its row
_NO_LABEL = frozenset(("unknown", "n/a", "na", "none", "?", "-", "unlabelled", "unlabeled", "missing"))
_NUMBERED = frozenset(("id", "nr", "no", "number"))  # as the numbers of rows are called
_NAMES_ASSUMED = "its numbers are taken for names, as it is called an id; where they measure: {kind: numerical}"
_PANDAS_INDEX = r"__index_level_[0-9]+__"
_NUMBERS = 0.5  # share of texts that are numbers above which a column is meant as numbers
_OF_SPLITS = "of the words train, valid and test alone, which tell nothing of a row"
_CODES_ASSUMED = "its numbers have leading zeros, so they are taken for names, such as"
_VERSION = r"^\s*[0-9]+(\.[0-9]+){2,}\s*$"
_VERSIONS_ASSUMED = "its values are taken for versions, such as 1.10.2"
_OTHER_DATE = r"^\s*[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{2,4}\b.*$"
_UNKNOWN_DATES = "of dates in another form than 2024-01-31: write them in this form to read them"
_DATE = r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.+Z-]*)?\s*$"


@dataclass(frozen=True)
class LabelRole:
    """The label column, and why it is one.

    kind: `class`, `number` or `several`. is_counted: its values are the classes, and are no numbers from 0. none:
    values that say that there is no label. is_rare: of two classes one is rare.
    """

    table: GivenTable
    column: str
    kind: str
    why: str
    is_counted: bool = False
    none: tuple[str, ...] = ()
    is_rare: bool = False


@dataclass(frozen=True)
class FeatureRole:
    """A feature column. kind, keys: as in `graph.columns`; keys are those that the column's type does not say.

    assumed: what the keys take for granted, and the keys of the other reading.
    """

    column: str
    kind: str
    note: str = ""
    keys: dict[str, str] = field(default_factory=dict)
    assumed: str = ""


def find_label(tables: Sequence[GivenTable], taken: dict[str, set[str]], *, asked: str) -> LabelRole | None:
    """Return the label column; None where `asked` is none. taken: the columns of each table that have a role.

    Raises ConfigError where no column or several may be the label.
    """
    if asked == "none":
        return None
    free = [(table, name) for table in tables for name in table.columns if name not in taken.get(table.uri, set())]
    if asked:
        held = [(table, name) for table, name in free if name == table.named(asked)]
        if len(held) != 1:
            found = "no table has" if not held else f"{len(held)} tables have"
            raise ConfigError(
                f"{found} a column {asked!r} without another role",
                where="--label",
                fix=f"Write --label TABLE.COLUMN: columns are {listed(_names(free, tables), at_most=30)}.",
            )
        return _label_role(*held[0], why="as --label says")
    able = [(table, name) for table, name in free if _can_be_label(table, name)]
    for why, says in (("by its name", _is_strong), ("by its name and its few values", _is_likely)):
        named = [(table, name) for table, name in able if says(table, name)]
        if len(named) == 1:
            return _label_role(*named[0], why=why)
        if named:
            raise _ask_label(f"{listed(_names(named, tables))} may each be the label", named, tables)
    raise _ask_label("no column is named as a label is", able or free, tables)


def _names(held: Sequence[tuple[GivenTable, str]], tables: Sequence[GivenTable]) -> list[str]:
    return [shlex.quote(f"{table.name}.{name}" if len(tables) > 1 else name) for table, name in held]


def _ask_label(problem: str, held: Sequence[tuple[GivenTable, str]], tables: Sequence[GivenTable]) -> ConfigError:
    shown = listed(_names(held, tables), at_most=12) or "none"
    return ConfigError(
        problem,
        where="gnnflow init",
        fix=f"Name it: --label COLUMN (possible here: {shown}); or --label none, to predict edges.",
    )


def _is_strong(table: GivenTable, name: str) -> bool:
    del table
    return split_words(name) in _STRONG


def _is_likely(table: GivenTable, name: str) -> bool:
    words = split_words(name)
    return bool(_LABEL_WORDS & {*words}) and len(pc.unique(combine(table.rows[name]).drop_null())) <= _FEW


def _can_be_label(table: GivenTable, name: str) -> bool:
    held = combine(table.rows[name]).drop_null()
    kind = plain(held.type)
    if holds_lists(kind):
        return holds_numbers(kind.value_type) and split_words(name) in _STRONG
    if not (holds_numbers(kind) or holds_text(kind)):
        return False
    different = len(pc.unique(held))
    if _only_names_rows(name, kind, is_unique=different == table.rows.num_rows):
        return False
    if holds_text(kind):
        if _names_of_splits(table, name):
            return False
        is_date = bool(pc.all(pc.match_substring_regex(held.cast(pa.large_string()), _DATE)).as_py())
        return 1 < different <= min(_MOST_CLASSES, max(_FEW, _ALIKE * len(held))) and not is_date
    return different > 1


def _label_role(table: GivenTable, name: str, *, why: str) -> LabelRole:
    held = combine(table.rows[name]).drop_null()
    kind = plain(held.type)
    if holds_lists(kind):
        return LabelRole(table, name, "several", why)
    none: tuple[str, ...] = ()
    if holds_text(kind):
        held = held.cast(pa.large_string())
        held = held.filter(pc.not_equal(held, ""))
        none = tuple(value for value in pc.unique(held).to_pylist() if value.strip().lower() in _NO_LABEL)
        held = held.filter(pc.invert(pc.is_in(held, value_set=pa.array(none, pa.large_string()))))
    counts = pc.value_counts(held)
    least = (pc.min(counts.field("counts")).as_py() or 0) / max(len(held), 1)
    is_rare = len(counts) == len(("no", "yes")) and least < _RARE
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = held.cast(pa.float64())
        is_whole = bool(pc.all(pc.equal(numbers, pc.round(numbers))).as_py())
        if not is_whole or len(counts) > _FEW:
            return LabelRole(table, name, "number", why)
        return LabelRole(table, name, "class", why, is_counted=True, is_rare=is_rare)
    return LabelRole(table, name, "class", why, none=none, is_rare=is_rare)


def not_weight(table: GivenTable) -> str:
    """Return the reason why a column called weight cannot be read as weights; "" where it can, or is not there."""
    if "weight" not in table.columns:
        return ""
    column = combine(table.rows["weight"])
    if not holds_numbers(column.type):
        return f"its column weight is {'text' if holds_text(column.type) else column.type}, no numbers"
    numbers = floats_of(column)
    if np.isnan(numbers).any():
        return "its column weight has gaps"
    return "its column weight has negative numbers" if (numbers < 0).any() else ""


def find_split(table: GivenTable, taken: set[str]) -> str | None:
    """Return the column that says train, valid or test, whatever its name; None without one, or with several."""
    said = [name for name in table.columns if name not in taken and {"train", "valid"} <= _names_of_splits(table, name)]
    named = [name for name in said if split_words(name) in _SPLIT] or said
    return named[0] if len(named) == 1 else None


def _names_of_splits(table: GivenTable, name: str) -> set[str]:
    """Return the values of a column that holds nothing but names of splits; none of another."""
    held = combine(table.rows[name]).drop_null()
    if not holds_text(plain(held.type)):
        return set()
    values = pc.unique(held.cast(pa.large_string())).to_pylist()
    return {*values} if {*values} <= {*SPLITS} else set()


def find_features(table: GivenTable, taken: set[str]) -> tuple[list[FeatureRole], dict[str, str]]:
    """Return the feature columns of a table, and for every other free column the reason why it is none."""
    found: list[FeatureRole] = []
    left: dict[str, str] = {}
    for name in table.columns:
        if name in taken:
            continue
        role = _OF_SPLITS if _names_of_splits(table, name) else _feature_of(table, name)
        if isinstance(role, str):
            left[name] = role
        else:
            found.append(role)
    return found, left


def _feature_of(table: GivenTable, name: str) -> FeatureRole | str:
    """Return the role of a column as a feature, or the reason why it is none."""
    column = combine(table.rows[name])
    held, kind = column.drop_null(), plain(column.type)
    share = column.null_count / max(len(column), 1)
    note = f"{share:.0%} missing" if share else ""
    if re.fullmatch(_PANDAS_INDEX, name):
        return "the index of pandas, which only counts rows"
    if not len(held):
        return "empty in the rows that were read"
    if holds_lists(kind):
        return FeatureRole(name, "embedding" if holds_numbers(kind.value_type) else "multicategorical", note)
    if holds_times(kind):
        return FeatureRole(name, "timestamp", note=note, keys={"kind": "timestamp"})
    if not (holds_numbers(kind) or holds_text(kind)):
        return f"of type {kind}, which is no feature"
    return _scalar_feature(table, name, column, note=note)


def _codes_in(text: pa.Array) -> pa.Array:
    """Return integers as they are written; none where no integer has leading zeros, as codes have."""
    has_zeros = pc.any(pc.match_substring_regex(text, LEADING_ZEROS)).as_py()
    return text if has_zeros else text.slice(0, 0)


def _code_feature(name: str, codes: pa.Array, *, note: str) -> FeatureRole | str:
    different = len(pc.unique(codes))
    if different > _ALIKE * len(codes) and different > _FEW:
        return "of codes, with leading zeros, that are different in each row"
    first = codes.filter(pc.match_substring_regex(codes, LEADING_ZEROS))[0].as_py()
    return FeatureRole(name, "categorical", note, keys={"kind": "categorical"}, assumed=f"{_CODES_ASSUMED} {first!r}")


def _scalar_feature(table: GivenTable, name: str, column: pa.Array, *, note: str) -> FeatureRole | str:
    held, kind = column.drop_null(), plain(column.type)
    different = len(pc.unique(held))
    if different == 1 and not note:
        return "the same in all rows that were read"
    if not holds_numbers(kind):
        return _text_feature(name, held, different=different, note=note)
    if name in table.padded and len(codes := _codes_in(table.texts(name))):
        return _code_feature(name, codes, note=note)
    if _only_names_rows(name, kind, is_unique=different == len(column)):
        return "different in each row"
    if split_words(name)[-1:] == ("id",):
        keys = {"kind": "categorical"}
        return FeatureRole(name, "categorical", note, keys=keys, assumed=_NAMES_ASSUMED)
    return FeatureRole(name, "numerical", note)


def _only_names_rows(name: str, kind: pa.DataType, *, is_unique: bool) -> bool:
    """Return whether a column numbers its rows, by its name and its values."""
    is_id = name == INDEX or bool(_NUMBERED & {*split_words(name)[-1:]})
    return is_id and is_unique and pa.types.is_integer(kind)


def _text_feature(name: str, held: pa.Array, *, different: int, note: str) -> FeatureRole | str:
    text = held.cast(pa.large_string())
    if bool(pc.all(pc.match_substring_regex(text, _DATE)).as_py()):
        return FeatureRole(name, "timestamp", note=note, keys={"kind": "timestamp"})
    if bool(pc.all(pc.match_substring_regex(text, _OTHER_DATE)).as_py()):
        return _formed(name, text, "timestamp", note=note) or _UNKNOWN_DATES
    separated = pc.mean(pc.match_substring(text, "|").cast(pa.float64())).as_py()
    if separated > _SEPARATED:
        keys = {"kind": "multicategorical", "separator": "|"}
        return FeatureRole(name, "multicategorical", note=note, keys=keys)
    if (numeric := _numeric_text(name, text, note=note)) is not None:
        return numeric
    if different > _ALIKE * len(text) and different > _FEW:
        return "different in each row"
    return FeatureRole(name, "categorical", note=note)


def _formed(
    name: str, text: pa.Array, kind: Literal["numerical", "timestamp"], *, note: str
) -> FeatureRole | str | None:
    """Return the role of amounts or dates in one form, or the question which form they have; None in none of all."""
    forms = find_forms(text, kind)
    if len(forms) == 1:
        return FeatureRole(name, kind, note, keys=forms[0])
    lines = " or ".join(config_line({name: form}) for form in forms)
    return f"its values may be read in several ways, set columns: {lines}" if forms else None


def _numeric_text(name: str, text: pa.Array, *, note: str) -> FeatureRole | str | None:
    """Return the role of text that is mostly numbers, or the reason why it is no feature; None for other text."""
    words, unreadable = int(words_of(text).sum()), text.filter(pa.array(numbers_of(text).unreadable))
    if words > _NUMBERS * len(text):
        return None
    if not len(unreadable) and len(codes := _codes_in(text)):
        return _code_feature(name, codes, note=note)
    if not len(unreadable):
        return FeatureRole(name, "numerical", note, keys={"kind": "numerical"})
    if pc.all(pc.match_substring_regex(unreadable, _VERSION)).as_py():
        return FeatureRole(name, "categorical", note, keys={"kind": "categorical"}, assumed=_VERSIONS_ASSUMED)
    if 2 * words < len(unreadable):
        unread = f"of amounts as text, such as {unreadable[0].as_py()!r}: write them as 1234.5, without units"
        return _formed(name, text, "numerical", note=note) or unread
    return "of numbers with other words among them: write null for these, or name its kind in graph.columns"
