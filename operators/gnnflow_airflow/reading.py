"""Read and check configs for DAGs, and write them to files for other tasks."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gnnflow.config import Config

ConfigSource = str | os.PathLike[str] | Mapping[str, Any]
"""A task's config: the path or URL of a YAML file, a dict, or YAML text."""
_PREPARED = re.compile(r"/configs/[^/]*-([0-9a-f]{64})\.yaml$")


def read_config(
    given: ConfigSource,
    *,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    read: Callable[[str], str] | None = None,
    is_run: bool = True,
) -> Config:
    """Return a task's config. Raises ConfigError or StorageError, with texts for users.

    Variables, and classes that start a cluster, are read only in a file, since all others may come from a form: values,
    YAML text, overrides, workspace. read: a function that returns the text at a path or URL; by default `read_text`.
    is_run: as of `config_of`.
    """
    from gnnflow.config.loading import values_of

    if (values := given_values(given)) is not None:
        refuse_own_cluster(values)
        return config_of(values, overrides=overrides, workspace=workspace, is_run=is_run)
    uri = os.fspath(cast("str", given))
    text = (read or read_text)(uri)
    _refuse_changed(uri, text)
    return config_of(
        values_of(text, source=uri),
        overrides=overrides,
        workspace=workspace,
        environment=os.environ,
        source=uri,
        is_run=is_run,
    )


def _refuse_changed(uri: str, text: str) -> None:
    """Raise ConfigError for a prepared config, which `keep_config` named by its content, that is no longer the same.

    Files may hold more than forms, and whoever fills in a form may write to its workspace.
    """
    from gnnflow.graph.errors import ConfigError

    named = _PREPARED.search(uri)
    if named and named[1] != _digest(text.encode()):
        raise ConfigError(
            "was changed since a task prepared it", where=uri, fix="Clear the first task, which writes it anew."
        )


def _digest(content: bytes) -> str:
    """Return the whole digest: of a part of it, two contents can be found that share it."""
    return hashlib.sha256(content).hexdigest()


def given_values(given: object) -> dict[str, Any] | None:
    """Return the values of a dict or of YAML text; None for the path or URL of a file.

    YAML text has several lines or stands in braces, as no path does. Raises ConfigError for anything else.
    """
    from gnnflow.config.loading import refuse_experiment, values_of
    from gnnflow.config.plain import plain_values
    from gnnflow.graph.errors import ConfigError

    if isinstance(given, Mapping):
        return refuse_experiment(plain_values(given), source="config")
    if isinstance(given, str) and ("\n" in given.strip() or given.lstrip().startswith("{")):
        return values_of(given, source="config")
    if isinstance(given, str | os.PathLike) and os.fspath(given).strip():
        return None
    found = "an empty text" if isinstance(given, str) else f"a {type(given).__name__}"
    raise ConfigError(
        f"{found} is not a config", where="config", fix="Give the path or URL of a YAML file, a dict, or YAML text."
    )


def config_of(
    values: Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    environment: Mapping[str, str] | None = None,
    source: str = "",
    is_run: bool = True,
) -> Config:
    """Return the config of plain values.

    environment, source: for variables and relative paths in the values, if these come from a file, the source. is_run:
    whether it is run as it is, here; its workspace and tables must then lie outside of Airflow's folders.
    """
    from gnnflow.config import config_from_dict
    from gnnflow.config.graph_section import table_key, tables_by_name
    from gnnflow.config.loading import make_paths_absolute, named_workspace
    from gnnflow_airflow.own_folders import refuse_own_folders, refuse_own_tables
    from gnnflow_airflow.service import as_service

    refuse_variables(overrides=overrides, workspace=workspace)
    with as_service():
        config = config_from_dict(
            values, overrides=overrides, workspace=workspace or None, environment=environment, source=source
        )
    if is_run:
        named = named_workspace(values, overrides=overrides, workspace=workspace or None, environment=environment)
        refuse_own_folders(named)
        refuse_own_tables({table_key(name): uri for name, uri in tables_by_name(config.graph).items()})
    return make_paths_absolute(config)


