"""The workspaces that Airflow serves pages of, and the addresses of these pages.

`GNNFLOW_WORKSPACES` lists them as `name=URI`, with spaces between several; a page's address begins with the name. The
permissions of one DAG count: who may read it sees the pages, who may edit it promotes and rolls back models. It is
gnnflow_pipeline, or the DAG in `name@dag=URI`. Without the variable, `GNNFLOW_WORKSPACE` is the only one, named
`default`; without either, Airflow serves nothing.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

PREFIX = "/gnnflow"
"""The path below Airflow's address where the pages are."""
DAG = "gnnflow_pipeline"
_RULE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(@(?P<dag>[A-Za-z0-9._-]+))?=(?P<uri>\S+)")


@dataclass(frozen=True)
class Place:
    """A workspace with pages. dag: the DAG whose permissions count."""

    name: str
    uri: str
    dag: str = DAG

    def find_path(self, uri: str) -> str:
        """Return the path of a URI below the workspace; empty if it is not below it."""
        below = f"{self.uri.rstrip('/')}/"
        return uri.removeprefix(below) if uri.startswith(below) else ""


def list_places() -> dict[str, Place]:
    """Return the workspaces with pages by their names. Raises ConfigError for a setting that cannot be read."""
    from gnnflow.graph.errors import ConfigError
    from gnnflow.storage.workspace import Workspace

    rules, only = os.environ.get("GNNFLOW_WORKSPACES", "").split(), os.environ.get("GNNFLOW_WORKSPACE", "")
    found: dict[str, Place] = {}
    for rule in rules or ([f"default={only}"] if only else []):
        read = _RULE.fullmatch(rule)
        if read is None or read["name"] in found:
            raise ConfigError(
                f"{rule!r} is not a workspace with a name that no other has",
                where="GNNFLOW_WORKSPACES",
                fix="Write name=URI, or name@dag=URI, with spaces between several.",
            )
        found[read["name"]] = Place(read["name"], Workspace.at(read["uri"]).uri, read["dag"] or DAG)
    return found


def find_address(uri: str) -> str:
    """Return the address of the page of a report, comparison, predictions or training; empty without a page."""
    from gnnflow.storage.filesystem import absolute

    whole = absolute(uri)
    paths = [(path, place) for place in list_places().values() if (path := place.find_path(whole))]
    if not paths:
        return ""
    path, place = min(paths, key=lambda each: len(each[0]))  # the innermost workspace
    return f"{airflow_address()}{PREFIX}/{place.name}/{path}"


def airflow_address() -> str:
    """Return the address of Airflow's web pages; empty where it is not set, since then paths suffice."""
    from airflow.sdk.configuration import conf

    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
