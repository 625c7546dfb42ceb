"""`gnnflow score-pairs`: which pairs of nodes are likely edges, from a completed run's embeddings."""

from __future__ import annotations

from typing import Annotated

import typer


def score_pairs(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a completed run whose task.kind is link.")],
    pairs: Annotated[str, typer.Argument(metavar="TABLE", help="Table with a source and a target id in each row.")],
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Parquet file for the pairs with their scores.")],
) -> None:
    """Score pairs of nodes with the embeddings of a completed run."""
    from gnnflow.stages import pairs as scoring

    scoring.score_pairs(run, pairs, out=out)
    typer.echo(out)
