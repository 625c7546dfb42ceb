"""`gnnflow import` and `gnnflow generate`: node and edge tables from elsewhere, or made on the spot."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from gnnflow.config.deployment import refuse_unusable
from gnnflow.graph.errors import ConfigError


def _named(out: str) -> str:
    """Return --out. Raises ConfigError where it cannot be a place, or is empty: the folder one happens to be in."""
    if not out.strip():
        raise ConfigError("names no place", where="--out", fix="Give a folder, or . for this one.")
    refuse_unusable(out, where="--out")
    return out


Out = Annotated[
    str,
    typer.Option(
        "--out", callback=_named, help="Folder or URL for the tables; a graph of the same tables there is replaced."
    ),
]

generate_app = typer.Typer(help="Make a graph to try things on.", no_args_is_help=True)


def import_tables(
    spec: Annotated[str, typer.Argument(help="pyg:Planetoid/Cora, csv:edges.csv, networkx:graph.graphml, ...")],
    out: Out,
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
    pairs = [option.split("=", 1) for option in options or ()]
    given = dict(pairs)
    if len(given) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{twice!r} is given twice", where="--option", fix="Give each option once.")
    for uri in import_graph(spec, out=out, options=given):
        typer.echo(uri)


@generate_app.command()
def payments(
    out: Out,
    *,
    nodes: Annotated[int, typer.Option("--nodes", min=100, help="Number of accounts, merchants and devices.")] = 20_000,
    edges: Annotated[int, typer.Option("--edges", min=100, help="Number of edges.")] = 200_000,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    typed: Annotated[
        bool, typer.Option("--typed", help="Accounts, devices and merchants as node types; prints the graph section.")
    ] = False,
) -> None:
    """Make a payments network: string ids, hub merchants, edge attributes and weights, planted risk classes."""
    import yaml

    from gnnflow.datasets import write_payments, write_typed_payments

    if typed:
        section = write_typed_payments(out, num_nodes=nodes, num_edges=edges, seed=seed)
        typer.echo(yaml.safe_dump({"graph": section}, sort_keys=False, allow_unicode=True, width=math.inf), nl=False)
        return
    for uri in write_payments(out, num_nodes=nodes, num_edges=edges, seed=seed):
        typer.echo(uri)
