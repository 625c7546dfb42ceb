"""Adds to the documentation's site the pages that docs/ does not hold, for mkdocs.

index.md and contributing.md are the files at the repository's root, decisions/index.md lists the decisions, and api.md
names what `import gnnflow` offers, whose docstrings mkdocstrings then reads. A notebook becomes a page, so that its
links are checked like all others. Files of the repository that pages link become files of the site.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File, Files

import gnnflow

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).parents[1]
_AT_ROOT = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
_LINK = re.compile(r"\]\((\.\./)+([^)#]+)")
_CLASSES = ("Explained", "Checked", "Planned", "Swept", "Compared")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and the files of the repository that pages link."""
    decisions = [each for each in files.documentation_pages() if each.src_uri.startswith("decisions/")]
    made = {page: _of_root(name) for name, page in _AT_ROOT.items()}
    made |= {"decisions/index.md": _list(decisions), "api.md": _api()}
    made |= {
        each.src_uri.replace(".ipynb", ".md"): _of_notebook(each) for each in files if each.src_uri.endswith(".ipynb")
    }
    for page, content in made.items():
        files.append(File.generated(config, page, content=content))
    for page in list(files.documentation_pages()):
        for _, linked in _LINK.findall(page.content_string) if page.src_uri.endswith(".md") else ():
            if (ROOT / linked).is_file() and files.get_file_from_path(linked) is None:
                files.append(File.generated(config, linked, abs_src_path=str(ROOT / linked)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let links that leave docs/ lead to the same file in the site."""
    above = "../" * page.file.src_uri.count("/")
    return _LINK.sub(lambda found: f"]({above}{found[2]}" if _is_outside(page.file, found) else found[0], markdown)


def _is_outside(page: File, link: re.Match[str]) -> bool:
    """Return whether a link of a page leads out of docs/."""
    return link[0].count("../") > page.src_uri.count("/")


def _of_root(name: str) -> str:
    text = (ROOT / name).read_text().replace("](docs/decisions)", "](decisions/index.md)").replace("](docs/", "](")
    text = text.replace(".ipynb)", ".md)")
    for other, page in _AT_ROOT.items():
        text = text.replace(f"]({other}", f"]({page}")
    return text


def _of_notebook(file: File) -> str:
    cells = json.loads(file.content_string)["cells"]
    texts = ["".join(each["source"]) for each in cells]
    parts = [
        f"```python\n{text}\n```" if each["cell_type"] == "code" else text
        for each, text in zip(cells, texts, strict=True)
    ]
    name = file.src_uri.rpartition("/")[2]
    return "\n\n".join([*parts, f"[The notebook]({name}) itself.\n"])


def _list(decisions: list[File]) -> str:
    rows = []
    for each in sorted(decisions, key=lambda file: file.src_uri):
        title = each.content_string.partition("\n")[0].removeprefix("# ")
        rows.append(f"- [{title}]({each.src_uri.removeprefix('decisions/')})")
    return "\n".join(["# Decisions", "", "Why gnnflow is built as it is, with what was measured.", "", *rows])


def _api() -> str:
    lines = ["# API", "", "What `import gnnflow` offers. [From Python](python.md) shows it in use.", ""]
    lines += [f"::: gnnflow.{name}\n" for name in gnnflow.__all__ if name != "Config"]
    lines += [f"::: gnnflow.api.results.{name}\n" for name in _CLASSES]
    return "\n".join([*lines, "::: gnnflow.api.batches.Batch\n"])
