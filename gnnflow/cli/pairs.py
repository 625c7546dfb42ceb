"""`gnnflow score-pairs`: which pairs of nodes are likely edges, from a completed run's embeddings."""

from __future__ import annotations

from typing import Annotated

import typer

from gnnflow.cli.options import WorkspaceOption
from gnnflow.config.deployment import default_workspace


def score_pairs(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run whose task.kind is link: its URI, or its name in the workspace.")
    ],
    pairs: Annotated[str, typer.Argument(metavar="TABLE", help="Table with a source and a target id in each row.")],
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Parquet file for the pairs with their scores.")],
    workspace: WorkspaceOption = None,
    *,
    embeddings: Annotated[
        str | None,
        typer.Option(
            "--embeddings",
            metavar="FOLDER",
            help="The predictions that `gnnflow score` wrote with the run's published model; by default the run's own.",
        ),
    ] = None,
) -> None:
    """Score pairs of nodes with the embeddings of a completed run, or those that its published model gives later."""
    from gnnflow.stages import pairs as scoring

    scoring.score_pairs(run, pairs, out=out, workspace=workspace or default_workspace(), embeddings=embeddings)
    typer.echo(out)
