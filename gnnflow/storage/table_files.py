"""Finds the files of a user's table: one file, a folder's, or a glob's. Opens none.

The conventions are pyarrow.dataset's. Below the table's folder a name that starts with `_` or `.` is skipped, a
folder's as well as a file's (`_temporary`, `.ipynb_checkpoints`), and a folder called `key=value` gives every row under
it a column (hive partitioning). A path that exists is taken literally, also where it holds glob characters.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from fsspec.implementations.local import LocalFileSystem

from gnnflow.config.deployment import Deployment
from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import has_pattern, refuse_special, resolve
from gnnflow.storage.inner_tables import inner_part
from gnnflow.storage.refusals import located
from gnnflow.storage.snapshots import VERSIONED, snapshot_of
from gnnflow.storage.table_parts import TableFile, TableFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gnnflow.config.formats_section import CsvFormat
    from gnnflow.storage.table_parts import Format, Keys

_FORMATS: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "json",
    ".ndjson": "json",
    ".jsonl.gz": "json",
    ".ndjson.gz": "json",
}
# log folders that say which files of a table are current; some have common names, so their files are checked too
_LOGS = {**{each.log: each.name for each in VERSIONED}, ".hoodie": "Hudi", "_spark_metadata": "Spark's streaming"}
_FILES_OF_LOGS = {each.log: each.of_logs for each in VERSIONED if not each.log.endswith("_log")}
_EXTRAS = {each.log: each.extra for each in VERSIONED}
_FIX = "Write its current rows out as Parquet."
_WITH_A_GLOB = " Where nothing was ever deleted or replaced there, name the files by a glob such as *.parquet."
_LEVELS_ABOVE = 4  # a table's folder of data, and folders of partitions below it
_NULL_KEY = "__HIVE_DEFAULT_PARTITION__"


def format_of(name: str) -> Format | None:
    """Return the format by a file's suffix, in any case; None for another suffix."""
    lower = name.lower()
    return next((found for suffix, found in _FORMATS.items() if lower.endswith(suffix)), None)


@located
def find_table_files(uri: str, *, form: CsvFormat | None = None) -> TableFiles:
    """Return a table's files. Raises StorageError where there are none, and for pipes and devices.

    form: of files of CSV, where the config says it. Raises ConfigError where one of them, once links are followed, is
    in no place that this process allows.
    """
    found = _files_of(uri, form)
    if (here := Deployment.here()).urls is not None:
        for file in found.files:
            here.check_location(file.uri, where=uri)
    return found


def _files_of(uri: str, form: CsvFormat | None) -> TableFiles:
    if "\0" in uri:
        raise StorageError("a path cannot hold a NUL byte", where=repr(uri), fix="Check the path in the config.")
    if (part := inner_part(uri)) is not None:
        return TableFiles(uri, (TableFile(part.place, f"{part.place.rpartition('/')[2]}#{part.name}", part=part),))
    fs, path = resolve(uri)
    if not has_pattern(path) and (found := snapshot_of(uri)) is not None:
        return found
    chosen = _listed(fs, path, uri)
    return chosen if form is None else replace(chosen, files=tuple(replace(file, form=form) for file in chosen.files))


def _listed(fs: Any, path: str, uri: str) -> TableFiles:
    """Return the files of a table that lie in a folder, match a pattern, or are one."""
    try:
        is_glob = has_pattern(path) and not fs.exists(path)
        base, found = _below_a_glob(fs, path) if is_glob else _below(fs, path)
    except OSError as error:
        raise StorageError(
            f"cannot be listed ({error.strerror or type(error).__name__})",
            where=uri,
            fix="Check the path and its rights.",
        ) from error
    if found and not is_glob and base == path.rstrip("/"):
        _refuse_below_a_log(fs, uri, base)
    return _chosen(uri, base, sorted(found), asked=path, local=isinstance(fs, LocalFileSystem))


def _below(fs: Any, path: str) -> tuple[str, list[str]]:
    """Return the folder and the paths of files: the path itself, or all below it. Skips nothing."""
    try:
        kind = "directory" if isinstance(fs, LocalFileSystem) and Path(path).is_dir() else fs.info(path)["type"]
    except FileNotFoundError:
        return path, []
    if kind != "directory":
        if isinstance(fs, LocalFileSystem):
            refuse_special(path, Path(path).stat().st_mode)
        return path.rpartition("/")[0], [path]
    folder = path.rstrip("/")
    return folder, list(_walk(folder) if isinstance(fs, LocalFileSystem) else map(str, fs.find(folder)))


def _below_a_glob(fs: Any, path: str) -> tuple[str, list[str]]:
    parts = path.split("/")
    first = next(number for number, part in enumerate(parts) if has_pattern(part))
    matches = [str(match) for match in fs.glob(path)]
    return "/".join(parts[:first]), list({file for match in matches for file in _below(fs, match)[1]})


def _walk(folder: str) -> Iterator[str]:
    """Yield every file below a local folder, through links; a repeated folder ends in `/` and is not entered."""
    refuse_special(folder, stat.S_IFREG)
    seen: set[str] = set()
    for here, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        # links last, so that a link to a parent or a sibling counts as repeated
        folders.sort(key=lambda name: (Path(here, name).is_symlink(), name))
        again = [name for name in folders if _again(f"{here}/{name}", seen)]
        folders[:] = [name for name in folders if name not in again]
        yield from (f"{here}/{name}" for name in names)
        yield from (f"{here}/{name}/" for name in again)


