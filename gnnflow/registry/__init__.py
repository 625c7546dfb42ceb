"""Published models: numbered versions that never change, and the aliases of the versions in service.

registry/<name>/claims/<version>.json   the run that claimed the number: written once, exclusively
registry/<name>/<version>/…             model.safetensors, model.json, config.json, metrics.json
registry/<name>/<version>/version.json  written last: the version exists when it does
registry/<name>/aliases/<revision>.json the state of all aliases; a change is the next revision, written exclusively
registry/<name>/aliases/newest.json     the last revision, so that a deleted one is noticed
registry/<name>/approvers.json          the users who alone may promote, where the last publication named some
registry/<name>/scores/<number>.json    which version scored which tables, with figures (`scores.py`)

Read `versions.py` first, then `aliases.py`. `gnnflow.stages.publish` decides on promotion.
"""

from __future__ import annotations

from gnnflow.registry.aliases import (
    Aliases,
    ChampionMovedError,
    find_named,
    find_run,
    find_version,
    nominate,
    promote,
    published_versions,
    read_aliases,
    reject,
    rollback,
)
from gnnflow.registry.approvers import keep_approvers, read_approvers
from gnnflow.registry.rows import list_tables, version_row
from gnnflow.registry.scores import ScoreRecord, find_score, find_scoring, last_score, read_scores
from gnnflow.registry.signature import Signature, misfits, other_columns, signature_of
from gnnflow.registry.versions import Version, git_revision, list_models, read_version, register, unknown_model

__all__ = [
    "Aliases",
    "ChampionMovedError",
    "ScoreRecord",
    "Signature",
    "Version",
    "find_named",
    "find_run",
    "find_score",
    "find_scoring",
    "find_version",
    "git_revision",
    "keep_approvers",
    "last_score",
    "list_models",
    "list_tables",
    "misfits",
    "nominate",
    "other_columns",
    "promote",
    "published_versions",
    "read_aliases",
    "read_approvers",
    "read_scores",
    "read_version",
    "register",
    "reject",
    "rollback",
    "signature_of",
    "unknown_model",
    "version_row",
]
