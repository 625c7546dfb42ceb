"""Names a table's files, and the parts of files that the library of a format reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from gnnflow.config.formats_section import CsvFormat

LibraryFormat = Literal["sqlite", "duckdb", "excel", "lance"]
Format = Literal["parquet", "csv", "arrow", "json"] | LibraryFormat
Keys = tuple[tuple[str, str | None], ...]

_SHOWN = 3


@dataclass(frozen=True)
class LibraryPart:
    """The rows that a library reads from a place: a table or sheet by name, or a fragment of a version of Lance."""

    kind: LibraryFormat
    place: str
    name: str = ""
    version: int = 0
    fragment: int = 0


@dataclass(frozen=True)
class TableFile:
    """One file of a table.

    name: its path below the table's folder, or the name of a single file. keys: the columns in folder names. part: what
    a library reads of it. form: of CSV, where the config says it.
    """

    uri: str
    name: str
    keys: Keys = ()
    part: LibraryPart | None = None
    form: CsvFormat | None = None


@dataclass(frozen=True)
class TableFiles:
    """The files of a table in order, and the skipped names below its folder.

    snapshot: the version of a table that has versions; "" for others.
    """

    uri: str
    files: tuple[TableFile, ...]
    skipped: tuple[str, ...] = ()
    snapshot: str = ""

    @property
    def summary(self) -> str:
        """The files, key columns and skipped names in one line."""
        count, keys = len(self.files), dict.fromkeys(key for file in self.files for key, _ in file.keys)
        text = f"{count} file{'s' * (count > 1)} of {self.uri}"
        if self.snapshot:
            text += f", {self.snapshot}"
        if keys:
            text += f", with {', '.join(keys)} from the folders' names"
        if self.skipped:
            shown = ", ".join(self.skipped[:_SHOWN]) + (", ..." if len(self.skipped) > _SHOWN else "")
            text += f"; skipped {len(self.skipped)}: {shown}"
        return text