def _again(folder: str, seen: set[str]) -> bool:
    real = os.path.realpath(folder)
    before = real in seen
    seen.add(real)
    return before or folder.startswith(f"{real}/")


def _raise(error: OSError) -> None:
    raise error


def _chosen(uri: str, base: str, found: Sequence[str], *, asked: str, local: bool) -> TableFiles:
    scheme = _scheme_of(uri)
    files: list[TableFile] = []
    skipped: list[str] = []
    seen: set[tuple[int, int]] = set()
    by_word = any(part.startswith(("_", ".")) for part in asked[len(base) :].split("/"))
    for path in found:
        name = path[len(base) :].lstrip("/")
        hidden = any(part.startswith(("_", ".")) for part in name.split("/")) and not by_word
        left_out = hidden or path.endswith("/") or format_of(name) is None
        if path != asked and (left_out or (local and _linked_again(path, seen))):
            skipped.append(name)
            continue
        keys = () if path == asked else _keys_of(name)
        files.append(TableFile(scheme + path if scheme and "://" not in path else path, name, keys))
    if any(format_of(file.name) != "json" for file in files):  # JSON lines next to a table may be anything
        skipped += [file.name for file in files if format_of(file.name) == "json"]
        files = [file for file in files if format_of(file.name) != "json"]
    log = _log_among(skipped)
    if log or not files:
        _refuse_logged(uri, log, "is a table")
        instead = f" ({len(skipped)} files there are hidden or of another format)" if skipped else ""
        raise StorageError(
            f"no such table{instead}", where=uri, fix=f"Give a file, a folder or a glob of {', '.join(_FORMATS)} files."
        )
    _refuse_copies(uri, files)
    return TableFiles(uri, tuple(files), tuple(skipped))


def _scheme_of(uri: str) -> str:
    return uri.split("://", 1)[0] + "://" if "://" in uri else ""


def _linked_again(path: str, seen: set[tuple[int, int]]) -> bool:
    try:
        status = Path(path).stat()
    except FileNotFoundError as error:
        fix = "Remove it, or bring its file back."
        raise StorageError("is a link to a file that is not there", where=path, fix=fix) from error
    refuse_special(path, status.st_mode)
    file = (status.st_dev, status.st_ino)
    before = file in seen
    seen.add(file)
    return before


def _keys_of(name: str) -> Keys:
    parts = [part.partition("=") for part in name.split("/")[:-1]]
    keys = {key: unquote(value) for key, equals, value in parts if key and equals}
    return tuple((key, None if value == _NULL_KEY else value) for key, value in keys.items())


def _log_among(names: Iterable[str]) -> str:
    """Return the log folder that one of these names lies in; "" where none does."""
    for name in names:
        *folders, last = name.split("/")
        for log in _LOGS.keys() & set(folders):
            if log not in _FILES_OF_LOGS or (folders[-1] == log and last.endswith(_FILES_OF_LOGS[log])):
                return log
    return ""


def _refuse_logged(uri: str, log: str, beginning: str) -> None:
    """Raise StorageError for a table with a log of its current files: other files may hold deleted rows."""
    if log:
        raise StorageError(
            f"{beginning} of {_LOGS[log]}: its current files are listed in {log}, which gnnflow does not read",
            where=uri,
            fix=_fix_of(log) + _WITH_A_GLOB * (log != "_versions"),
        )


def _fix_of(log: str) -> str:
    if log not in _EXTRAS:
        return _FIX
    return f"Name the table's root, which its library reads (pip install 'gnnflow[{_EXTRAS[log]}]'), or: {_FIX}"


def _refuse_below_a_log(fs: Any, uri: str, folder: str) -> None:
    """Raise StorageError for a folder inside of a table with a log: a partition, or its folder of data."""
    above = folder
    for _ in range(_LEVELS_ABOVE):
        above = above.rpartition("/")[0]
        if not above.strip("/"):
            return
        with suppress(OSError):  # the table may be readable where the folder above it is not
            names = _names_in(fs, above)
            siblings = [f"{name}/any" for name in names]
            for log in _FILES_OF_LOGS.keys() & {*names}:
                siblings += [f"{log}/{name}" for name in _names_in(fs, f"{above}/{log}")]
            _refuse_logged(uri, _log_among(siblings), f"lies in {above}, a table")


def _names_in(fs: Any, folder: str) -> list[str]:
    try:
        return [str(path).rstrip("/").rpartition("/")[2] for path in fs.ls(folder, detail=False)]
    except FileNotFoundError:
        return []


def _refuse_copies(uri: str, files: Sequence[TableFile]) -> None:
    """Raise StorageError where a folder holds files of two formats, likely with the same rows twice."""
    formats = {format_of(file.name): file.name for file in reversed(files)}
    # a file of each name without its suffix
    stems: dict[str, str] = {}
    for file in files:
        suffix = max((each for each in _FORMATS if file.name.lower().endswith(each)), key=len, default="")
        twin = stems.setdefault(file.name[: len(file.name) - len(suffix)], file.name)
        if len(formats) > 1 or twin != file.name:
            pair = sorted(formats.values())[:2] if len(formats) > 1 else [twin, file.name]
            raise StorageError(
                f"holds {pair[0]} and {pair[1]}, which may be the same rows twice",
                where=uri,
                fix="Keep one of them there, or name the files by a glob such as *.parquet.",
            )
