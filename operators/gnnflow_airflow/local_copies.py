"""Local copies of small files and of lists of names in object storage, for code in DAG files.

Airflow parses a DAG file every few seconds, and once more in the process of each task. So what lies in object storage
is read again only after GNNFLOW_MODELS_SECONDS, and at other times from this machine. An error is kept in the same way,
so that a missing file costs no request at each parse either. If storage does not answer, the copy before stays in use
and the log says so. Airflow ends a parse after half a minute, so an answer is waited for a few seconds only, and after
one that did not come nothing else is asked of that bucket in this parse. Local paths are read as they are.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from pathlib import Path
from typing import Any

from gnnflow.graph.errors import ConfigError, GnnflowError, MachineError, StorageError
from gnnflow_airflow.reading import list_yaml_files, read_text

_log = logging.getLogger(__name__)
_SECONDS = "GNNFLOW_MODELS_SECONDS"
_ERRORS: dict[str, type[GnnflowError]] = {each.__name__: each for each in (ConfigError, StorageError)}

_ANSWER_SECONDS = 10
_SILENT_SECONDS = 60
_silent: dict[str, tuple[float, GnnflowError]] = {}  # by scheme and bucket: when it did not answer, and the error


def text_near(uri: str) -> str:
    """Return the text of a file. Raises ConfigError if it is not UTF-8, StorageError if there is none."""
    return str(_near(uri, read_text, "text"))


def names_near(folder: str) -> list[str]:
    """Return the YAML files directly in a folder (path or URL), sorted; none if there is no such folder."""
    return list(_near(folder, list_yaml_files, "files"))


def _near(uri: str, read: Callable[[str], Any], kind: str) -> Any:
    """Return what a function reads from a URI, from its local copy where that is young enough."""
    from gnnflow.storage.filesystem import is_local

    if is_local(uri):
        return read(uri)
    copy = _folder() / f"{hashlib.sha256(f'{kind} {uri}'.encode()).hexdigest()[:32]}.json"
    before = _read_copy(copy)
    # not where it was read later than now: before the clock was set back, it would stay in use until then
    if before is not None and 0 <= time.time() - before["read"] < float(os.environ.get(_SECONDS, "300")):
        return _told(before)
    now: dict[str, Any] = {"uri": uri, "read": time.time()}
    try:
        now["content"] = _asked(uri, read)
    except GnnflowError as error:
        if before is not None and "content" in before and not _is_gone(error):
            _log.warning("%s: the copy of %s stays in use, since %s", uri, time.ctime(before["read"]), error)
            now["content"] = before["content"]
        else:
            now["error"] = [type(error).__name__, error.problem, error.where, error.fix]
    _write_copy(copy, now)
    return _told(now)


def _asked(uri: str, read: Callable[[str], Any]) -> Any:
    """Return what a function reads from a URI. Raises the error of before where its bucket has just not answered."""
    bucket = "/".join(uri.split("/")[:3])
    asked, error = _silent.get(bucket, (-_SILENT_SECONDS, None))
    if error is not None and time.monotonic() - asked < _SILENT_SECONDS:
        raise error
    try:
        return _answer(uri, read)
    except MachineError as failed:
        if not isinstance(failed.__cause__, PermissionError):  # which is an answer, and about this file alone
            _silent[bucket] = time.monotonic(), failed
        raise


def _answer(uri: str, read: Callable[[str], Any]) -> Any:
    """Return what a function reads from a URI, in a thread that is left alone if it takes too long."""
    answer = Future[Any]()

    def ask() -> None:
        try:
            answer.set_result(read(uri))
        except BaseException as error:  # noqa: BLE001 - raised where the answer is waited for
            answer.set_exception(error)

    threading.Thread(target=copy_context().run, args=(ask,), daemon=True).start()
    try:
        return answer.result(timeout=_ANSWER_SECONDS)
    except TimeoutError:
        if answer.done():
            raise
        raise MachineError(
            f"storage did not answer for {_ANSWER_SECONDS} s", where=uri, fix="Check its address and the network."
        ) from None


def _folder() -> Path:
    """Return the folder of the copies, which belongs to this user alone."""
    own = Path(tempfile.gettempdir()) / f"gnnflow-models-{os.getuid()}"
    folder = Path(os.environ.get("GNNFLOW_MODELS_COPIES") or own)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():  # a stranger's copies would decide what is trained
        raise StorageError(
            "belongs to another user", where=str(folder), fix="Name a folder of yours in GNNFLOW_MODELS_COPIES."
        )
    return folder


def _is_gone(error: GnnflowError) -> bool:
    """Return whether an error is about the file and not about the way to it."""
    return isinstance(error, ConfigError) or error.problem == "no such file"


def _told(copy: dict[str, Any]) -> Any:
    if "error" in copy:
        name, problem, where, fix = copy["error"]
        raise _ERRORS.get(name, StorageError)(problem, where=where, fix=fix)
    return copy["content"]


def _read_copy(copy: Path) -> dict[str, Any] | None:
    """Return a copy; None if there is none yet, or a damaged one."""
    try:
        return dict(json.loads(copy.read_text()))
    except (FileNotFoundError, ValueError):
        return None


def _write_copy(copy: Path, held: dict[str, Any]) -> None:
    """Replace a copy in one step, since other processes read it."""
    with tempfile.NamedTemporaryFile("w", dir=copy.parent, delete=False) as file:
        json.dump(held, file)
    Path(file.name).replace(copy)
