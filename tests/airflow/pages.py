"""A workspace whose ids, classes and labels are hostile, and a crawler of the pages of workspaces."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import urldefrag, urljoin, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow import registry
from gnnflow.config.matrix import RunRow
from gnnflow.stages import pipeline, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.comparison import compare_runs
from tests.airflow.running import TRAIN
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from gnnflow.config import Config

HOSTILE = "<script>window.ran = document.cookie</script>"
_HOSTILE = (
    HOSTILE,
    '"><img src=x onerror="window.ran=1">',
    "</td></style><svg onload=window.ran=1>",
    "javascript:window.ran=1//",
)
PREFIX = "/gnnflow/"
_OPENED = frozenset({"http", "https"})
_NOT_FOLLOWED = ("data:", "mailto:")


def hostile_config(folder: Path) -> Config:
    """Return the config of the runs of `write_hostile`, that of the first seed."""
    return graph_config(folder, train=TRAIN)


def write_hostile(folder: Path) -> None:
    """Write `runs`: two published runs of nodes with hostile ids and classes, their comparison, and a scoring.

    The second starts from the weights of the first, which is in service.
    """
    write_graph(folder, string_ids=True)
    for name, columns in (("nodes", ("id", "label")), ("edges", ("src", "dst"))):
        table = pq.read_table(folder / f"{name}.parquet")
        for column in columns:
            texts = pa.array([_made_hostile(str(each)) for each in table[column].to_pylist()])
            table = table.set_column(table.schema.get_field_index(column), column, texts)
        pq.write_table(table, folder / f"{name}.parquet")
    config = hostile_config(folder)
    again = config.model_copy(update={"seed": 1, "train": config.train.model_copy(update={"start": config.name})})
    runs = []
    for each in (config, again):
        runs.append(pipeline.run_quietly(each).uri)
        registry.register(config.workspace, runs[-1], name=config.name)
        registry.promote(config.workspace, config.name, 1)
    score.run(StageContext.of(config))
    rows = [RunRow(f"{HOSTILE}{seed}", HOSTILE, {"model": HOSTILE}, seed) for seed in (0, 1)]
    found = {row.label: uri for row, uri in zip(rows, runs, strict=True)}
    compare_runs(rows, found, name="sweep", workspace=config.workspace)


def _made_hostile(text: str) -> str:
    """Return a text with one of the hostile ones before it, the same for equal texts."""
    return f"{_HOSTILE[sum(text.encode()) % len(_HOSTILE)]}{text}"


@dataclass(frozen=True)
class Answer:
    """What a server answered. goes_to: where it leads instead, empty for a page."""

    status: int
    kind: str
    text: str
    goes_to: str = ""


class Links(HTMLParser):
    """The addresses that a page leads to or loads, and the anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.anchors: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the addresses and anchors of a tag."""
        for key, value in attrs:
            if key in {"href", "src"} and value and not value.startswith(_NOT_FOLLOWED):
                self.found.add(value)
            elif key in {"id", "name"} and value:
                self.anchors.add(value)


@dataclass(frozen=True)
class Crawl:
    """The addresses that were seen, and those that are dead: where each stands, and why."""

    seen: frozenset[str]
    dead: tuple[str, ...]


def crawl(get: Callable[[str], Answer], starts: Iterable[str]) -> Crawl:
    """Follow every link from these addresses through all pages of workspaces, those in frames too.

    Dead is a link to another status than 200, to the login, of a scheme that no browser opens, or to an anchor that its
    page lacks. Pages that are not ours are looked at, and their links are not followed.
    """
    left = [(start, "the start") for start in starts]
    pages: dict[str, Links] = {}
    wanted: list[tuple[str, str, str]] = []
    dead: list[str] = []
    while left:
        link, source = left.pop()
        address, anchor = urldefrag(link)
        wanted.append((address, anchor, source))
        if address in pages:
            continue
        pages[address] = Links("")
        scheme = urlsplit(address).scheme
        if scheme and scheme not in _OPENED:
            dead.append(f"{link} on {source}: no browser opens it")
            continue
        answer = get(address)
        if answer.goes_to and "/auth/login" not in answer.goes_to:
            left.append((urljoin(address, answer.goes_to), source))
        elif answer.status != 200:
            dead.append(f"{link} on {source}: {answer.status}")
        elif answer.kind.startswith("text/html") and urlsplit(address).path.startswith(PREFIX):
            pages[address] = Links(answer.text)
            left += [(urljoin(address, each), address) for each in sorted(pages[address].found)]
    lost = [each for each in wanted if each[0].partition(PREFIX)[1] and each[1] not in pages[each[0]].anchors]
    dead += [f"{address}#{anchor} on {source}: the page has no such anchor" for address, anchor, source in lost]
    return Crawl(frozenset(pages), tuple(dead))
