"""The commands. Results go to stdout, progress to stderr; with --json stdout is one JSON object and nothing else.

Each row of `gnnflow.config.stages` has a command without a function here; the stages below print more than a summary.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gnnflow import __version__
from gnnflow.cli.auditing import audit
from gnnflow.cli.checking import check, init
from gnnflow.cli.examples import add_examples
from gnnflow.cli.flat import flat
from gnnflow.cli.inspecting import costs, explain, inspect
from gnnflow.cli.models import models_app
from gnnflow.cli.options import (
    AsJson,
    ConfigPath,
    Overrides,
    WorkspaceOption,
    listener,
    perform,
    show,
    show_lines,
)
from gnnflow.cli.tables import generate_app, import_tables
from gnnflow.config import STAGES
from gnnflow.config.deployment import default_workspace
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.labels import BOUNDS, is_bound, metric_text
from gnnflow.graph.splits import SPLITS

if TYPE_CHECKING:
    from collections.abc import Mapping


_NAME_WIDTH = 28
_FIGURE_WIDTH = 9
_SOME_FAILED = 2

Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="PLACE",
        help="Write the predictions here too: a file named .parquet, or a folder for predictions.parquet; any URL.",
    ),
]
Limit = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        min=0,
        help="About how long rehearsals may take once libraries are loaded; longer is more exact. By default a tenth "
        "of the run, at most 60 seconds.",
    ),
]
Embeddings = Annotated[
    str | None,
    typer.Option(
        "--embeddings",
        metavar="FOLDER",
        help="The predictions that `gnnflow score` wrote with the run's published model; by default the run's own.",
    ),
]


def build_app() -> typer.Typer:
    """Return the command line: one command per stage of the table, and the other commands."""
    app = typer.Typer(
        name="gnnflow",
        help="Train and serve graph neural networks on tables of nodes and edges, of any size.\n\n"
        "Type `gnnflow init nodes.csv edges.csv` to write config.yaml, then `gnnflow run config.yaml`; "
        "`gnnflow COMMAND --help` says what to type for a command.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback()(_root)
    own: dict[str, Callable[..., None]] = {
        "run": run,
        "flat": flat,
        "publish": publish,
        "score": score,
        "recommend": recommend,
    }
    for stage in STAGES.values():
        app.command(stage.name, help=stage.summary)(own.get(stage.name) or _stage_command(stage.name))
    app.command()(init)
    app.command()(check)
    app.command()(plan)
    app.command()(sweep)
    app.command(name="score-pairs")(score_pairs)
    app.command()(report)
    app.command()(runs)
    app.command()(compare)
    app.command()(audit)
    app.command()(costs)
    app.command()(inspect)
    app.command()(explain)
    app.command(name="import")(import_tables)
    app.add_typer(generate_app, name="generate")
    app.add_typer(models_app, name="models")
    add_examples(app)
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
        show(perform(config, overrides, workspace, stage=stage).summary(), as_json=as_json)

    return command


def run(
    config: ConfigPath,
    overrides: Overrides = None,
    workspace: WorkspaceOption = None,
    out: Out = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Run all stages and print the run's metrics."""
    from gnnflow.api import calls

    made = calls.run(config, overrides=overrides or (), workspace=workspace, progress=listener(), out=out)
    summary = made.summary()
    if as_json:
        show(summary, as_json=True)
        return
    judged = summary["judgement"]
    show_metrics(summary["metrics"], headline="" if judged is None else judged["metric"])
    for line in [*([] if judged is None else [f"{judged['metric']}: {judged['text']}"]), *summary["cautions"]]:
        typer.echo(f"\n{line}")
    typer.echo(f"\npredictions  {summary['predictions']}")
    _say_place(out)
    typer.echo(f"report       {summary['report']}")


