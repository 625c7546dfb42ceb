"""The order of commands in `gnnflow --help`, and what to type for each.

A command that is in no group stands in the last one, and one without an example shows none.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import typer
from typer.models import CommandInfo

from gnnflow.config import STAGES

_OTHER = "Look closer"
GROUPS: Mapping[str, tuple[str, ...]] = {
    "From tables to predictions": ("init", "check", "plan", "run", "report"),
    "See and compare runs": ("runs", "compare", "sweep"),
    "Publish a model and score with it": ("publish", "models", "score", "recommend", "score-pairs"),
    "Make or import a graph": ("generate", "import"),
    "One stage of a run": tuple(name for name in STAGES if name not in {"run", "publish", "score", "recommend"}),
    _OTHER: ("explain", "audit", "inspect", "costs"),
}
"""Names of commands by group, in the order that help shows them."""
EXAMPLES: Mapping[str, str] = {
    "generate accounts": "gnnflow generate accounts --out data",
    "generate payments": "gnnflow generate payments --out quickstart-data",
    "generate shop": "gnnflow generate shop --out data",
    "init": "gnnflow init data/accounts.csv data/payments.csv",
    "check": "gnnflow check config.yaml",
    "plan": "gnnflow plan config.yaml",
    "run": "gnnflow run config.yaml --set train.lr=0.003",
    "report": "gnnflow report my-graph --open",
    "runs": "gnnflow runs",
    "compare": "gnnflow compare my-graph my-other-graph",
    "sweep": "gnnflow sweep experiment.yaml",
    "publish": "gnnflow publish config.yaml",
    "score": "gnnflow score config.yaml",
    "score-pairs": "gnnflow score-pairs my-links pairs.csv --out scores.parquet",
    "models list": "gnnflow models list",
    "models show": "gnnflow models show my-graph champion",
    "models promote": "gnnflow models promote my-graph 2",
    "models reject": 'gnnflow models reject my-graph 2 --why "too many alarms"',
    "models rollback": "gnnflow models rollback my-graph",
    "import": "gnnflow import csv:edges.csv --out data",
    "flat": "gnnflow flat config.yaml, or gnnflow flat -n nodes.csv -e edges.csv --hops 2 --sampling uniform:15,10",
    "explain": "gnnflow explain config.yaml",
    "audit": "gnnflow audit my-graph",
    "inspect": "gnnflow inspect runs/failed/train/0a1b2c/train.safetensors",
    "costs": "gnnflow costs my-graph",
}
"""What to type, by the words of a command; a stage without a line here takes a config."""


def add_examples(app: typer.Typer, *, above: str = "") -> None:
    """Put an app's commands in groups and order, each with what to type. above: the words before their names."""
    places = {name: (number, group) for number, (group, name) in enumerate(_placed())}
    last = (len(places), _OTHER)
    for info in app.registered_commands:
        name = _name_of(info)
        text = STAGES[name].summary if not above and name in STAGES else inspect.getdoc(info.callback) or ""
        example = EXAMPLES.get(f"{above} {name}".strip()) or (f"gnnflow {name} config.yaml" if name in STAGES else "")
        info.help = f"{text}\n\nType: {example}" if example else text
        if not above:
            info.rich_help_panel = places.get(name, last)[1]
    if not above:
        app.registered_commands.sort(key=lambda info: places.get(_name_of(info), last)[0])
        for group in app.registered_groups:
            group.rich_help_panel = places.get(str(group.name), last)[1]
            if group.typer_instance is not None:
                add_examples(group.typer_instance, above=str(group.name))


def _name_of(info: CommandInfo) -> str:
    return info.name or str(getattr(info.callback, "__name__", ""))


def _placed() -> list[tuple[str, str]]:
    return [(group, name) for group, names in GROUPS.items() for name in names]
