"""Every command. Results go to stdout, progress to stderr; with --json stdout is one JSON object and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from gnnflow import __version__
from gnnflow.cli.metrics import show_metrics
from gnnflow.cli.models import models_app
from gnnflow.cli.progress import for_terminal
from gnnflow.cluster import Cluster
from gnnflow.config import Config, config_from_dict, load_config
from gnnflow.graph.errors import ConfigError
from gnnflow.stages.base import StageContext, StageResult
from gnnflow.storage.filesystem import read_bytes

app = typer.Typer(
    name="gnnflow",
    help="Train and serve graph neural networks on graphs that do not fit in one machine's memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
generate_app = typer.Typer(help="Make a graph to try things on.", no_args_is_help=True)
app.add_typer(generate_app, name="generate")
app.add_typer(models_app, name="models")

ConfigPath = Annotated[str, typer.Argument(metavar="CONFIG", help="YAML file: a path or any fsspec URL.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. train.lr=0.02.")
]
WorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", metavar="URI", help="Where artifacts and runs live.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]


def _version(asked: bool) -> None:  # noqa: FBT001 - typer passes the flag's value
    if asked:
        typer.echo(f"gnnflow {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Carry options that come before the command."""


def _load(config: str, overrides: list[str] | None, workspace: str | None) -> Config:
    return load_config(read_bytes(config).decode(), overrides=overrides or (), workspace=workspace, source=config)


@app.command()
def run(
    config: ConfigPath, overrides: Overrides = None, workspace: WorkspaceOption = None, *, as_json: AsJson = False
) -> None:
    """Run all stages: tables to predictions. Resumes where an earlier run stopped; repeats nothing that is done."""
    from gnnflow.stages import pipeline

    parsed = _load(config, overrides, workspace)
    with for_terminal() as progress, Cluster(parsed.cluster) as cluster:
        result = pipeline.run(StageContext.of(parsed, cluster, progress))
    if as_json:
        typer.echo(json.dumps(result.summary(), sort_keys=True))
        return
    show_metrics(result.metrics)
    typer.echo(f"\npredictions  {result.predictions}")
    typer.echo(f"report       {result.report}")


def _run_stage(stage: Callable[[StageContext], StageResult], config: Config, *, as_json: bool) -> None:
    with for_terminal() as progress, Cluster(config.cluster) as cluster:
        result = stage(StageContext.of(config, cluster, progress))
    summary: dict[str, Any] = {
        "stage": result.stage,
        "artifact": result.artifact,
        "digest": result.digest,
        "reused": result.reused,
        "seconds": round(result.seconds, 3),
        "rows_in": result.manifest.rows_in,
        "rows_out": result.manifest.rows_out,
        "rows_quarantined": result.manifest.rows_quarantined,
    }
    if as_json:
        typer.echo(json.dumps(summary, sort_keys=True))
        return
    for key, value in summary.items():
        typer.echo(f"{key:18} {value}")


@app.command()
def ingest(
    config: ConfigPath, overrides: Overrides = None, workspace: WorkspaceOption = None, *, as_json: AsJson = False
) -> None:
    """Turn the tables into the graph store: dense ids, partitions, in-edges sorted by destination."""
    from gnnflow.stages import ingest as stage

    _run_stage(stage.run, _load(config, overrides, workspace), as_json=as_json)


