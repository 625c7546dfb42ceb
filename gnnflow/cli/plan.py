"""`gnnflow plan`: what a run will cost before it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from gnnflow.cli.options import AsJson, ConfigPath, Overrides, WorkspaceOption, cluster_of, load, own_code_refused, show

_SECONDS = 60.0

Limit = Annotated[
    float, typer.Option("--seconds", min=0, help="About how long rehearsing may take; longer is nearer to the truth.")
]


def plan(
    config: ConfigPath,
    overrides: Overrides = None,
    workspace: WorkspaceOption = None,
    seconds: Limit = _SECONDS,
    *,
    as_json: AsJson = False,
) -> None:
    """Say what a run will cost before it runs, per stage: time, bytes and memory, rehearsed on parts of the graph."""
    from gnnflow.cli.progress import for_terminal
    from gnnflow.stages.base import StageContext
    from gnnflow.stages.plan import plan_run

    read = load(config, overrides, workspace)
    with for_terminal() as progress, cluster_of(read, progress) as cluster, own_code_refused(read):
        forecast = plan_run(StageContext.of(read, cluster, progress, config_uri=config), limit=seconds)
    if as_json:
        show(forecast.as_json(), as_json=True)
        return
    for line in forecast.lines():
        typer.echo(line)
