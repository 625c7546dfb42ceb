"""Reads a `Config`: YAML, overrides, the environment, paths of tables, validation, the limits of this process.

Overrides come before the environment, so that a key set on the command line no longer needs its variable. Variables
are replaced in files and overrides only: a form's text is taken as it is. Paths of a file's tables are relative to the
file (`places.py`). The workspace comes from `--workspace`, the config, GNNFLOW_WORKSPACE or is `runs`, in this order.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnnflow.config.base import published_name
from gnnflow.config.cluster_section import AddressCluster
from gnnflow.config.collecting import read_all
from gnnflow.config.deployment import Deployment, anchored, default_workspace
from gnnflow.config.edge_tables import EdgeTableConfig
from gnnflow.config.environment import UnreadText, apply_overrides, expand, mask_values, override_of
from gnnflow.config.graph_section import GraphConfig
from gnnflow.config.messages import Finding, join_errors, path_text
from gnnflow.config.places import Places, place_tables
from gnnflow.config.root import Config
from gnnflow.config.yaml_text import read_yaml, refuse_oversized
from gnnflow.graph.errors import ConfigError

EXPERIMENT_KEYS = ("matrix", "seeds")
"""The keys of an experiment (`experiments.py`) that the config of one run lacks."""
_KINDS = {str: "text", list: "a list", int: "a number", float: "a number", bool: "true or false"}


def load_config(
    text: str,
    *,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    source: str = "",
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Return the validated configuration of a YAML text.

    `overrides` are `key.path=value`; `workspace` replaces the key of that name; `environment` replaces the
    process's own. `source` is the text's path or URL: its name in errors, and its folder is where relative paths
    begin. Raises ConfigError naming the YAML path, the value and what is allowed.
    """
    raw = values_of(text, source=source)
    here = os.environ if environment is None else environment
    return config_from_dict(raw, overrides=overrides, workspace=workspace, source=source, environment=here)


def values_of(text: str, *, source: str) -> dict[str, Any]:
    """Return the keys of a YAML text. Raises ConfigError for another value, and for an experiment."""
    return refuse_experiment(read_yaml(text, source=source or "config"), source=source)


def refuse_experiment(raw: Any, *, source: str) -> dict[str, Any]:
    """Return the keys of one run's config. Raises ConfigError for another value, and for an experiment."""
    if not isinstance(raw, dict):
        found = "it is empty" if raw is None else f"it is {_KINDS.get(type(raw), 'something else')}"
        raise ConfigError(
            f"a config is a mapping of keys and {found}", where=source, fix="Start with `name:` and `graph:`."
        )
    if own := [key for key in EXPERIMENT_KEYS if key in raw]:
        raise ConfigError(
            f"{own[0]} is a key of experiments, which are several runs",
            where=source,
            fix=f"Run them with `gnnflow sweep CONFIG`, or leave {own[0]} out.",
        )
    return raw


def config_from_dict(
    raw: Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    source: str = "",
    environment: Mapping[str, str] | None = None,
    applied: Sequence[str] = (),
) -> Config:
    """Return the validated configuration of plain values, as `load_config` does of a text.

    environment: the values of variables, for values of a file; None leaves every text as it is. applied: overrides that
    the values hold already.
    """
    read = read_values(
        raw, overrides=overrides, workspace=workspace, source=source, environment=environment, applied=applied
    )
    if read.config is None or read.errors:
        raise join_errors(read.errors, source=source)
    return read.config


@dataclass(frozen=True)
class PartialConfig:
    """A config as far as it could be read; config is None where no tables are known.

    removed: wrong keys that were left out. places: where its tables are looked for.
    """

    config: Config | None
    errors: tuple[ConfigError, ...] = ()
    removed: tuple[str, ...] = ()
    places: Places = field(default_factory=Places)


def read_config(
    text: str, *, overrides: Sequence[str] = (), workspace: str | None = None, source: str = ""
) -> PartialConfig:
    """Return the configuration of a YAML text without its wrong keys, and an error for each.

    Raises ConfigError for a text that is no mapping of keys.
    """
    raw = values_of(text, source=source)
    return read_values(raw, overrides=overrides, workspace=workspace, source=source, environment=os.environ)


def read_values(
    raw: Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    source: str = "",
    environment: Mapping[str, str] | None = None,
    applied: Sequence[str] = (),
) -> PartialConfig:
    """Return the configuration of plain values without its wrong keys, and an error for each.

    environment, applied: as of `config_from_dict`.
    """
    refuse_oversized(raw, source=source or "config")
    unread: list[UnreadText] = []
    values = apply_overrides(dict(raw), overrides)
    if workspace is not None:
        values.pop("workspace", None)  # its variables need not be set
    if environment is not None:
        values = expand(values, environment, unread=unread)
    if workspace is not None:
        values = {**values, "workspace": workspace}
    said = [*applied, *overrides]
    values, places = place_tables(values, source=source, overrides=said)
    reading, unset = read_all(values), {each.error.where: each for each in unread}
    findings = [found for found in reading.findings if path_text(found.path) not in unset]
    errors = [each.error for each in unread]
    errors += [mask_values(_error_of(found, said, raw, source=source), values) for found in findings]
    removed = (*reading.removed, *unset, *(each.text for each in unread))
    config = reading.config
    if config is not None:
        try:
            config = _apply_deployment(config, Deployment.here())
        except ConfigError as error:
            config, errors = None, [*errors, mask_values(error, values)]
    return PartialConfig(config, tuple(errors), removed, places)


