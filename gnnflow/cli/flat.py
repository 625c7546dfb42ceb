"""`gnnflow flat`: cuts neighbourhoods by a config, or of two tables without one."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any

import typer

from gnnflow.cli.options import AsJson, Overrides, WorkspaceOption, listener, perform, show
from gnnflow.config import Config, config_from_dict
from gnnflow.config.stages import stages_of
from gnnflow.graph.errors import ConfigError, GnnflowError

_GRAPH_LINE = r"`graph: \{(\w+): ([^{}`]+)\}`"


def flat(
    config: Annotated[str | None, typer.Argument(metavar="[CONFIG]", help="YAML file; or give -n and -e.")] = None,
    nodes: Annotated[str | None, typer.Option("-n", "--nodes", help="Node table.")] = None,
    edges: Annotated[str | None, typer.Option("-e", "--edges", help="Edge table.")] = None,
    hops: Annotated[int | None, typer.Option("--hops", help="With -n and -e: number of hops; 2 if not given.")] = None,
    sampling: Annotated[
        str | None,
        typer.Option("--sampling", help="With -n and -e: none, or KIND:FANOUT,FANOUT such as uniform:15,10."),
    ] = None,
    overrides: Overrides = None,
    workspace: WorkspaceOption = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Cut the graph into k-hop neighbourhoods. With -n and -e earlier stages run first."""
    if config is not None:
        _refuse_with_config(tables=bool(nodes or edges), options=hops is not None or sampling is not None)
        show(perform(config, overrides, workspace, stage="flat").summary(), as_json=as_json)
        return
    if not nodes or not edges:
        raise ConfigError("no tables were given", where="gnnflow flat", fix="Give CONFIG, or -n NODES and -e EDGES.")
    hops, sampling = 2 if hops is None else hops, "none" if sampling is None else sampling
    from gnnflow.api import performing
    from gnnflow.stages.base import resolve_here

    parsed = _flat_config(nodes, edges, hops, sampling, overrides, workspace)
    stages = stages_of(parsed)
    try:
        done = performing.perform(resolve_here(parsed), *stages[: stages.index("flat") + 1], listener=listener())
    except GnnflowError as error:
        raise _with_option(error) from error
    show(done.summary(), as_json=as_json)


def _with_option(error: GnnflowError) -> GnnflowError:
    """Return an error of a run without a config file: its lines of YAML as options, which also set the other keys."""
    if not re.search(r"\bgraph[.:]", str(error)):
        return error

    def written(text: str) -> str:
        return re.sub(_GRAPH_LINE, lambda found: f"`--set {shlex.quote(f'graph.{found[1]}={found[2]}')}`", text)

    other = "There is no config file here: set a key by --set KEY=VALUE."
    return type(error)(written(error.problem), where=error.where, fix=f"{written(error.fix)} {other}".strip())


def _refuse_with_config(*, tables: bool, options: bool) -> None:
    """Raise ConfigError where CONFIG was given with tables, or with options for tables."""
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
