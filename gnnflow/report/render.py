"""Lays out pictures, tables and words on one page, which loads nothing; equal inputs give equal bytes."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gnnflow.graph.facts import share_text
from gnnflow.report import formats
from gnnflow.report.cases import find_cases
from gnnflow.report.headline import engineering_tiles, metric_table, subject, tiles, verdict
from gnnflow.report.hints import find_hints
from gnnflow.report.inputs import ReportInputs
from gnnflow.report.pictures import (
    Picture,
    blow_up_bars,
    class_table_of,
    column_bars,
    degree_bars,
    embedding_map,
    in_degree_histogram,
    learning_curves,
    method_bars,
    pipeline_bars,
    prediction_pictures,
    stage_timeline,
    value_bars,
)

if TYPE_CHECKING:
    from jinja2 import Environment

_DIGEST_LENGTH = 12
_LONGEST_CONFIG = 100_000  # characters
_CONFIG_KEY = re.compile(
    r"\b(?:graph|flat|model|train|infer|cluster)\.[a-z_]+(?:: (?:true|shared|jumping|balanced|standard))?"
)
_SPLIT_ROLES = {"train": "accent", "valid": "class2", "test": "warm"}


@dataclass(frozen=True)
class Section:
    """One part of the page: an anchor, a heading, and its pictures."""

    anchor: str
    heading: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class SplitPart:
    """One split's slice of all nodes."""

    name: str
    count: str
    share: float
    percent: str
    role: str


def render_report(inputs: ReportInputs) -> str:
    """Return the report as one HTML page of a few hundred kilobytes.

    It takes some three seconds with 1,000 embeddings, under two without. Names, ids and labels may hold
    anything: all text is escaped, and the page's own policy lets it load nothing and run only its own script.
    """
    config = inputs.config_yaml.strip("\n")
    if len(inputs.config_yaml) > _LONGEST_CONFIG:
        config = f"{inputs.config_yaml[:_LONGEST_CONFIG]}\n# ... cut here; run.json holds all of it"
    hints = find_hints(inputs)
    return render_page(
        "report.html.j2",
        inputs=inputs,
        verdict=verdict(inputs),
        subject=subject(inputs),
        cases=find_cases(inputs),
        classes=class_table_of(inputs),
        engineering=engineering_tiles(inputs),
        tiles=tiles(inputs),
        warnings=[hint for hint in hints if hint.kind != "idea"],
        ideas=[hint for hint in hints if hint.kind == "idea"],
        table=metric_table(inputs),
        sections=_sections(inputs),
        splits=_split_parts(inputs),
        config=config,
        digest_length=_DIGEST_LENGTH,
    )


def render_page(template: str, **values: Any) -> str:
    """Return a page with the report's styles and its script, which is all that the page's policy lets run."""
    script = template_source("copy.js")
    given = {"style": template_source("report.css"), "script": script, "script_hash": policy_hash(script)}
    page = environment().get_template(template).render(**given, **values)
    return f"{page.rstrip()}\n"


def _sections(inputs: ReportInputs) -> tuple[Section, ...]:
    where = (column_bars(inputs), degree_bars(inputs), *value_bars(inputs))
    return (
        Section("scores", "How good, and compared with what", (method_bars(inputs),)),
        Section("predictions", "What is right and what is wrong", prediction_pictures(inputs)),
        Section("groups", "Where it is good, and from which columns", where),
        Section("learning", "Training", (*learning_curves(inputs), embedding_map(inputs))),
        Section("graph", "The graph", (in_degree_histogram(inputs),)),
        Section("engineering", "Engineering", (blow_up_bars(inputs), stage_timeline(inputs), pipeline_bars(inputs))),
    )


def _split_parts(inputs: ReportInputs) -> tuple[SplitPart, ...]:
    counts: Mapping[str, int] = inputs.graph.split_counts
    total = sum(counts.values())
    if not total:
        return ()
    return tuple(
        SplitPart(
            name,
            formats.count_text(count),
            round(count / total, 5),
            formats.percent_text(count / total),
            _SPLIT_ROLES.get(name, "quiet"),
        )
        for name, count in counts.items()
        if count
    )


def policy_hash(script: str) -> str:
    """Return the script's hash as a Content-Security-Policy wants it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def mark_keys(text: str) -> str:
    """Return our own text, escaped, with its config keys (`train.lr`, `flat.layout: shared`) as code."""
    from markupsafe import Markup, escape  # comes with jinja2

    return Markup(_CONFIG_KEY.sub(r"<code>\g<0></code>", str(escape(text))))  # noqa: S704 escaped just before


def mark_interval(cell: str) -> str:
    """Return a score, escaped, with its interval, if any, on a line below it."""
    from markupsafe import Markup, escape

    score, _, interval = cell.partition(" (")
    below = f' <span class="interval">({escape(interval)}</span>' if interval else ""
    return Markup(f"{escape(score)}{below}")  # noqa: S704 escaped here


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the templates with this package's filters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("gnnflow.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "sentence": formats.sentence,
        "count": formats.count_text,
        "duration": formats.seconds_text,
        "mark_keys": mark_keys,
        "share": share_text,
        "interval": mark_interval,
    }
    made.filters.update(filters)
    return made


def template_source(name: str) -> str:
    """Return the unchanged text of a template: our own styles and script, which need no escaping."""
    templates = environment()
    assert templates.loader is not None
    return templates.loader.get_source(templates, name)[0].strip()


def image_file(svg: str) -> str:
    """Return an inline picture as a separate SVG file, with the page's colours, light and dark."""
    colours = template_source("report.css").partition("* {")[0]
    style = f"<style>{colours}svg {{ background: var(--paper); font-family: var(--sans); }}</style>"
    return svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1).replace(">", f">{style}", 1)
