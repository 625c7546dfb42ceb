"""What every stage's command shares: its options, reading the config, running the stage, printing its summary."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnnflow.config import load_config
from gnnflow.storage.filesystem import read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gnnflow.config import Config
    from gnnflow.stages.base import StageResult

ConfigPath = Annotated[str, typer.Argument(metavar="CONFIG", help="YAML file: a path or any fsspec URL.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. train.lr=0.02.")
]
WorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", metavar="URI", help="Where artifacts and runs live.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]


def load(config: str, overrides: list[str] | None, workspace: str | None) -> Config:
    """Return the config a command names."""
    return load_config(read_bytes(config).decode(), overrides=overrides or (), workspace=workspace, source=config)


def perform(config: Config, *stages: str, config_uri: str = "") -> StageResult:
    """Run stages in order with progress on stderr, on the cluster the config names; return the last one's result."""
    from gnnflow.cli.progress import for_terminal
    from gnnflow.cluster import Cluster
    from gnnflow.stages.base import StageContext, run_stage

    with for_terminal() as progress, Cluster(config.cluster, say=progress.message) as cluster:
        context = StageContext.of(config, cluster, progress, config_uri=config_uri)
        return [run_stage(context, stage) for stage in stages][-1]


def show(summary: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a stage's summary: one JSON object, or one line per figure."""
    if as_json:
        typer.echo(json.dumps(summary, sort_keys=True))
        return
    for key, value in summary.items():
        typer.echo(f"{key:18} {value}")
