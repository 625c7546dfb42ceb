"""The limits of this process, which environment variables set and no config can change.

A config reaches a service (Airflow, the pods of the chart) from people who may fill a form but not run code there, so
a service allows less than a command line, whose user could do everything without gnnflow too.

| variable | meaning | unset on the command line | unset in a service |
|---|---|---|---|
| GNNFLOW_SERVICE | 1: this process serves others | - | - |
| GNNFLOW_WORKSPACE | the workspace of configs that name none | runs | runs |
| GNNFLOW_MODULES | packages whose layers, losses, clusters may be imported | all | none |
| GNNFLOW_ENV_ALLOW | variables that `${VAR}` may read: names, and prefixes as NAME_* | all but secrets | GNNFLOW_* |
| GNNFLOW_ALLOWED_URLS | prefixes of tables and workspaces | all | local paths and object stores |
| GNNFLOW_DASK_ADDRESS | the scheduler that cluster.address may name in a service | - | none |

Lists are separated by spaces or commas.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from gnnflow.graph.errors import ConfigError
from gnnflow.graph.secrets import find_secret

DEFAULT_WORKSPACE = "runs"
_OFF = {"", "0", "false", "no"}
_OWN_LAYERS = "gnnflow.layers"
# The default of a service: local paths, and stores for which the service has keys.
_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "wasb", "wasbs", "hdfs", "memory", "file", "local")
_NO_PLACE = re.compile(r"[A-Za-z][\w+.-]*:/*")
_ONE_SLASH = re.compile(r"[A-Za-z][\w+.-]+:/(?!/)")  # s3:/bucket would be a folder called s3:
_SECRET_NAME = re.compile(
    r"SECRET|PASSW|PASSPHRASE|TOKEN|CREDENTIAL|(ACCESS|PRIVATE|API|ACCOUNT|STORAGE|SIGNING|FERNET|ENCRYPTION)_?KEY"
    r"|^AWS_.*KEY|_PASS$|_PWD$|^AIRFLOW_CONN_|SQL_ALCHEMY_CONN|_SAS$|CONNECTION_STRING",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Deployment:
    """The settings of this process; modules, variables and urls are None where they are not set."""

    service: bool = False
    workspace: str = DEFAULT_WORKSPACE
    modules: tuple[str, ...] | None = None
    variables: tuple[str, ...] | None = None
    urls: tuple[str, ...] | None = None
    scheduler: str = ""

    @staticmethod
    def here(environment: Mapping[str, str] | None = None) -> Deployment:
        """Return the settings of an environment; by default this process's."""
        said = os.environ if environment is None else environment
        return Deployment(
            service=said.get("GNNFLOW_SERVICE", "").strip().lower() not in _OFF,
            workspace=said.get("GNNFLOW_WORKSPACE", "") or DEFAULT_WORKSPACE,
            modules=_listed(said, "GNNFLOW_MODULES"),
            variables=_listed(said, "GNNFLOW_ENV_ALLOW"),
            urls=_listed(said, "GNNFLOW_ALLOWED_URLS"),
            scheduler=said.get("GNNFLOW_DASK_ADDRESS", ""),
        )

    def check_module(self, kind: str, *, where: str = "model.kind") -> None:
        """Raise ConfigError where `package.module:Name` may not be imported here."""
        module = kind.partition(":")[0]
        allowed = self.modules if self.modules is not None else (() if self.service else None)
        if allowed is None or any(_is_below(module, package) for package in (*allowed, _OWN_LAYERS)):
            return
        raise ConfigError(
            f"module {module!r} may not be imported here; allowed are: {', '.join(allowed) or 'none'}",
            where=where,
            fix="The operator of this service can allow its package in the environment variable GNNFLOW_MODULES.",
        )

    def check_variable(self, name: str, *, where: str) -> None:
        """Raise ConfigError where `${name}` may not be read here, or looks like a secret."""
        if self.variables is not None and name in self.variables:
            return
        if _SECRET_NAME.search(name):
            raise ConfigError(
                f"the environment variable {name} looks like a secret, and a config is copied into every run's record",
                where=where,
                fix="Storage libraries read keys from the environment themselves: leave it out. "
                "If it is not a secret, list its name in GNNFLOW_ENV_ALLOW.",
            )
        patterns = self.variables if self.variables is not None else (("GNNFLOW_*",) if self.service else ("*",))
        if not any(each.endswith("*") and name.startswith(each[:-1]) for each in patterns):
            raise ConfigError(
                f"the environment variable {name} may not be read here; allowed are: {', '.join(patterns) or 'none'}",
                where=where,
                fix="Write the value itself, or have the name listed in GNNFLOW_ENV_ALLOW.",
            )

    def check_location(self, uri: str, *, where: str) -> None:
        """Raise ConfigError for a path or URL that holds a secret or is not allowed here."""
        refuse_unusable(uri, where=where)
        if self.urls is None and not self.service:
            return
        if self.urls is None:
            scheme = uri.partition("://")[0] if "://" in uri else "file"
            allowed, shown = scheme in _STORES, f"local paths and {', '.join(_STORES)}"
        else:
            place = _plain_path(uri)
            inside = any(_starts_with(place, prefix) for prefix in self.urls)
            allowed, shown = inside and not _climbs(place), ", ".join(self.urls) or "none"
        # A chain such as `zip://a::http://b` reads from its last part.
        if not allowed or "::" in uri:
            raise ConfigError(
                f"{uri!r} is not allowed here; allowed are: {shown}",
                where=where,
                fix="Put it there, or have its prefix listed in the environment variable GNNFLOW_ALLOWED_URLS.",
            )

    def check_scheduler(self, address: str, *, where: str) -> None:
        """Raise ConfigError where a config may not name this Dask scheduler, which could run any code."""
        if self.service and address != self.scheduler:
            raise ConfigError(
                "a config may not name a Dask scheduler here: a process at that address could run any code",
                where=where,
                fix="Leave cluster out: the address comes from the connection (or from GNNFLOW_DASK_ADDRESS).",
            )


