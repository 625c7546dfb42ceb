"""`gnnflow flat`: GraphFlat on a config, or in AGL's own form on two tables."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gnnflow.cli.options import AsJson, Overrides, WorkspaceOption, load, perform, show
from gnnflow.config import Config, config_from_dict
from gnnflow.config.stages import stages_of
from gnnflow.graph.errors import ConfigError


def flat(
    config: Annotated[str | None, typer.Argument(metavar="[CONFIG]", help="YAML file; or give -n and -e.")] = None,
    nodes: Annotated[str | None, typer.Option("-n", "--nodes", help="Node table.")] = None,
    edges: Annotated[str | None, typer.Option("-e", "--edges", help="Edge table.")] = None,
    hops: Annotated[
        int | None, typer.Option("--hops", help="With -n and -e: how far neighbourhoods reach; 2 if not given.")
    ] = None,
    sampling: Annotated[
        str | None,
        typer.Option("--sampling", help="With -n and -e: none, or KIND:FANOUT,FANOUT such as uniform:15,10."),
    ] = None,
    overrides: Overrides = None,
    workspace: WorkspaceOption = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Cut the graph into k-hop neighbourhoods. With -n and -e the stages before it run first."""
    if config is not None:
        _refuse_beside_config(tables=bool(nodes or edges), options=hops is not None or sampling is not None)
        show(perform(load(config, overrides, workspace), "flat", config_uri=config).summary(), as_json=as_json)
        return
    if not nodes or not edges:
        raise ConfigError("no tables were given", where="gnnflow flat", fix="Give CONFIG, or -n NODES and -e EDGES.")
    hops, sampling = 2 if hops is None else hops, "none" if sampling is None else sampling
    parsed = _flat_config(nodes, edges, hops, sampling, overrides, workspace)
    stages = stages_of(parsed)
    show(perform(parsed, *stages[: stages.index("flat") + 1]).summary(), as_json=as_json)


def _refuse_beside_config(*, tables: bool, options: bool) -> None:
    """Raise ConfigError where CONFIG was given with tables, or with the options that go with them."""
    if tables:
        raise ConfigError("both CONFIG and -n/-e were given", where="gnnflow flat", fix="Give one or the other.")
    if options:
        raise ConfigError(
            "both CONFIG and --hops or --sampling were given, which go with -n and -e",
            where="gnnflow flat",
            fix="Use --set flat.hops=2 or --set 'neighbors.sampling={kind: uniform, fanout: [15, 10]}' instead.",
        )


def _flat_config(
    nodes: str, edges: str, hops: int, sampling: str, overrides: list[str] | None, workspace: str | None
) -> Config:
    kind, _, listed = sampling.partition(":")
    try:
        fanout = [int(number) for number in listed.split(",")] if listed else []
    except ValueError:
        fanout = None
    if fanout is None or (kind == "none" and listed):
        raise ConfigError(
            f"{sampling!r} is not a sampling",
            where="--sampling",
            fix="Write none, or KIND:FANOUT,FANOUT such as uniform:15,10.",
        )
    content: dict[str, Any] = {
        "name": "flat",
        "graph": {"nodes": nodes, "edges": edges},
        "model": {"layers": hops},
        "neighbors": {"sampling": {"kind": kind, "fanout": fanout} if kind != "none" else {"kind": kind}},
    }
    return config_from_dict(content, overrides=overrides or (), workspace=workspace)
