"""A version as a row for people: its aliases, its test scores, and what decided about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnnflow.graph.labels import is_bound, metric_text, of_class
from gnnflow.registry.aliases import Aliases
from gnnflow.registry.versions import Version

if TYPE_CHECKING:
    from collections.abc import Mapping


def version_row(version: Version, aliases: Aliases) -> dict[str, Any]:
    """Return plain values of a version: two of its test scores as text, and the last decision about it."""
    tested = [
        f"{key.removeprefix('test.')}{of_class(key, version.metric_class)} {metric_text(held)}"
        for key, held in sorted(version.metrics.items())
        if key.startswith("test.") and not is_bound(key)
    ]
    return {
        "name": version.name,
        "version": version.version,
        "aliases": list(aliases.of(version.version)),
        "created": version.created,
        "test": ", ".join(tested[:2]),
        "decided": _decided(aliases.decided(version.version)),
        "compared": aliases.decided(version.version).get("compared"),
        "run": version.run,
    }


def list_tables(tables: Mapping[str, Any]) -> dict[str, str]:
    """Return the location of each table by its name. tables: `nodes` and `edges` as a config names them."""
    named = {}
    for side in ("nodes", "edges"):
        given = tables[side]
        several = {f"{side} {name}": each for name, each in given.items()} if isinstance(given, dict) else {side: given}
        for name, each in several.items():
            if each is not None:  # a type whose nodes are known from edges alone
                named[name] = str(each["table"] if isinstance(each, dict) else each)
    return named


def _decided(move: dict[str, Any]) -> str:
    """Return what decided about a version: the metric of both models and whether they differ beyond noise."""
    compared = move.get("compared")
    if compared is None:
        return str(move.get("reason", "")).partition(":")[0]
    noise = {True: ", more than noise", False: ", may be noise", None: ""}[compared["beyond_noise"]]
    both = [metric_text(compared[name]) for name in ("candidate", "champion")]
    return f"{compared['metric']} {both[0]}, {both[1]} for version {compared['version']}{noise}"