def default_workspace() -> str:
    """Return the workspace of configs that name none."""
    return Deployment.here().workspace


class LocationProblem(NamedTuple):
    """Why a path or URL is invalid, and what to do."""

    text: str
    fix: str


def location_problem(uri: str) -> LocationProblem | None:
    """Return the problem of an invalid path or URL; None for a valid one."""
    if any(ord(letter) < ord(" ") or letter == "\x7f" for letter in uri):
        return LocationProblem("holds a control character", "Write the path without it.")
    if _NO_PLACE.fullmatch(uri) or _ONE_SLASH.match(uri):
        return LocationProblem("names a scheme and no place", "Write scheme://bucket/path, or a path.")
    if "${" in uri:
        return LocationProblem(
            "holds a variable, and variables are read in files and --set only", "Write the value itself."
        )
    if found := find_secret(uri):
        fix = (
            "Remove it and give it to the storage library through the environment "
            "(for s3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile)."
        )
        return LocationProblem(f"holds {found}, which would be copied into every run's record", fix)
    return None


def refuse_unusable(uri: str, *, where: str) -> None:
    """Raise ConfigError for an invalid path or URL."""
    if found := location_problem(uri):
        raise ConfigError(f"{uri!r} {found.text}", where=where, fix=found.fix)


def anchored(uri: str) -> str:
    """Return a location with an absolute path where it is local, so that every process here can use it."""
    scheme, mark, path = uri.partition("://")
    if not mark:
        return _absolute(uri)
    return f"{scheme}{mark}{_absolute(path)}" if scheme in {"file", "local"} else uri


def _listed(environment: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    said = environment.get(name)
    return None if said is None else tuple(said.replace(",", " ").split())


def _is_below(module: str, package: str) -> bool:
    package = package.removesuffix(".*").rstrip(".")
    return module == package or module.startswith(f"{package}.")


def _plain_path(uri: str) -> str:
    """Return a local path without `..` and links, so that it cannot leave its prefix; a URL as it is."""
    scheme, mark, path = uri.partition("://")
    if not mark:
        return os.path.realpath(_absolute(uri))
    return f"{scheme}{mark}{os.path.realpath(posixpath.normpath(path))}" if scheme in {"file", "local"} else uri


def _climbs(place: str) -> bool:
    """Return whether a URL has a `..`, which each library and server resolves in another way."""
    return ".." in re.split(r"[/\\]", unquote(place))


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - pathlib would resolve symlinks


def _starts_with(place: str, prefix: str) -> bool:
    if prefix.endswith("://"):
        return place.startswith(prefix)
    prefix = _plain_path(prefix)
    return place == prefix.rstrip("/") or place.startswith(f"{prefix.rstrip('/')}/")
