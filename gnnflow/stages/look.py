"""All that is known about a run before it begins, and the lines that tell it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gnnflow.graph.errors import GnnflowError, printable
from gnnflow.ingest.preview_targets import Counted
from gnnflow.report.formats import bytes_text
from gnnflow.stages.leaks import Leak

_LEAST = 0.001  # the least share that one decimal shows
_WIDTHS = (24, 14, 28, 9)


@dataclass(frozen=True)
class ColumnLook:
    """One column. role: its part in the run, or its kind where it is not read. missing: the share of nulls."""

    name: str
    type: str
    role: str
    missing: float
    examples: tuple[str, ...]


@dataclass(frozen=True)
class TableLook:
    """One table. rows: all of them, estimated where is_exact is false. sampled: the rows that were read.

    form: its version, or the form of its files of CSV; "" for the usual one.
    edges: of these, the edges of a relation that takes some rows of the table; None for another table.
    """

    key: str
    uri: str
    files: int
    num_bytes: int
    rows: int
    is_exact: bool
    sampled: int
    columns: tuple[ColumnLook, ...]
    form: str = ""
    edges: int | None = None


@dataclass(frozen=True)
class Look:
    """All that is known about a run before it begins.

    stops: what would stop it. notes: what would make its scores poor. leaks: the inputs that tell the class, which
    notes say too. kinds: what was chosen where a section has several, such as `model sage`. keys: for each section the
    keys that apply, with its kind.
    """

    name: str
    stops: tuple[GnnflowError, ...]
    tables: tuple[TableLook, ...] = ()
    targets: Counted = field(default_factory=Counted)
    target_text: str = ""
    splits_text: str = ""
    times: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    leaks: tuple[Leak, ...] = ()
    stages: tuple[str, ...] = ()
    cluster: str = ""
    kinds: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        stops = [error.document() for error in self.stops]
        held = {name: getattr(self, name) for name in ("name", "times", "notes", "stages", "cluster", "keys")}
        return {
            **held,
            "stops": stops,
            "tables": [asdict(table) for table in self.tables],
            "targets": asdict(self.targets),
        }

    def lines(self, *, keys: bool = False) -> Iterator[str]:
        """Yield the lines that a person reads. keys: also the keys that apply in each section."""
        for table in self.tables:
            yield from _table_lines(table)
            yield ""
        for name, text in (
            ("targets", self.target_text),
            ("classes", _counts_text(self.targets.classes)),
            ("splits", self.splits_text or _counts_text(self.targets.splits)),
            ("times", "; ".join(self.times)),
            ("stages", ", ".join(self.stages)),
            ("cluster", self.cluster),
            ("kinds", f"{', '.join(self.kinds)} (check --keys shows the keys of each)" if self.kinds else ""),
        ):
            if text:
                yield f"{name:10}{text}"
        for line in self.keys if keys else ():
            yield f"{'keys':10}{line}"
        for line in self.notes:
            yield f"{'note':10}{line}"
        yield ""
        if not self.stops:
            yield "Nothing that can be seen in the config and in these rows stops the run."
            return
        yield f"{len(self.stops)} thing{'s' * (len(self.stops) > 1)} would stop the run:"
        for number, error in enumerate(self.stops, 1):
            yield f"{number:3}. {error}"


def _table_lines(table: TableLook) -> Iterator[str]:
    rows = f"{table.rows:,} rows" if table.is_exact else f"about {table.rows:,} rows"
    files = f"{table.files} file{'s' * (table.files != 1)}"
    read = "" if table.is_exact and table.sampled == table.rows else f", the first {table.sampled:,} rows read"
    form = f"; {table.form}" if table.form else ""
    read += "" if table.edges is None else f", {table.edges:,} of them edges of this relation"
    yield f"{table.key}  {table.uri}: {rows}, {bytes_text(table.num_bytes)}, {files}{read}{form}"
    heads = ("column", "type", "role", "missing")
    yield "  " + "".join(f"{head:{width}}" for head, width in zip(heads, _WIDTHS, strict=True)) + "examples"
    for column in table.columns:
        cells = (on_one_line(column.name), column.type, column.role, _share_text(column.missing))
        line = "".join(f"{_fit(cell, width):{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
        yield f"  {line}{', '.join(column.examples)}".rstrip()


def on_one_line(name: str) -> str:
    """Return the name of a column without breaks of lines."""
    return printable(name).replace("\n", "\\n")


def _fit(text: str, width: int) -> str:
    return text if len(text) < width else f"{text[: width - 4]}... "


def _share_text(share: float) -> str:
    if not share:
        return "-"
    return "<0.1 %" if share < _LEAST else f"{share:.1%}".replace("%", " %")


def _counts_text(counts: Any) -> str:
    shown: Sequence[tuple[str, int]] = list(counts.items())[:10]
    more = f" and {len(counts) - len(shown)} more" if len(counts) > len(shown) else ""
    text = ", ".join(f"{on_one_line(name)} {count:,}" for name, count in shown)
    return f"{text}{more} (in the rows that were read)" if text else ""
