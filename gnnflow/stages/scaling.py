"""By what a run scales columns where a published model says it (`graph.scaled_as`).

A model learns what a number means at its own tables' mean and deviation. On later tables `normalize: standard` would
take a shift of a whole column out, and the model would not see it. What enters the fingerprint of ingest are the
figures, not the version they were found in: another version with the same ones is no reason to ingest again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow import registry
from gnnflow.config.base import published_name
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.ingest.records import columns_read

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.ingest.job import IngestJob
    from gnnflow.registry import Version

_KEY = "graph.scaled_as"


def find_scales(config: Config) -> Version | None:
    """Return the version that says what scales the columns of a config's tables, None where these do so themselves.

    Raises RegistryError where no such version is published, ConfigError where it was trained on unscaled columns.
    """
    named = config.graph.scaled_as and published_name(config.graph.scaled_as)
    if not named:
        return None
    version = registry.find_version(config.workspace, *named)
    if not version.scales:
        raise ConfigError(
            f"{config.graph.scaled_as!r}: version {version.version} does not say by what its columns were scaled",
            where=_KEY,
            fix="Leave it out, publish a run whose columns are scaled by standard, and name that.",
        )
    return version


def check_scales(job: IngestJob, version: Version) -> None:
    """Raise TableError where a table whose columns are to be scaled has others than were scaled for the model."""
    columns = columns_read(job)
    scaled = {each.name for each in job.scaled_tables}
    trained_on = {name: held for name, held in version.signature.columns.items() if name in scaled}
    if found := registry.other_columns(trained_on, {name: columns[name] for name in scaled}):
        raise TableError("; ".join(found), where=_KEY, fix="Name the same columns in the same order, or leave it out.")
    for name, uri, width in job.scaled_tables:
        known = job.scales.get(name)
        if known is None or known.width != width:
            raise TableError(
                f"{name} has {width} columns to scale, {job.config.scaled_as} has {known.width if known else 'none'}",
                where=uri,
                fix=f"Name a model that was trained on these columns, or leave {_KEY} out.",
            )