@app.command()
def flat(
    config: Annotated[str | None, typer.Argument(metavar="[CONFIG]", help="YAML file; or give -n and -e.")] = None,
    nodes: Annotated[str | None, typer.Option("-n", "--nodes", help="Node table.")] = None,
    edges: Annotated[str | None, typer.Option("-e", "--edges", help="Edge table.")] = None,
    hops: Annotated[int, typer.Option("--hops", help="How far neighbourhoods reach.")] = 2,
    sampling: Annotated[
        str, typer.Option("--sampling", help="none, or KIND:FANOUT,FANOUT such as uniform:15,10.")
    ] = "none",
    overrides: Overrides = None,
    workspace: WorkspaceOption = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Cut the graph into k-hop neighbourhoods. With -n and -e ingest runs first."""
    from gnnflow.stages import flat as stage
    from gnnflow.stages import ingest as ingest_stage

    if config is not None and (nodes or edges):
        raise ConfigError("both CONFIG and -n/-e were given", where="gnnflow flat", fix="Give one or the other.")
    if config is not None:
        _run_stage(stage.run, _load(config, overrides, workspace), as_json=as_json)
        return
    if not nodes or not edges:
        raise ConfigError("no tables were given", where="gnnflow flat", fix="Give CONFIG, or -n NODES and -e EDGES.")
    parsed = _flat_config(nodes, edges, hops, sampling, overrides, workspace)

    def both(context: StageContext) -> StageResult:
        ingest_stage.run(context)
        return stage.run(context)

    _run_stage(both, parsed, as_json=as_json)


def _flat_config(
    nodes: str, edges: str, hops: int, sampling: str, overrides: list[str] | None, workspace: str | None
) -> Config:
    kind, _, listed = sampling.partition(":")
    try:
        fanout = [int(number) for number in listed.split(",")] if listed else []
    except ValueError:
        raise ConfigError(
            f"{sampling!r} is not a sampling",
            where="--sampling",
            fix="Write none, or KIND:FANOUT,FANOUT such as uniform:15,10.",
        ) from None
    content: dict[str, Any] = {
        "name": "flat",
        "graph": {"nodes": nodes, "edges": edges},
        "model": {"layers": hops},
        "flat": {"sampling": {"kind": kind, "fanout": fanout} if kind != "none" else {"kind": kind}},
    }
    return config_from_dict(content, overrides=overrides or (), workspace=workspace)


@app.command()
def train(
    config: ConfigPath, overrides: Overrides = None, workspace: WorkspaceOption = None, *, as_json: AsJson = False
) -> None:
    """Train the model on GraphFlat's shards. Resumes a run that was killed."""
    from gnnflow.stages import train as stage

    _run_stage(stage.run, _load(config, overrides, workspace), as_json=as_json)


@app.command()
def infer(
    config: ConfigPath, overrides: Overrides = None, workspace: WorkspaceOption = None, *, as_json: AsJson = False
) -> None:
    """Score nodes layer by layer and write predictions with the user's ids."""
    from gnnflow.stages import infer as stage

    _run_stage(stage.run, _load(config, overrides, workspace), as_json=as_json)


@app.command()
def publish(
    config: ConfigPath, overrides: Overrides = None, workspace: WorkspaceOption = None, *, as_json: AsJson = False
) -> None:
    """Make a completed run a version of its model, and promote it where it is at least as good as the champion."""
    from gnnflow.stages import publish as stage

    with for_terminal() as progress:
        context = StageContext.of(_load(config, overrides, workspace), progress=progress)
        result = stage.run(context, config_uri=config)
    if as_json:
        typer.echo(json.dumps(result.summary(), sort_keys=True))
        return
    typer.echo(f"{result.name} version {result.version}: {result.reason}")
    typer.echo(f"in service   version {result.in_service}")
    typer.echo(f"predictions  {result.predictions}")


@app.command()
def report(
    run_uri: Annotated[str, typer.Argument(metavar="RUN", help="A run's URI, or the name of a run in the workspace.")],
    workspace: WorkspaceOption = None,
) -> None:
    """Print the path of a run's HTML report, making it again where it is missing."""
    from gnnflow.stages import report as stage

    typer.echo(stage.report_of(run_uri, workspace=workspace or "runs"))


@app.command(name="import")
def import_command(
    spec: Annotated[str, typer.Argument(help="pyg:Planetoid/Cora, csv:edges.csv, networkx:graph.graphml, ...")],
    out: Annotated[str, typer.Option("--out", help="Folder or URL for the tables.")],
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="For the importer, e.g. root=downloads."),
    ] = None,
) -> None:
    """Turn a PyG data set, a NetworkX file or an edge list in CSV into node and edge tables."""
    from gnnflow.datasets import import_graph

    malformed = [option for option in options or () if "=" not in option]
    if malformed:
        raise ConfigError(f"{malformed[0]!r} is not KEY=VALUE", where="--option", fix="Write e.g. root=downloads.")
    given = dict(option.split("=", 1) for option in options or ())
    for uri in import_graph(spec, out=out, options=given):
        typer.echo(uri)


@generate_app.command()
def payments(
    out: Annotated[str, typer.Option("--out", help="Folder or URL for nodes.parquet and edges/.")],
    nodes: Annotated[int, typer.Option("--nodes", min=100, help="Number of accounts and merchants.")] = 20_000,
    edges: Annotated[int, typer.Option("--edges", min=100, help="Number of payments.")] = 200_000,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
) -> None:
    """Make a payments network: string ids, hub merchants, edge attributes and weights, planted risk classes."""
    from gnnflow.datasets import write_payments

    for uri in write_payments(out, num_nodes=nodes, num_edges=edges, seed=seed):
        typer.echo(uri)