def score(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG", help="YAML file; or NAME@champion, for the config that was published with it."
        ),
    ],
    overrides: Overrides = None,
    workspace: WorkspaceOption = None,
    out: Out = None,
    ids: Annotated[
        str | None,
        typer.Option(
            "--ids",
            metavar="FILE|ID,ID",
            help="Score these nodes alone, and print their predictions: ids with commas, or a file with one a line.",
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Score the current tables with the model in service; print metrics and drift, or the predictions of some ids."""
    from gnnflow.api import calls

    asked = None if ids is None else _read_ids(ids)
    overrides = overrides or []
    scores = calls.score(config, ids=asked, overrides=overrides, workspace=workspace, progress=listener(), out=out)
    if as_json:
        show(scores.summary(), as_json=True)
        return
    for line in scores.lines():
        typer.echo(line)
    typer.echo(f"\nmodel        {scores.model}")
    if scores.uri:
        typer.echo(f"predictions  {scores.uri}")
        typer.echo(f"report       {scores.report}")
    _say_place(out)


def _say_place(out: str | None) -> None:
    """Print the file of the predictions that `--out` asks for."""
    from gnnflow.stages.out import out_file

    if out is not None:
        typer.echo(f"table        {out_file(out)}")


def _read_ids(given: str) -> list[str]:
    """Return the ids in a file, one a line, or in a text with commas."""
    texts = given.split(",")
    if os.path.isfile(given):  # noqa: PTH113 - a long list of ids is no name of a file, which Path would raise for
        try:
            texts = Path(given).read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise ConfigError("is not UTF-8 text", where=given, fix="Save it as UTF-8, one id a line.") from error
    return [text.strip() for text in texts if text.strip()]


def publish(
    config: ConfigPath, overrides: Overrides = None, workspace: WorkspaceOption = None, *, as_json: AsJson = False
) -> None:
    """Publish a completed run and print the decision."""
    summary = perform(config, overrides, workspace, stage="publish").summary()
    if as_json:
        show(summary, as_json=True)
        return
    typer.echo(f"{summary['name']} version {summary['version']}: {summary['reason']}")
    typer.echo(f"in service   version {summary['in_service']}")
    typer.echo(f"predictions  {summary['predictions']}, of version {summary['version']}")


def recommend(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG|RUN", help="YAML file; or a run: its URI, its name in the workspace, or NAME@champion."
        ),
    ],
    overrides: Overrides = None,
    workspace: WorkspaceOption = None,
    *,
    top: Annotated[
        int | None, typer.Option("--top", min=1, metavar="K", help="Items in each user's list; default: recommend.top.")
    ] = None,
    exclude_seen: Annotated[
        bool | None,
        typer.Option(
            "--exclude-seen/--include-seen",
            help="Leave out the items that a user has an edge to in the graph; default: recommend.exclude_seen.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="PLACE", help="A file named .parquet, or a folder for recommended.parquet."),
    ] = None,
    embeddings: Embeddings = None,
    as_json: AsJson = False,
) -> None:
    """List the best of all items for each user of a run that predicts links, and measure the lists."""
    from gnnflow.api import calls

    found = calls.recommend(
        config,
        top,
        exclude_seen=exclude_seen,
        out=out,
        embeddings=embeddings,
        overrides=overrides or (),
        workspace=workspace,
        progress=listener(),
    )
    show_lines(found.summary, found.lines, as_json=as_json)


def report(
    run_uri: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run's URI, or the name of a run in the workspace; or NAME@champion, or the folder of predictions, "
            "for a scoring.",
        ),
    ],
    workspace: WorkspaceOption = None,
    *,
    opens: Annotated[
        bool, typer.Option("--open", help="Open it in the browser; of a bucket, a temporary copy.")
    ] = False,
) -> None:
    """Print the path of the HTML report of a run or a scoring, making it again where it is missing."""
    from gnnflow.stages.score_report import report_at

    uri = report_at(run_uri, workspace=workspace or default_workspace())
    typer.echo(uri)
    if opens:
        from gnnflow.cli.opening import open_report

        if (file := open_report(uri)) != uri:
            typer.echo(f"opened as {file}", err=True)


def show_metrics(metrics: Mapping[str, float], *, headline: str = "") -> None:
    """Print a line per score with a column per split, each followed by the baselines', then all other figures.

    A line ends with the confidence interval of its test score. headline: the key whose metric baselines of other kinds
    than "without edges" are printed for; and counts, such as distinct items, which tell nothing alone.
    """
    from gnnflow.report.judging import NO_EDGES, PREFIX, baselines_in

    present = [split for split in SPLITS if any(key.startswith(f"{split}.") for key in metrics)]
    scores = [key for key in metrics if key.startswith(("valid.", "test.")) and not is_bound(key)]
    names = sorted({key.partition(".")[2] for key in scores})
    rows = {
        f"{prefix}{{}}.{name}": f"{name}{note}"
        for prefix, note in (("", ""), (PREFIX, " without edges"))
        for name in names
    }
    main = headline.partition(".")[2]
    others = [name for name in baselines_in(metrics) if name != NO_EDGES and main]
    counts = [name for name in names if isinstance(metrics.get(f"test.{name}"), int)]
    rows |= {f"{PREFIX}{name}.{{}}.{each}": f"{each} {name}" for each in (main, *counts) for name in others}
    # the printed text of each score, by its key
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
        if key not in cells and not is_bound(key) and not key.startswith(PREFIX):
            left = max(0, _NAME_WIDTH + _FIGURE_WIDTH - len(key) - 2)  # a long name has a gap before its figure too
            typer.echo(f"{key}  {value:>{left},.4g}")


def plan(
    config: ConfigPath,
    overrides: Overrides = None,
    workspace: WorkspaceOption = None,
    seconds: Limit = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Estimate the cost of a run per stage: time, bytes and memory, rehearsed on parts of the graph."""
    from gnnflow.api import calls

    forecast = calls.plan(config, overrides=overrides or (), workspace=workspace, seconds=seconds, progress=listener())
    show_lines(forecast.as_json, forecast.lines, as_json=as_json)


def score_pairs(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run whose task.kind is link: its URI, or its name in the workspace; or the predictions that "
            "`gnnflow score` wrote; or NAME@champion for the last ones of the model in service.",
        ),
    ],
    pairs: Annotated[str, typer.Argument(metavar="TABLE", help="Table with a source and a target id in each row.")],
    out: Annotated[
        str, typer.Option("--out", metavar="PLACE", help="A file named .parquet, or a folder for scored.parquet.")
    ],
    workspace: WorkspaceOption = None,
    *,
    embeddings: Embeddings = None,
) -> None:
    """Score pairs of nodes with the embeddings of a completed run, or of a scoring by its published model."""
    from gnnflow.stages import pairs as scoring
    from gnnflow.stages.out import out_file

    scoring.score_pairs(run, pairs, out=out, workspace=workspace or default_workspace(), embeddings=embeddings)
    typer.echo(out_file(out, name="scored"))


