"""Check that names and docstrings are in plain words, by the rule in CONTRIBUTING.md: .ci/words.py [FILES].

A docstring begins with a sentence of at most 20 words that is no indirect question. A name has at most four words and
is no clause. Some turns of phrase, which readers of other languages read twice, stay out of docstrings and comments.
Prints each line that breaks the rule, and ends with 1 where there is one.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

_ROOTS = ("gnnflow", "operators", "dags", "benchmarks")
_MOST_WORDS, _MOST_IN_NAME = 20, 4
_QUESTION = re.compile(r"(What|Which|How|Whether|Where|When|Who)\b")
_CLAUSE = {"what", "which", "how", "whether", "who", "where", "when", "beside", "behind"}
_PHRASES = re.compile(r"\b(that of|those of|beside|of (?:its|their|his|one's) own)\b")
_OVERRIDES = {"get_openlineage_facets_on_complete"}  # names that a library asks for


def broken(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that break the rule, with the reason."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _of_name(node.name, node.lineno)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            yield from _of_docstring(node)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and (found := _PHRASES.search(token.string)):
            yield token.start[0], f"comment says {found[0]!r}"


def _of_name(name: str, line: int) -> Iterator[tuple[int, str]]:
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)
    if name in _OVERRIDES or name.startswith("__"):
        return
    if len(words) > _MOST_IN_NAME:
        yield line, f"{name} has {len(words)} words"
    if words and words[0].lower() in _CLAUSE:
        yield line, f"{name} is a clause"


def _of_docstring(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module,
) -> Iterator[tuple[int, str]]:
    text = ast.get_docstring(node)
    if text is None:
        return
    line = node.body[0].lineno
    first = re.split(r"(?<=[.:;])\s", text.split("\n\n")[0].replace("\n", " "))[0]
    if _QUESTION.match(first):
        yield line, f"docstring begins with {first.split()[0]!r}"
    if len(first.split()) > _MOST_WORDS:
        yield line, f"first sentence has {len(first.split())} words"
    for found in _PHRASES.finditer(text.replace("\n", " ")):
        yield line, f"docstring says {found[0]!r}"


def main() -> int:
    """Check the named files, or all Python files that git tracks in the checked folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    files = parser.parse_args().files or [
        Path(name)
        for name in subprocess.run(
            ["git", "ls-files", *_ROOTS], capture_output=True, text=True, check=True
        ).stdout.split()
        if name.endswith(".py")
    ]
    found = [
        f"{path}:{line}: {why}"
        for path in files
        if path.is_file() and not path.name.endswith("_pb2.py")
        for line, why in sorted(set(broken(path)))
    ]
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
