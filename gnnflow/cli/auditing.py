"""`gnnflow audit RUN`: prints the findings about a run and ends with 1 where one is broken."""

from __future__ import annotations

import typer

from gnnflow.cli.options import AsJson, RunName, WorkspaceOption, show_lines


def audit(
    run_uri: RunName,
    workspace: WorkspaceOption = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Check a run from its artifacts: scores agree, no score saw what it should not have, no edge is lost."""
    from gnnflow.api import calls

    found = calls.audit(run_uri, workspace=workspace)
    show_lines(found.summary, found.lines, as_json=as_json)
    if found.broken:
        raise typer.Exit(1)
