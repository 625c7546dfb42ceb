"""Refuses a relative workspace that would land in a folder of Airflow, and tables that are Airflow's own files.

Airflow starts its processes where it likes, in its image in its home. A relative workspace would then lie
among Airflow's logs and DAGs, elsewhere for each process, and would be lost with a container.

Its home holds its settings, its passwords and, by default, its database with all connections. Whoever fills in a form
may name a table, and would see in predictions and errors what only Airflow's processes may read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gnnflow.config.deployment import anchored
from gnnflow.graph.errors import ConfigError, GnnflowError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HOME = "Airflow's home"


def refuse_own_folders(workspace: str) -> None:
    """Raise ConfigError if a relative workspace lies in Airflow's home, package, or folder of DAGs, plugins or logs."""
    from gnnflow.storage.filesystem import is_below

    scheme, mark, path = workspace.rpartition("://")
    if (mark and scheme not in {"file", "local"}) or Path(path).expanduser().is_absolute():
        return
    place = anchored(workspace)
    for name, folder in _own_folders().items():
        if is_below(place, folder):
            raise ConfigError(
                f"{workspace!r} is relative, and here it would be {place}, in {name} {folder}",
                where="workspace",
                fix="Set it to an absolute path or a URL that all processes reach, in the config or for all by the "
                "environment variable GNNFLOW_WORKSPACE.",
            )


def refuse_own_tables(tables: Mapping[str, str]) -> None:
    """Raise ConfigError if a file of a table lies directly in Airflow's home, or below another folder of Airflow.

    Links and patterns are followed. tables: the places of tables by config key; URLs of other machines are passed over.
    """
    from gnnflow.storage.filesystem import absolute

    own = {name: Path(absolute(folder)).resolve() for name, folder in _own_folders().items()}
    for key, uri in tables.items():
        for place in _local_files(uri):
            file = Path(absolute(place)).resolve()
            for name, folder in own.items():
                if file.parent == folder if name == _HOME else folder in file.parents:
                    raise ConfigError(
                        f"{uri!r} reads {file}, which lies in {name} {folder}, whose files are no tables",
                        where=key,
                        fix="Put tables into a folder of their own.",
                    )


def _local_files(uri: str) -> Sequence[str]:
    """Return the files of a table on this machine; its place where they cannot be told, which its stage refuses."""
    from gnnflow.storage.filesystem import is_local
    from gnnflow.storage.table_files import find_table_files

    try:
        if not is_local(uri):
            return []
    except GnnflowError:
        return []
    try:
        return [file.uri for file in find_table_files(uri).files]
    except GnnflowError:
        return [uri]


def _own_folders() -> dict[str, str]:
    """Return Airflow's folders by what they are."""
    import airflow
    from airflow.sdk.configuration import conf

    found = {
        _HOME: os.environ.get("AIRFLOW_HOME", "~/airflow"),
        "Airflow's folder of DAGs": conf.get("core", "dags_folder", fallback=""),
        "Airflow's folder of plugins": conf.get("core", "plugins_folder", fallback=""),
        "Airflow's folder of logs": conf.get("logging", "base_log_folder", fallback=""),
        "Airflow's package": str(Path(str(airflow.__file__)).parent),
    }
    return {name: folder for name, folder in found.items() if folder}