def _error_of(found: Finding, overrides: Sequence[str], raw: Mapping[str, Any], *, source: str) -> ConfigError:
    """Return the error of a mistake in the file `source`, or in the override of it that set the key."""
    override = override_of(found.path, raw, overrides) if source else ""
    if not override:
        return found.error(source=source)
    key = path_text(found.path)
    is_named = override.partition("=")[0].strip() == key
    return ConfigError(found.problem, where=f"--set {override}" + ("" if is_named else f": {key}"), fix=found.fix)


def workspace_of(
    raw: Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Return the workspace that plain values name, without reading their other keys.

    Raises ConfigError for one that cannot be used here. environment: as of `config_from_dict`.
    """
    named = named_workspace(raw, overrides=overrides, workspace=workspace, environment=environment)
    deployment = Deployment.here()
    deployment.check_location(named, where="workspace")
    return anchored(named) if deployment.service else named


def named_workspace(
    raw: Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Return the workspace as plain values name it, relative where they do, or the default. Arguments: `workspace_of`.

    Raises ConfigError if it is not a text.
    """
    own = [each for each in overrides if each.partition("=")[0].strip() == "workspace"]
    named = workspace or apply_overrides(dict(raw), own).get("workspace") or default_workspace()
    if workspace is None and environment is not None:
        named = expand(named, environment, where="workspace")
    if not isinstance(named, str):
        raise ConfigError(f"{named!r} is not a location", where="workspace", fix="Give a folder or a URL.")
    return named


def _apply_deployment(config: Config, deployment: Deployment) -> Config:
    """Return the config as this process runs it. Raises ConfigError for values that it does not allow.

    Where work is sent to other processes (a service, a running cluster) local paths become absolute here: a relative
    one would mean another folder in each of them.
    """
    if ":" in config.model.kind:
        deployment.check_module(config.model.kind)
    if ":" in config.neighbors.kind:
        deployment.check_module(config.neighbors.kind, where="neighbors.kind")
    if ":" in config.train.loss.kind:
        deployment.check_module(config.train.loss.kind, where="train.loss.kind")
    if ":" in config.cluster.kind:
        deployment.check_module(config.cluster.kind, where="cluster.kind")
    if isinstance(config.cluster, AddressCluster):
        deployment.check_scheduler(config.cluster.address, where="cluster.address")
    if deployment.service or config.cluster.is_elsewhere:
        config = make_paths_absolute(config)
    for where, uri in _locations(config).items():
        deployment.check_location(uri, where=where)
    return config


def make_paths_absolute(config: Config) -> Config:
    """Return the config with absolute local paths, which every process of this machine can use."""
    graph = {name: _anchored(getattr(config.graph, name), config.graph) for name in ("nodes", "edges")}
    update = {"workspace": anchored(config.workspace), "graph": config.graph.model_copy(update=graph)}
    if (start := _start_location(config)) is not None:
        update["train"] = config.train.model_copy(update={"start": anchored(start)})
    return config.model_copy(update=update)


def _start_location(config: Config) -> str | None:
    """Return the path or URL that training starts from; None for a published model or none."""
    start = config.train.start
    return None if start is None or published_name(start) is not None else start


def _anchored(table: Any, graph: GraphConfig) -> Any:
    """Return locations as absolute ones; null, and the name of a node type, whose table is read, stay."""
    if table is None:
        return None
    if isinstance(table, str):
        return anchored(table)
    if isinstance(table, EdgeTableConfig):
        return table if table.table in graph.nodes else table.model_copy(update={"table": anchored(table.table)})
    return {name: _anchored(each, graph) for name, each in table.items()}


def _locations(config: Config) -> dict[str, str]:
    """Return every location of a config by its key."""
    found = {"workspace": config.workspace}
    if (start := _start_location(config)) is not None:
        found["train.start"] = start
    graph = config.graph
    nodes = {"": graph.nodes} if isinstance(graph.nodes, str) else graph.node_tables
    edges = {"": graph.edges} if isinstance(graph.edges, str) else graph.edge_tables
    found |= {f"graph.nodes.{kind}".rstrip("."): uri for kind, uri in nodes.items() if uri}
    return found | {f"graph.edges.{relation}".rstrip("."): uri for relation, uri in edges.items()}
