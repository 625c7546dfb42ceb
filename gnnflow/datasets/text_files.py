"""Opens a table of text: its dialect and header are found, or said by the caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gnnflow.datasets.edge_headers import are_numbers, find_ends
from gnnflow.graph.errors import ConfigError
from gnnflow.storage.columns import refuse_repeated
from gnnflow.storage.csv_blocks import CsvFile, open_csv
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


def open_text(path: str, said: TextChoices) -> CsvFile:
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
    if not (_has_header(file) if said.header is None else said.header):
        file = open_csv(path, header=False, comments=True, **form)
    refuse_repeated(file.names, path)
    return file


def with_decimal_commas(file: CsvFile, said: TextChoices, *, ids: Sequence[str]) -> CsvFile:
    """Return the file with its columns of numbers that have a decimal comma; ids have none."""
    columns = [name for name in file.names if name not in ids]
    return with_decimals(file, decimal=said.decimal, columns=columns)


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
