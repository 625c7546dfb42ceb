"""Help says what to type, and what it says is a command with options that it has."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import typer

from gnnflow.cli.commands import build_app
from gnnflow.cli.examples import EXAMPLES, GROUPS

APP: Any = typer.main.get_command(build_app())


def command_of(words: list[str]) -> Any:
    found = APP
    while hasattr(found, "commands"):
        found = found.commands[words.pop(0)]
    return found


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_is_a_command_with_its_arguments(name: str) -> None:
    for line in EXAMPLES[name].split(", or "):
        _, *words = shlex.split(line)
        command = command_of(words)
        assert command is command_of(name.split())
        command.make_context(name, words)  # raises for an unknown option, a missing argument and a wrong value
        assert f"Type: {EXAMPLES[name]}" in command.help


def test_every_stage_says_what_to_type_and_groups_name_commands() -> None:
    for name in (each for names in GROUPS.values() for each in names):
        command = APP.commands[name]
        assert hasattr(command, "commands") or "Type: gnnflow" in command.help, name


def test_help_begins_with_what_a_newcomer_types_first() -> None:
    order = [name for name in APP.commands if not hasattr(APP.commands[name], "commands")]
    assert order[:5] == ["init", "check", "plan", "run", "report"]
