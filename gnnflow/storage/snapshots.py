"""The current files of a Delta Lake table, as its own library lists them where it is installed."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from gnnflow.graph.errors import StorageError

_PLAIN_FEATURES = frozenset(("timestampNtz", "v2Checkpoint"))  # others change what a file's rows mean
_MAPPING = "delta.columnMapping.mode"
_PARTITION = "partition."
_FIX = "Write its current rows out as Parquet."


@dataclass(frozen=True)
class Snapshot:
    """A table's version, and its current files below its folder with their keys, in the order of their names."""

    version: int
    files: tuple[tuple[str, tuple[tuple[str, str | None], ...]], ...]

    @property
    def text(self) -> str:
        """The version in words."""
        return f"version {self.version} of Delta Lake"


def has_delta() -> bool:
    """Return whether the library of Delta Lake is installed."""
    return importlib.util.find_spec("deltalake") is not None


def delta_snapshot(uri: str) -> Snapshot:
    """Return the newest version of a Delta Lake table.

    Raises StorageError for a table that cannot be opened, and for one whose files hold deleted rows or other columns.
    """
    import deltalake

    try:
        table = deltalake.DeltaTable(uri)
        protocol, options = table.protocol(), table.metadata().configuration
        features = {*(protocol.reader_features or ())} - _PLAIN_FEATURES
        actions: Any = pa.table(table.get_add_actions(flatten=True))
        version = table.version()
    except Exception as error:  # its library has errors without a common class
        raise StorageError(
            f"cannot be read as a Delta Lake table ({type(error).__name__})", where=uri, fix=_FIX
        ) from error
    if options.get(_MAPPING, "none") != "none":
        features.add("columnMapping")
    if features:
        raise StorageError(f"is a Delta Lake table with {', '.join(sorted(features))}", where=uri, fix=_FIX)
    paths = [unquote(path) for path in actions["path"].to_pylist()]
    elsewhere = next((path for path in paths if "://" in path or path.startswith("/")), None)
    if elsewhere is not None:
        raise StorageError(f"has the file {elsewhere}, which lies elsewhere", where=uri, fix=_FIX)
    names = [name for name in actions.column_names if name.startswith(_PARTITION)]
    keys = [actions[name].cast(pa.string()).to_pylist() for name in names]
    columns = [name.removeprefix(_PARTITION) for name in names]
    held = zip(paths, zip(*keys, strict=True) if keys else [()] * len(paths), strict=True)
    return Snapshot(version, tuple(sorted((path, tuple(zip(columns, values, strict=True))) for path, values in held)))