def sweep(
    config: ConfigPath, overrides: Overrides = None, workspace: WorkspaceOption = None, *, as_json: AsJson = False
) -> None:
    """Run all combinations of the config's `matrix:` and compare them; failed runs are listed, the others continue."""
    from gnnflow.api import calls

    result = calls.sweep(config, overrides=overrides or (), workspace=workspace, progress=listener())
    if as_json:
        show(result.summary(), as_json=True)
    else:
        for line in result.lines():
            typer.echo(line)
        typer.echo(f"\ntable  {result.comparison.table}")
        typer.echo(f"plot   {result.comparison.plot}")
        typer.echo(f"page   {result.comparison.page}")
    if result.failed:
        raise typer.Exit(_SOME_FAILED)


def runs(workspace: WorkspaceOption = None, *, as_json: AsJson = False) -> None:
    """List the runs of a workspace, the latest last: age, status, main score. Damaged ones are named at the end."""
    from gnnflow.api import calls
    from gnnflow.cli.run_table import table_lines
    from gnnflow.storage.attempts import list_attempts
    from gnnflow.storage.workspace import Workspace

    with warnings.catch_warnings(record=True) as damaged:
        warnings.simplefilter("always")
        found = calls.runs(workspace)
    begun = list_attempts(Workspace.at(workspace or default_workspace()))
    if as_json:
        complete = [{**each.summary(), "name": each.name, "status": "complete"} for each in found]
        show({"runs": complete, "unfinished": [each.summary() for each in begun]}, as_json=True)
    elif found or begun:
        for line in table_lines(found, begun):
            typer.echo(line)
    elif not damaged:
        typer.echo("no runs; `gnnflow run CONFIG` makes one")
    for each in damaged:
        typer.echo(f"error: {each.message}", err=True)
    if damaged:
        raise typer.Exit(_SOME_FAILED)


def compare(
    compared: Annotated[
        list[str],
        typer.Argument(metavar="RUN RUN...", help="Runs: their URIs, their names in the workspace, or NAME@champion."),
    ],
    workspace: WorkspaceOption = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show the keys of config and the metrics that differ between completed runs."""
    from gnnflow.api import calls

    found = calls.compare(*compared, workspace=workspace)
    show_lines(found.as_json, found.lines, as_json=as_json)
