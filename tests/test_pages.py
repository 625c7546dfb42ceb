"""What the documentation names is there: links, files, commands and their options."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from gnnflow.cli.commands import build_app
from tests.conftest import REPOSITORY

PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]+`|^ {4}\S[^\n]*$", re.DOTALL | re.MULTILINE)
ROOMS = "gnnflow|tests|docs|benchmarks|configs|operators|dags|native|helm|\\.ci"
FILE = re.compile(rf"(?<![\w/.{{}}-])(?:{ROOMS})/[\w./*-]*\w")
COMMAND = re.compile(r"(?: {4}|\w+=\S+ )*(?:(?:\.venv/bin/)?python )?(gnnflow [a-z].*|benchmarks/\w+\.py.*)")


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(REPOSITORY)) for page in pages]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them: repeated ones are numbered."""
    seen: dict[str, int] = {}
    found = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", re.sub(LINK, "", heading).lower()).strip().replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
        seen[slug] = seen.get(slug, 0) + 1
    return found


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    for code in CODE.findall(page.read_text()):
        for path in FILE.findall(code):
            if "NAME" in path:  # of a file that a reader is to write
                continue
            assert list(REPOSITORY.glob(path)), path


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each command of gnnflow or of a benchmark that a page spells, options in brackets included."""
    for code in CODE.findall(page.read_text()):
        for line in code.strip("`").replace("\\\n", " ").splitlines():
            if found := COMMAND.match(line):
                yield shlex.split(re.sub(r"[\[\]]", " ", found[1]), comments=True)


@cache
def options_of(script: Path) -> frozenset[str]:
    """The options that a benchmark, or a module beside it that it imports, spells."""
    tree = ast.parse(script.read_text())
    texts = {each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    modules = {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    modules |= {name.name for each in ast.walk(tree) if isinstance(each, ast.Import) for name in each.names}
    beside = [script.parent / f"{module}.py" for module in modules if module and "." not in module]
    texts |= {f"--{text.replace('_', '-')}" for text in texts if text.isidentifier()}  # of a table of options
    return frozenset(texts).union(*(options_of(each) for each in beside if each.exists() and each != script))


@pytest.mark.table(3)
@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_every_command_is_spelled_as_it_is(page: Path) -> None:
    app = typer.main.get_command(build_app())
    for words in commands(page):
        asked = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        if words[0].endswith(".py"):
            known = options_of(REPOSITORY / words[0])
        else:
            command: Any = app
            for word in words[1:]:
                if hasattr(command, "commands"):
                    (*_, command) = [command.commands[each] for each in word.split("|")]
            known = frozenset(option for parameter in command.params for option in parameter.opts) | {"--help"}
        assert asked <= known, (words, asked - known)
