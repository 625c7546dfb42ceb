"""Commands that look inside: at a model or a score, at the costs of nodes, at a batch whose loss was not a number."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from gnnflow.cli.options import AsJson, Overrides, RunName, WorkspaceOption, show, show_lines
from gnnflow.config.deployment import default_workspace, refuse_unusable
from gnnflow.storage.filesystem import absolute


def inspect(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file that the error about the loss names.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show a batch that training kept because its loss was not a number: its infinite, NaN or very large values."""
    from gnnflow.train.failed_batch import read_failed_batch

    refuse_unusable(file, where="FILE")
    summary = read_failed_batch(absolute(file)).summary()
    if as_json:
        show(summary, as_json=True)
        return
    worst = summary.pop("worst")
    show({key.replace("_", " "): value for key, value in summary.items()}, as_json=False)
    for target in worst:
        typer.echo("target  " + "  ".join(f"{key.replace('_', ' ')} {value}" for key, value in target.items()))


def explain(
    config: Annotated[
        str,
        typer.Argument(metavar="CONFIG|RUN", help="YAML file; with --id a run: its URI, its name, or NAME@champion."),
    ],
    overrides: Overrides = None,
    workspace: WorkspaceOption = None,
    node: Annotated[str | None, typer.Option("--id", help="The id of a node whose score is explained.")] = None,
    of: Annotated[
        str | None, typer.Option("--of", metavar="CLASS", help="The class to explain; by default the predicted one.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show how a config's model aggregates, or with --id why a run's node got its score."""
    from gnnflow.api import calls

    found = calls.explain(config, node, of=of, overrides=overrides or (), workspace=workspace)
    show_lines(found.as_json, found.lines, as_json=as_json)


def costs(
    run_uri: RunName,
    workspace: WorkspaceOption = None,
) -> None:
    """Print the costs of nodes as JSON, learned from the time of a run's scoring: keys for `partition`."""
    from gnnflow.stages.costs import learn_costs

    typer.echo(json.dumps(learn_costs(run_uri, workspace=workspace or default_workspace()).as_document(), indent=2))
