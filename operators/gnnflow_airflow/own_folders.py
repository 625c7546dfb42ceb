"""Refuses a relative workspace that would land in a folder of Airflow.

Airflow starts its processes where it likes, in its image in its home. A relative workspace would then lie
among Airflow's logs and DAGs, elsewhere for each process, and would be lost with a container.
"""

from __future__ import annotations

import os
from pathlib import Path

from gnnflow.config.deployment import anchored
from gnnflow.graph.errors import ConfigError


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


def _own_folders() -> dict[str, str]:
    """Return Airflow's folders by what they are."""
    import airflow
    from airflow.sdk.configuration import conf

    found = {
        "Airflow's home": os.environ.get("AIRFLOW_HOME", "~/airflow"),
        "Airflow's folder of DAGs": conf.get("core", "dags_folder", fallback=""),
        "Airflow's folder of plugins": conf.get("core", "plugins_folder", fallback=""),
        "Airflow's folder of logs": conf.get("logging", "base_log_folder", fallback=""),
        "Airflow's package": str(Path(str(airflow.__file__)).parent),
    }
    return {name: folder for name, folder in found.items() if folder}
