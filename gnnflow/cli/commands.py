"""Every command. Results go to stdout, progress to stderr; with --json stdout is one JSON object and nothing else.

A stage needs no command here: each row of `gnnflow.config.stages` has one. Those below say more than its summary.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from gnnflow import __version__
from gnnflow.cli.flat import flat
from gnnflow.cli.models import models_app
from gnnflow.cli.options import (
    AsJson,
    ConfigPath,
    Overrides,
    WorkspaceOption,
    cluster_of,
    load,
    own_code_refused,
    perform,
    show,
)
from gnnflow.cli.sweep import sweep
from gnnflow.cli.tables import generate_app, import_tables
from gnnflow.config import STAGES
from gnnflow.config.deployment import default_workspace, refuse_unusable
from gnnflow.graph.labels import BOUNDS, is_bound, metric_text
from gnnflow.graph.splits import SPLITS
from gnnflow.storage.filesystem import absolute

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME_WIDTH = 28
_FIGURE_WIDTH = 9
_REHEARSAL_SECONDS = 60.0

Limit = Annotated[
    float, typer.Option("--seconds", min=0, help="About how long rehearsing may take; longer is nearer to the truth.")
]


def build_app() -> typer.Typer:
    """Return the command line: one command per stage of the table, and those that are not stages."""
    app = typer.Typer(
        name="gnnflow",
        help="Train and serve graph neural networks on graphs that do not fit in one machine's memory.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback()(_root)
    own: dict[str, Callable[..., None]] = {"run": run, "flat": flat, "publish": publish}
    for stage in STAGES.values():
        app.command(stage.name, help=stage.summary)(own.get(stage.name) or _stage_command(stage.name))
    app.command()(plan)
    app.command()(sweep)
    app.command(name="score-pairs")(score_pairs)
    app.command()(report)
    app.command()(costs)
    app.command()(inspect)
    app.command()(explain)
    app.command(name="import")(import_tables)
    app.add_typer(generate_app, name="generate")
    app.add_typer(models_app, name="models")
    return app


def _version(asked: bool) -> None:  # noqa: FBT001 - typer passes the flag's value
    if asked:
        typer.echo(f"gnnflow {__version__}")
        raise typer.Exit


def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Carry options that come before the command."""


def _stage_command(stage: str) -> Callable[..., None]:
    def command(
        config: ConfigPath, overrides: Overrides = None, workspace: WorkspaceOption = None, *, as_json: AsJson = False
    ) -> None:
        show(perform(load(config, overrides, workspace), stage, config_uri=config).summary(), as_json=as_json)

    return command


def run(
    config: ConfigPath, overrides: Overrides = None, workspace: WorkspaceOption = None, *, as_json: AsJson = False
) -> None:
    """Run all stages and print the run's metrics."""
    summary = perform(load(config, overrides, workspace), "run", config_uri=config).summary()
    if as_json:
        show(summary, as_json=True)
        return
    show_metrics(summary["metrics"])
    typer.echo(f"\npredictions  {summary['predictions']}")
    typer.echo(f"report       {summary['report']}")


def publish(
    config: ConfigPath, overrides: Overrides = None, workspace: WorkspaceOption = None, *, as_json: AsJson = False
) -> None:
    """Publish a completed run and print what became of it."""
    summary = perform(load(config, overrides, workspace), "publish", config_uri=config).summary()
    if as_json:
        show(summary, as_json=True)
        return
    typer.echo(f"{summary['name']} version {summary['version']}: {summary['reason']}")
    typer.echo(f"in service   version {summary['in_service']}")
    typer.echo(f"predictions  {summary['predictions']}")


def inspect(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file that the error about the loss names.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show a batch that training kept because its loss was no number: what of it is not finite, or very large."""
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
    config: ConfigPath, overrides: Overrides = None, workspace: WorkspaceOption = None, *, as_json: AsJson = False
) -> None:
    """Show how the model aggregates: levels, kernels, shapes, and which executions run it. Reads the config alone."""
    from gnnflow.stages.explain import explain_model

    plan = explain_model(load(config, overrides, workspace))
    if as_json:
        show(plan.as_json(), as_json=True)
        return
    for line in plan.lines():
        typer.echo(line)


def costs(
    run_uri: Annotated[str, typer.Argument(metavar="RUN", help="A run's URI, or the name of a run in the workspace.")],
    workspace: WorkspaceOption = None,
) -> None:
    """Print as JSON what nodes cost, learned from how long a run's scoring took: keys for `partition`."""
    from gnnflow.stages.costs import learn_costs

    typer.echo(json.dumps(learn_costs(run_uri, workspace=workspace or default_workspace()).as_document(), indent=2))


def report(
    run_uri: Annotated[str, typer.Argument(metavar="RUN", help="A run's URI, or the name of a run in the workspace.")],
    workspace: WorkspaceOption = None,
) -> None:
    """Print the path of a run's HTML report, making it again where it is missing."""
    from gnnflow.stages.report import report_of

    typer.echo(report_of(run_uri, workspace=workspace or default_workspace()))


def show_metrics(metrics: Mapping[str, float]) -> None:
    """Print one line per score with a column per split, the baseline's below its own, then all other figures.

    Behind a line stands the confidence interval of its test score.
    """
    present = [split for split in SPLITS if any(key.startswith(f"{split}.") for key in metrics)]
    scores = [key for key in metrics if key.startswith(("valid.", "test.")) and not is_bound(key)]
    names = sorted({key.partition(".")[2] for key in scores})
    rows = {
        f"{prefix}{{}}.{name}": f"{name}{note}"
        for prefix, note in (("", ""), ("baseline.", " without edges"))
        for name in names
    }
    # of each score, by its key: what is printed
    asked = [row.format(split) for row in rows for split in present]
    cells = {key: metric_text(metrics[key]) for key in asked if key in metrics}
    width = max([_FIGURE_WIDTH, *(len(cell) + 2 for cell in cells.values())])
    typer.echo(" " * _NAME_WIDTH + "".join(f"{split:>{width}}" for split in present))
    for row, name in rows.items():
        keys = [row.format(split) for split in present]
        if any(key in cells for key in keys):
            bounds = [metric_text(metrics[key]) for side in BOUNDS if (key := row.format("test") + side) in metrics]
            interval = f"  ({' to '.join(bounds)})" if bounds else ""
            line = "".join(cells.get(key, "").rjust(width) for key in keys)
            typer.echo(f"{name:<{_NAME_WIDTH}}{line}{interval}")
    for key, value in sorted(metrics.items()):
        if key not in cells and not is_bound(key):
            left = max(0, _NAME_WIDTH + _FIGURE_WIDTH - len(key) - 2)  # a long name stands apart from its figure too
            typer.echo(f"{key}  {value:>{left},.4g}")


def plan(
    config: ConfigPath,
    overrides: Overrides = None,
    workspace: WorkspaceOption = None,
    seconds: Limit = _REHEARSAL_SECONDS,
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
