"""Opens a table of text: its dialect and header are found, or said by the caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gnnflow.datasets.edge_headers import are_numbers, find_ends
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.storage.csv_blocks import CsvFile, open_csv
from gnnflow.storage.csv_dialects import Dialect
from gnnflow.storage.csv_forms import sample_rows, sniff_csv, with_decimals

_DECIMALS = ("", "comma", "point")
_PAIR = 2


@dataclass(frozen=True)
class TextChoices:
    """The form of a file that the caller gives; None and "" leave it to be found.

    decimal: comma or point.
    """

    sep: str | None = None
    header: bool | None = None
    encoding: str | None = None
    decimal: str = ""


@dataclass(frozen=True)
class TextFile:
    """An opened table of text."""

    file: CsvFile
    dialect: Dialect
    has_header: bool

    @property
    def text(self) -> str:
        """The form of the file in a few words; empty for a CSV as it is written mostly."""
        parts = [] if self.dialect.is_plain and self.dialect.separator == "," else [self.dialect.text]
        parts += [f"decimal commas in {', '.join(self.file.commas)}"] if self.file.commas else []
        parts += [] if self.has_header else ["no header"]
        return "".join(f"{part}; " for part in parts)


def open_text(path: str, said: TextChoices) -> TextFile:
    """Return a table of text with its first lines read.

    Raises ConfigError for a separator that cannot be one, TableError where the form cannot be known.
    """
    if said.sep is not None:
        _check_separator(said.sep, path)
    if said.decimal not in _DECIMALS:
        raise ConfigError(f"decimal is {said.decimal!r}", where=path, fix="Use comma or point.")
    dialect = sniff_csv(path, separator=said.sep, encoding=said.encoding)
    form: dict[str, Any] = {"separator": dialect.separator} if dialect.is_plain else {"dialect": dialect}
    file = open_csv(path, comments=True, **form)
    has_header = _has_header(file) if said.header is None else said.header
    if not has_header:
        file = open_csv(path, header=False, comments=True, **form)
    refuse_repeated(file.names, path)
    return TextFile(file, dialect, has_header)


def with_decimal_commas(opened: TextFile, said: TextChoices, *, ids: Sequence[str]) -> CsvFile:
    """Return the file with its columns of numbers that have a decimal comma; ids have none."""
    columns = [name for name in opened.file.names if name not in ids]
    return with_decimals(opened.file, decimal=said.decimal, columns=columns)


def refuse_repeated(names: Sequence[str], path: str) -> None:
    """Raise TableError where two columns have one name."""
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise TableError(f"two columns would have the name {repeated[0]!r}", where=path, fix="Rename one in the file.")


def _has_header(file: CsvFile) -> bool:
    """Return whether the first line has names: an ordinary row has numbers where its column has numbers."""
    # 1,5 is a number where commas do not separate
    if are_numbers([name if file.separator == "," else name.replace(",", ".") for name in file.names]):
        return False
    if find_ends(file.names) is not None:
        return True
    columns = list(zip(*(row for row in sample_rows(file) if len(row) == len(file.names)), strict=True))
    numbers = [
        name for name, held in zip(file.names, columns, strict=False) if are_numbers([name]) and are_numbers(held)
    ]
    # 0, 1, 2 are names that libraries give to columns without one
    counted = [[str(first + number) for number in range(len(numbers))] for first in (0, 1)]
    return not numbers or (len(numbers) >= _PAIR and numbers in counted)


def _check_separator(sep: str, path: str) -> None:
    if sep != "::" and (len(sep) != 1 or not sep.isascii() or sep in '"\r\n\0'):
        raise ConfigError(
            f"{sep!r} is not a separator",
            where=path,
            fix="Give one character, or tab, space, comma, semicolon or pipe.",
        )
