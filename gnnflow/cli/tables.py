"""`gnnflow import` and `gnnflow generate`: imported or generated node and edge tables."""

from __future__ import annotations

import csv
import math
from functools import partial
from typing import Annotated, Any

import typer

from gnnflow.config.deployment import refuse_unusable
from gnnflow.graph.errors import ConfigError


def _named(out: str) -> str:
    """Return --out. Raises ConfigError where it is empty or not a valid location."""
    if not out.strip():
        raise ConfigError("is empty", where="--out", fix="Give a folder, or . for this one.")
    refuse_unusable(out, where="--out")
    return out


Out = Annotated[
    str,
    typer.Option(
        "--out", callback=_named, help="Folder or URL for the tables; a graph of the same tables there is replaced."
    ),
]

_PAIR = 2

generate_app = typer.Typer(help="Make an example graph.", no_args_is_help=True)


def import_tables(
    spec: Annotated[
        str, typer.Argument(help="pyg:Planetoid/Cora, csv:edges.csv, networkx:graph.gexf, sqlite:file.db, ...")
    ],
    out: Out,
    *,
    ends: Annotated[
        str, typer.Option("--ends", metavar="SRC,DST", help="For a table: the columns of an edge's source and target.")
    ] = "",
    types: Annotated[
        str,
        typer.Option(
            "--types", metavar="NAME|SRC,DST", help="For a table: one name for nodes of one type, or two for both ends."
        ),
    ] = "",
    nodes: Annotated[
        str,
        typer.Option(
            "--nodes", metavar="PLACE[,PLACE]", help="For a table: node tables; of a database or workbook, their names."
        ),
    ] = "",
    edges: Annotated[
        str, typer.Option("--edges", metavar="NAME", help="For a database or workbook: its table or sheet of edges.")
    ] = "",
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="For the importer, e.g. root=downloads."),
    ] = None,
) -> None:
    """Turn a data set, a graph file, an edge list or another program's table into node and edge tables.

    Prints the chosen roles of columns on stderr, and the tables on stdout (a typed graph as a config's graph section).
    """
    from gnnflow.datasets import GraphTables, import_spec, save_tables

    flags = {"types": types, "nodes": nodes, "edges": edges}
    said = [f"{name}={value}" for name, value in flags.items() if value]
    given = _given([*_of_ends(ends), *said, *(options or ())])
    tables = import_spec(spec, options=given, tell=partial(typer.echo, err=True))
    written = save_tables(tables, out)
    if isinstance(tables, GraphTables):
        for uri in written:
            typer.echo(uri)
    else:
        _print_section(tables.uris(out))


def _of_ends(ends: str) -> list[str]:
    """Return --ends as options. Raises ConfigError where it does not name two columns."""
    return [f"{end}={name}" for end, name in zip(("src", "dst"), parse_ends(ends), strict=True)] if ends else []


def parse_ends(ends: str) -> tuple[str, str]:
    """Return the two columns that --ends names. Raises ConfigError where it does not name two."""
    names = [name.strip() for name in next(csv.reader([ends], skipinitialspace=True), [])]
    if len(names) != _PAIR or not all(names):
        raise ConfigError(
            f"{ends!r} does not name two columns",
            where="--ends",
            fix="""Write --ends SRC,DST; a name with a comma in quotes: --ends '"SRC, OLD",DST'.""",
        )
    return names[0], names[1]


def _given(options: list[str]) -> dict[str, str]:
    """Return options by name. Raises ConfigError for one that is not KEY=VALUE, or is given twice."""
    malformed = [option for option in options if "=" not in option]
    if malformed:
        raise ConfigError(f"{malformed[0]!r} is not KEY=VALUE", where="--option", fix="Write e.g. root=downloads.")
    pairs = [option.split("=", 1) for option in options]
    given = dict(pairs)
    if len(given) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{twice!r} is given twice", where="--option", fix="Give each option once.")
    return given


def _print_section(graph: dict[str, Any]) -> None:
    """Print the graph section of a config."""
    import yaml

    from gnnflow.config.environment import escape

    typer.echo(yaml.safe_dump({"graph": escape(graph)}, sort_keys=False, allow_unicode=True, width=math.inf), nl=False)


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
    """Make a payments network: string ids, hub merchants, edge attributes and weights, hidden risk classes."""
    from gnnflow.datasets import write_payments, write_typed_payments

    if typed:
        _print_section(write_typed_payments(out, num_nodes=nodes, num_edges=edges, seed=seed))
        return
    for uri in write_payments(out, num_nodes=nodes, num_edges=edges, seed=seed):
        typer.echo(uri)


@generate_app.command()
def accounts(
    out: Out,
    *,
    rows: Annotated[int, typer.Option("--accounts", min=100, help="Number of accounts.")] = 4_000,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
) -> None:
    """Make CSV exports of accounts and payments: text ids, dates, gaps, and fraud as yes, no or blank."""
    from gnnflow.datasets import write_accounts

    for uri in write_accounts(out, num_accounts=rows, seed=seed):
        typer.echo(uri)


@generate_app.command()
def fraud(
    out: Out,
    *,
    rows: Annotated[int, typer.Option("--accounts", min=1_000, help="Number of accounts.")] = 20_000,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
) -> None:
    """Make accounts and payments as Parquet: 1.5 % of the accounts are fraud, in rings that pay each other."""
    from gnnflow.datasets import fraud_tables, write_rare

    for uri in write_rare(out, fraud_tables(num_accounts=rows, seed=seed)):
        typer.echo(uri)


@generate_app.command()
def churn(
    out: Out,
    *,
    rows: Annotated[int, typer.Option("--customers", min=1_000, help="Number of customers.")] = 10_000,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
) -> None:
    """Make customers and calls as Parquet: 8 % leave, more often where the people they call have trouble too."""
    from gnnflow.datasets import churn_tables, write_rare

    for uri in write_rare(out, churn_tables(num_customers=rows, seed=seed)):
        typer.echo(uri)


@generate_app.command()
def shop(
    out: Out,
    *,
    rows: Annotated[int, typer.Option("--users", min=100, help="Number of users.")] = 3_000,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
) -> None:
    """Make CSV exports of a shop: users, items, categories and orders, with foreign keys."""
    from gnnflow.datasets import write_shop

    for uri in write_shop(out, num_users=rows, seed=seed):
        typer.echo(uri)
