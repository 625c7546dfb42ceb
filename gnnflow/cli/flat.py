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
    hops: Annotated[int, typer.Option("--hops", help="How far neighbourhoods reach.")] = 2,
    sampling: Annotated[
        str, typer.Option("--sampling", help="none, or KIND:FANOUT,FANOUT such as uniform:15,10.")
    ] = "none",
    overrides: Overrides = None,
    workspace: WorkspaceOption = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Cut the graph into k-hop neighbourhoods. With -n and -e the stages before it run first."""
    if config is not None and (nodes or edges):
        raise ConfigError("both CONFIG and -n/-e were given", where="gnnflow flat", fix="Give one or the other.")
    if config is not None:
        show(perform(load(config, overrides, workspace), "flat", config_uri=config).summary(), as_json=as_json)
        return
    if not nodes or not edges:
        raise ConfigError("no tables were given", where="gnnflow flat", fix="Give CONFIG, or -n NODES and -e EDGES.")
    parsed = _flat_config(nodes, edges, hops, sampling, overrides, workspace)
    stages = stages_of(parsed)
    show(perform(parsed, *stages[: stages.index("flat") + 1]).summary(), as_json=as_json)


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
