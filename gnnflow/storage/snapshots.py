"""The current files of tables with versions: Delta Lake, Iceberg and Lance, as their own libraries list them.

Workers read the files of Delta Lake and Iceberg as other Parquet. So a table is refused by name where its files hold
deleted rows, or columns that have other names now.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.config.deployment import Deployment
from gnnflow.graph.errors import ConfigError, StorageError
from gnnflow.storage.filesystem import absolute, join, list_names, open_input, read_bytes
from gnnflow.storage.inner_tables import library_errors
from gnnflow.storage.table_parts import LibraryPart, TableFile, TableFiles

_PLAIN_FEATURES = frozenset(("timestampNtz", "v2Checkpoint"))  # others change what a file's rows mean
_MAPPING = "delta.columnMapping.mode"
_PARTITION = "partition."
_ROWS = "Write its current rows out as Parquet."
_IMPORT = f"gnnflow import iceberg:EDGES --nodes NODES reads it. Or: {_ROWS}"
_METADATA, _HINT = ".metadata.json", "version-hint.text"
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class Versioned:
    """A format of tables with versions. extra: of gnnflow, which installs the library. log: its folder of versions."""

    name: str
    module: str
    extra: str
    log: str
    of_logs: tuple[str, ...]
    files: Callable[[str], TableFiles]


def snapshot_of(uri: str) -> TableFiles | None:
    """Return the current files of a table with versions; None for another table.

    Raises ConfigError where the table's library is not installed, StorageError where its files do not hold its rows.
    """
    names: list[str] = []
    with suppress(StorageError):  # a place that cannot be listed is refused when its files are looked for
        names = list_names(uri)
    for kind in VERSIONED:
        if _is_one(uri, kind, names):
            library = kind.module.partition(".")[0]
            if find_spec(library) is None:
                raise ConfigError(
                    f"is a table of {kind.name}: its current files are listed in {kind.log}, and the library {library} "
                    "is not installed",
                    where=uri,
                    fix=f"Install it (pip install 'gnnflow[{kind.extra}]'), or: {_ROWS}",
                )
            found = kind.files(uri)
            if not found.files:
                raise StorageError(f"{found.snapshot} has no rows", where=uri, fix="Write its rows first.")
            return found
    return None


def _is_one(uri: str, kind: Versioned, names: Sequence[str]) -> bool:
    """Return whether a place is the root of a table of a format, or its metadata. names: directly below the place."""
    if kind.log == "metadata" and uri.endswith(_METADATA):
        return True
    return kind.log in names and any(name.endswith(kind.of_logs) for name in list_names(join(uri, kind.log)))


def _delta_files(uri: str) -> TableFiles:
    """Return the files of the newest version of a Delta Lake table.

    Raises StorageError for a table that cannot be opened, and for one whose files hold deleted rows or other columns.
    """
    deltalake = importlib.import_module("deltalake")
    with _opening(uri, "Delta Lake"):
        table = deltalake.DeltaTable(uri)
        protocol, options = table.protocol(), table.metadata().configuration
        features = {*(protocol.reader_features or ())} - _PLAIN_FEATURES
        actions: Any = pa.table(table.get_add_actions(flatten=True))
        version = table.version()
    if options.get(_MAPPING, "none") != "none":
        features.add("columnMapping")
    if features:
        raise StorageError(f"is a Delta Lake table with {', '.join(sorted(features))}", where=uri, fix=_ROWS)
    paths = [unquote(path) for path in actions["path"].to_pylist()]
    elsewhere = next((path for path in paths if "://" in path or path.startswith("/") or ".." in path.split("/")), None)
    if elsewhere is not None:
        raise StorageError(f"has the file {elsewhere}, which lies elsewhere", where=uri, fix=_ROWS)
    names = [name for name in actions.column_names if name.startswith(_PARTITION)]
    keys = [actions[name].cast(pa.string()).to_pylist() for name in names]
    columns = [name.removeprefix(_PARTITION) for name in names]
    held = zip(paths, zip(*keys, strict=True) if keys else [()] * len(paths), strict=True)
    files = [TableFile(join(uri, path), path, tuple(zip(columns, values, strict=True))) for path, values in held]
    return TableFiles(uri, _in_order(files), snapshot=f"version {version} of Delta Lake")


def _iceberg_files(uri: str) -> TableFiles:
    """Return the files of an Iceberg table's current snapshot.

    Raises StorageError for a table that cannot be opened, and for one whose files hold deleted rows or other columns.
    """
    table = open_iceberg(uri)
    with _opening(uri, "Iceberg"):
        current, tasks = table.current_snapshot(), list(table.scan().plan_files())
        schemas = [{each.field_id: each.name for each in schema.fields} for schema in table.metadata.schemas]
        names = {each.field_id: each.name for each in table.schema().fields}
    deleted = next((task.file.file_path for task in tasks if task.delete_files), None)
    if deleted is not None:
        raise StorageError(f"is an Iceberg table with deleted rows in {deleted}", where=uri, fix=_IMPORT)
    other = next((task.file for task in tasks if str(task.file.file_format.name) != "PARQUET"), None)
    if other is not None:
        raise StorageError(f"is an Iceberg table with {other.file_path}, not Parquet", where=uri, fix=_IMPORT)
    root = absolute(uri.rpartition("/metadata/")[0] if uri.endswith(_METADATA) else uri).rstrip("/")
    places = [absolute(task.file.file_path) for task in tasks]
    here = Deployment.here()
    for place in places:  # anywhere, as whoever wrote the table says
        here.check_location(place, where=uri)
    for place in places if any(each != names for each in schemas) else ():
        _refuse_other_columns(place, names, uri)
    files = [TableFile(place, place.removeprefix(f"{root}/")) for place in places]
    version = "an empty table" if current is None else f"snapshot {current.snapshot_id}"
    return TableFiles(uri, _in_order(files), snapshot=f"{version} of Iceberg")


def open_iceberg(uri: str) -> Any:
    """Return an Iceberg table, by its root or its metadata. Raises StorageError where it cannot be opened.

    Its own properties are not used to open files: they can name a class to import and call, or the address of a store,
    so whoever writes a table would decide what runs here.
    """
    tables, files, parsed, catalogs = (
        importlib.import_module(f"pyiceberg.{each}") for each in ("table", "io", "serializers", "catalog.noop")
    )
    place = absolute(uri if uri.endswith(_METADATA) else _newest_metadata(uri))
    where = place if "://" in place else f"file://{place}"
    with _opening(uri, "Iceberg"):
        io = files.load_file_io(location=where)
        return tables.StaticTable(
            identifier=(where,),
            metadata=parsed.FromInputFile.table_metadata(io.new_input(where)),
            metadata_location=where,
            io=io,
            catalog=catalogs.NoopCatalog(where),
        )


def _newest_metadata(root: str) -> str:
    """Return the current metadata of an Iceberg table, by version-hint.text or the largest number."""
    folder = join(root, "metadata")
    names = list_names(folder)
    if _HINT in names:
        hinted = f"v{read_bytes(join(folder, _HINT)).decode(errors='replace').strip()}{_METADATA}"
        if hinted in names:
            return join(folder, hinted)
    found = [name for name in names if name.endswith(_METADATA)]
    if not found:
        raise StorageError("has no metadata of Iceberg", where=root, fix="Name the table's root, or a .metadata.json.")

    def number(name: str) -> tuple[int, str]:
        return int("".join(filter(str.isdigit, name.split("-", maxsplit=1)[0].split(".", maxsplit=1)[0])) or 0), name

    return join(folder, max(found, key=number))


def _refuse_other_columns(place: str, names: Mapping[int, str], uri: str) -> None:
    """Raise StorageError where a file was written before a column was added, renamed or dropped."""
    with _opening(uri, "Iceberg"), open_input(place) as stream:
        schema = pq.ParquetFile(stream).schema_arrow
    own = {int((each.metadata or {}).get(_FIELD_ID, -1)): each.name for each in schema}
    if own != names:
        changed = sorted({*own.items()} ^ {*names.items()})
        raise StorageError(
            f"is an Iceberg table whose columns were changed after {place} was written: "
            f"{', '.join(dict.fromkeys(name for _, name in changed))}",
            where=uri,
            fix=_IMPORT,
        )


def _lance_files(uri: str) -> TableFiles:
    """Return the fragments of the newest version of a Lance table; its library leaves deleted rows out."""
    lance = importlib.import_module("lance")
    with _opening(uri, "Lance"):
        dataset = lance.dataset(uri)
        held = [(each.fragment_id, each.data_files()[0].path) for each in dataset.get_fragments()]
        version = int(dataset.version)
    files = [
        TableFile(join(uri, "data", path), f"data/{path}", part=LibraryPart("lance", uri, "", version, number))
        for number, path in held
    ]
    return TableFiles(uri, tuple(files), snapshot=f"version {version} of Lance")


def _in_order(files: list[TableFile]) -> tuple[TableFile, ...]:
    return tuple(sorted(files, key=lambda file: file.name))


def _opening(uri: str, kind: str) -> AbstractContextManager[None]:
    log = next(each.log for each in VERSIONED if each.name == kind)
    return library_errors(f"a table of {kind}, whose {log} it has", where=uri, fix=_ROWS, error=StorageError)


VERSIONED = (
    Versioned("Delta Lake", "deltalake", "delta", "_delta_log", (".json", ".parquet"), _delta_files),
    Versioned("Iceberg", "pyiceberg.table", "iceberg", "metadata", (_METADATA, _HINT), _iceberg_files),
    Versioned("Lance", "lance", "lance", "_versions", (".manifest",), _lance_files),
)
"""The formats of tables with versions that a library lists."""