def refuse_variables(*, overrides: Sequence[str], workspace: str | None) -> None:
    """Raise ConfigError if a text that may come from a form names an environment variable, or starts a cluster."""
    from gnnflow.config.environment import apply_overrides
    from gnnflow.graph.errors import ConfigError

    for where, text in (*(("overrides", each) for each in overrides), ("workspace", workspace or "")):
        if "${" in text:
            raise ConfigError(
                f"{text.partition('=')[0]!r} holds a variable, and variables are read in config files only"
                if where == "overrides"
                else "holds a variable, and variables are read in config files only",
                where=where,
                fix="Write the value itself.",
            )
    refuse_own_cluster(apply_overrides({}, overrides))


def refuse_own_cluster(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if values that may come from a form name a class that starts a cluster, or its options.

    Options may hold commands that its workers run.
    """
    from gnnflow.graph.errors import ConfigError

    cluster = values.get("cluster")
    if isinstance(cluster, Mapping) and ("options" in cluster or ":" in str(cluster.get("kind", ""))):
        raise ConfigError(
            "a class that starts a cluster, and its options, could run any code, and are read in config files only",
            where="cluster",
            fix="Leave it out, or choose a config that sets it.",
        )


def refuse_what_stops(config: Config, *, is_elsewhere: bool) -> None:
    """Raise one GnnflowError for everything that would stop a run and is known before it begins, tables included.

    is_elsewhere: whether stages go to a cluster, whose workers check their libraries, devices and folders themselves.
    """
    from gnnflow.config.loading import PartialConfig
    from gnnflow.stages.check import check_run
    from gnnflow.stages.first_look import refuse_first
    from gnnflow.storage.refusals import locating
    from gnnflow_airflow.service import as_service

    with as_service(), locating(""):
        check_run(refuse_first(PartialConfig(config), here=() if is_elsewhere else None), is_elsewhere=is_elsewhere)


def read_text(uri: str) -> str:
    """Return the text of a file. Raises ConfigError if it is not UTF-8, StorageError if there is none."""
    from gnnflow.graph.errors import ConfigError
    from gnnflow.storage.filesystem import read_bytes

    try:
        return read_bytes(uri).decode()
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8 text", where=uri, fix="Save it as UTF-8; is it a YAML file?") from error


def list_yaml_files(folder: str) -> list[str]:
    """Return the YAML files directly in a folder (path or URL), sorted; none if there is no such folder."""
    from gnnflow.storage.filesystem import join, list_names

    return [join(folder, name) for name in list_names(folder) if name.endswith((".yaml", ".yml"))]


def read_chosen(name: Any, *, folder: str) -> dict[str, Any]:
    """Return what a file of a folder sets, by the file's name. Raises ConfigError if the folder has none of it.

    Only names are taken: a person could write a file elsewhere whose variables are then read. The workspace stays as
    the file names it, since the form may name another.
    """
    from gnnflow.config.loading import named_workspace, values_of
    from gnnflow.config.messages import show
    from gnnflow.graph.errors import ConfigError

    files = {uri.rsplit("/", 1)[-1]: uri for uri in list_yaml_files(folder)}
    if not isinstance(name, str) or name not in files:
        fix = f"Choose one of: {', '.join(files)}." if files else "Leave it out: the folder has none."
        raise ConfigError(f"{show(name)} is not a file of {folder}", where="config", fix=fix)
    raw = values_of(read_text(files[name]), source=files[name])
    config = config_of(raw, environment=os.environ, source=files[name], is_run=False)
    chosen = config.model_dump(mode="json", exclude_unset=True, exclude={"workspace"})
    return {**chosen, "workspace": named_workspace(raw, environment=os.environ)} if "workspace" in raw else chosen


def keep_config(config: Config) -> str:
    """Write a config into its workspace and return its URI, which tasks pass on instead of the values."""
    from gnnflow.config.environment import escape
    from gnnflow.storage.filesystem import absolute, join
    from gnnflow.storage.writing import write_atomic

    content = json.dumps(escape(config.model_dump(mode="json")), indent=1, sort_keys=True).encode()
    name = f"{config.name}-{_digest(content)}.yaml"
    uri = join(absolute(config.workspace), "configs", name)
    write_atomic(uri, content)
    return uri
