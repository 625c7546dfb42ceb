"""`gnnflow models`: the published versions, and moving their aliases by hand."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnnflow import registry
from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import exists

if TYPE_CHECKING:
    from collections.abc import Sequence

models_app = typer.Typer(help="See and move the published models of a workspace.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A model's name.")]
WorkspaceOption = Annotated[
    str,
    typer.Option("--workspace", metavar="URI", envvar="GNNFLOW_WORKSPACE", help="Where the registry lives."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]


def _print_table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    cells = [[str(column).upper() for column in columns], *([_cell(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
    for line in cells:
        typer.echo("  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


@models_app.command("list")
def list_models(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One model; without it, all.")] = None,
    workspace: WorkspaceOption = "runs",
    *,
    as_json: AsJson = False,
) -> None:
    """List the versions, newest last, with their aliases and test scores; damaged ones come after the others."""
    rows: list[dict[str, Any]] = []
    damaged: list[StorageError] = []
    for model in registry.list_models(workspace) if name is None else (name,):
        aliases = registry.read_aliases(workspace, model)
        numbers = registry.published_versions(workspace, model)
        if name is not None and not numbers:
            raise registry.unknown_model(workspace, name)
        for number in numbers:
            try:
                rows.append(registry.version_row(registry.read_version(workspace, model, number), aliases))
            except StorageError as error:
                damaged.append(error)
    if rows and not as_json:
        _print_table(rows, ("name", "version", "aliases", "created", "test", "decided"))
    for each in damaged[:-1]:
        typer.echo(f"error: {each}", err=True)
    if damaged:  # a program gets all versions or none
        raise damaged[-1]
    if as_json:
        typer.echo(json.dumps(rows, sort_keys=True))
    elif not rows:
        typer.echo("no models; publish a run with `gnnflow publish CONFIG`")


@models_app.command()
def show(
    name: Name,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="A number, champion or candidate.")] = "champion",
    workspace: WorkspaceOption = "runs",
    *,
    as_json: AsJson = False,
) -> None:
    """Show one version: its run, inputs, metrics and the moves of its aliases."""
    found = registry.find_version(workspace, name, version)
    aliases = registry.read_aliases(workspace, name)
    document = {
        **asdict(found),
        "aliases": list(aliases.of(found.version)),
        "predictions": found.predictions,
        "report": found.report,
        "history": [move for move in aliases.history if found.version in {move["from"], move["to"]}],
    }
    if as_json:
        typer.echo(json.dumps(document, sort_keys=True))
        return
    for key in ("name", "version", "aliases", "created", "revision", "run", "predictions", "report", "uri"):
        typer.echo(f"{key:14}{_cell(document[key])}")
    for key in ("tables", "signature", "fingerprints", "metrics"):
        typer.echo(key)
        for part, held in document[key].items():
            typer.echo(f"  {part:31} {held:.6g}" if isinstance(held, float) else f"  {part:31} {held}")
    typer.echo("history")
    for move in document["history"]:
        typer.echo(f"  {move['at']}  {move['alias']}: {move['from']} -> {move['to']}  ({move['reason']})")


@models_app.command()
def promote(
    name: Name,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="The version's number.")],
    workspace: WorkspaceOption = "runs",
    *,
    as_json: AsJson = False,
) -> None:
    """Put a version in service, whatever its scores."""
    rejection = registry.read_aliases(workspace, name).rejection(version)
    registry.promote(workspace, name, version)
    if rejection:
        typer.echo(f"version {version} no longer stands {rejection['reason']} ({rejection['at'][:10]})", err=True)
    _print_champion(registry.read_version(workspace, name, version), workspace, as_json=as_json)


@models_app.command()
def reject(
    name: Name,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="The version's number.")],
    workspace: WorkspaceOption = "runs",
    *,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="For the history of the model.")] = "",
    as_json: AsJson = False,
) -> None:
    """Turn a version down: publishing it again does not promote it or ask for it."""
    rejection = registry.reject(workspace, name, version, why=why).rejection(version)
    if as_json:
        typer.echo(json.dumps({"name": name, "version": version, "rejected": rejection}, sort_keys=True))
        return
    typer.echo(f"version {version} of {name} stands {rejection['reason']}; `gnnflow models promote` promotes it anyway")


@models_app.command()
def rollback(name: Name, workspace: WorkspaceOption = "runs", *, as_json: AsJson = False) -> None:
    """Put the former champion back in service, its predictions with it."""
    _print_champion(registry.rollback(workspace, name), workspace, as_json=as_json)


def _print_champion(version: registry.Version, workspace: str, *, as_json: bool) -> None:
    """Print the version in service, its last predictions, and whether another version scored other tables since."""
    scored = registry.last_score(workspace, version.name, version=version.version)
    predictions, tables = version.predictions, version.tables
    if scored is not None:
        predictions, tables = scored.predictions, scored.tables
    champion = {"name": version.name, "champion": version.version, "predictions": predictions, "tables": tables}
    if as_json:
        typer.echo(json.dumps(champion, sort_keys=True))
        return
    typer.echo(f"version {version.version} of {version.name} is in service")
    gone = "" if exists(predictions) else "  gone, with its run: `gnnflow score CONFIG` makes them again"
    typer.echo(f"predictions  {predictions}{gone}")
    last = registry.last_score(workspace, version.name)
    if last is not None and last.version != version.version:
        typer.echo(
            f"These are older: version {last.version} scored {last.tables['nodes']} on {last.at}. "
            f"`gnnflow score {version.name}@champion` scores the tables that version {version.version} was published "
            "with as they are now; `--set graph.nodes=... --set graph.edges=...`, or your CONFIG, names others."
        )
