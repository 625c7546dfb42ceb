"""`gnnflow check` and `gnnflow init`: what there is to know about a run before it begins."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from gnnflow.cli.options import AsJson, ConfigPath, Overrides, WorkspaceOption
from gnnflow.cli.tables import parse_ends
from gnnflow.graph.errors import ConfigError

_STOPPED = 2


def check(
    config: ConfigPath,
    overrides: Overrides = None,
    workspace: WorkspaceOption = None,
    *,
    keys: Annotated[bool, typer.Option("--keys", help="Show the keys that apply in each section too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the tables' columns, and everything that would stop the run, from schemas and first rows; start nothing."""
    from gnnflow.api import calls

    look = calls.check(config, overrides=overrides or (), workspace=workspace)
    if as_json:
        typer.echo(json.dumps(look.as_json(), sort_keys=True, default=str))
    else:
        for line in look.lines(keys=keys):
            typer.echo(line)
    if look.stops:
        raise typer.Exit(_STOPPED)


def init(
    tables: Annotated[list[str], typer.Argument(metavar="TABLES...", help="Tables of nodes and edges.")],
    *,
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="The config to write.")] = "config.yaml",
    name: Annotated[str, typer.Option("--name", help="Name of the runs; by default the first edge table's.")] = "",
    ids: Annotated[
        list[str] | None, typer.Option("--id", metavar="[TABLE.]COLUMN", help="A node table's column of ids.")
    ] = None,
    label: Annotated[
        str, typer.Option("--label", metavar="[TABLE.]COLUMN", help="The column to predict; none predicts edges.")
    ] = "",
    ends: Annotated[
        list[str] | None,
        typer.Option("--ends", metavar="SRC,DST", help="The columns of an edge's source and target."),
    ] = None,
    encoding: Annotated[
        str, typer.Option("--encoding", help="Encoding of the tables that are not UTF-8, such as cp1252.")
    ] = "",
    decimal: Annotated[
        str, typer.Option("--decimal", help="comma or point: before the fraction of numbers such as 1,234.")
    ] = "",
    separator: Annotated[
        str, typer.Option("--separator", help="Of the tables whose lines do not show it: comma, tab, semicolon, pipe.")
    ] = "",
) -> None:
    """Write a config for tables: ids, ends, label, features and a model, with the reasons as comments."""
    from gnnflow.stages.draft import draft_config

    if Path(out).exists():
        raise ConfigError("exists already", where=f"--out {out}", fix="Name another file, or delete this one.")
    pairs = [parse_ends(each) for each in ends or ()]
    said = {"encoding": encoding, "decimal": decimal, "separator": separator}
    form = {key: value for key, value in said.items() if value}
    draft = draft_config(tables, name=name, ids=ids or (), label=label, ends=pairs, form=form, out=out)
    Path(out).write_text(draft.text, encoding="utf-8")
    for line in draft.told:
        typer.echo(line, err=True)
    for error in draft.stops:
        typer.echo(f"still to be mended: {error}", err=True)
    typer.echo(out)
    typer.echo(f"next: gnnflow check {shlex.quote(out)}, then gnnflow run {shlex.quote(out)}", err=True)
    if draft.stops:
        raise typer.Exit(_STOPPED)
