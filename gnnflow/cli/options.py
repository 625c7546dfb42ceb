"""The common parts of stages' commands: options, reading the config, running the stage, printing its summary."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnnflow.cli import stopping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gnnflow.api.performing import Listener
    from gnnflow.stages.base import StageResult

ConfigPath = Annotated[str, typer.Argument(metavar="CONFIG", help="YAML file: a path or any fsspec URL.")]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run: its URI, its name in the workspace, or NAME@champion of a published model."
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. train.lr=0.02.")
]
WorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", metavar="URI", help="Where artifacts and runs live.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]


def listener() -> Listener:
    """Return the command line's ear: bars or lines on stderr, and the facts that a stopping signal needs."""
    from gnnflow.api.performing import Listener
    from gnnflow.cli.progress import open_progress

    return Listener(open_progress, stopping.before_workers, stopping.keeps)


def perform(config: str, overrides: list[str] | None, workspace: str | None, *, stage: str) -> StageResult:
    """Run a stage of the config that a command names, and return its result."""
    from gnnflow.api import performing
    from gnnflow.api.configs import Given

    given = Given(config, overrides=overrides or (), workspace=workspace)
    return performing.perform(given.resolve(stage=stage), stage, listener=listener(), config_uri=config)


def show(summary: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a stage's summary: one JSON object, or one line per figure."""
    if as_json:
        typer.echo(json.dumps(summary, sort_keys=True))
        return
    for key, value in summary.items():
        typer.echo(f"{key:20} {value}")


def show_lines(document: Callable[[], Mapping[str, Any]], lines: Callable[[], Iterable[str]], *, as_json: bool) -> None:
    """Print what a command found: one JSON object, or its lines."""
    if as_json:
        show(document(), as_json=True)
        return
    for line in lines():
        typer.echo(line)
