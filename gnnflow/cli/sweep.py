"""`gnnflow sweep`: the combinations of a config's `matrix:`, run one after another and compared."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

import typer

from gnnflow.cli.boundary import listed
from gnnflow.cli.options import (
    AsJson,
    ConfigPath,
    Overrides,
    WorkspaceOption,
    cluster_of,
    read_text,
    run_stages,
    show,
)
from gnnflow.config.experiments import read_experiment
from gnnflow.config.yaml_text import read_yaml

if TYPE_CHECKING:
    from gnnflow.cluster import Cluster
    from gnnflow.config import Config
    from gnnflow.config.experiments import Experiment
    from gnnflow.stages.pipeline import RunResult
    from gnnflow.stages.sweep import SweepResult

_MOST_RUNS = 10_000
_SOME_FAILED = 2


def sweep(
    config: ConfigPath, overrides: Overrides = None, workspace: WorkspaceOption = None, *, as_json: AsJson = False
) -> None:
    """Run all combinations of the config's `matrix:` and compare them; what fails is listed, and the others go on."""
    experiment = read_experiment(
        read_yaml(read_text(config), source=config),
        source=config,
        overrides=overrides or (),
        workspace=workspace,
        most_runs=_MOST_RUNS,
        strict=False,
    )
    result = _perform(experiment, config_uri=config)
    if as_json:
        show(result.summary(), as_json=True)
    else:
        for line in result.comparison.lines:
            typer.echo(line)
        typer.echo(f"\ntable  {result.comparison.table}")
        typer.echo(f"plot   {result.comparison.plot}")
        typer.echo(f"page   {result.comparison.page}")
    if result.failed:
        raise typer.Exit(_SOME_FAILED)


def _perform(experiment: Experiment, *, config_uri: str) -> SweepResult:
    """Run the sweep with progress on stderr. Runs that name the same cluster share it."""
    from gnnflow.cli.progress import for_terminal
    from gnnflow.stages.sweep import run_sweep

    clusters: dict[str, Cluster] = {}
    with for_terminal() as progress, ExitStack() as stack:

        def run(config: Config) -> RunResult:
            named = config.cluster.model_dump_json()
            if named not in clusters:
                clusters[named] = stack.enter_context(cluster_of(config, progress))
            try:
                result = run_stages(config, ("run",), cluster=clusters[named], progress=progress, config_uri=config_uri)
            except Exception as error:
                raise listed(error) from error
            return cast("RunResult", result)

        return run_sweep(experiment, run=run, say=progress.message)
