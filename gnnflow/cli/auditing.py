"""`gnnflow audit RUN`: prints the findings about a run and ends with 1 where one is broken."""

from __future__ import annotations

import typer

from gnnflow.cli.options import AsJson, RunName, WorkspaceOption, show


def audit(
    run_uri: RunName,
    workspace: WorkspaceOption = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Check a run from its artifacts: scores agree, no score saw what it should not have, no edge is lost."""
    from gnnflow.api import calls

    found = calls.audit(run_uri, workspace=workspace)
    if as_json:
        show(found.summary(), as_json=True)
    else:
        for line in found.lines():
            typer.echo(line)
    if found.broken:
        raise typer.Exit(1)
