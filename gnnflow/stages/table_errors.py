"""The errors that a sample of the tables shows, with the lines to write where names of columns show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.datasets.edge_headers import find_ends, split_words
from gnnflow.ingest.preview import preview_schemas
from gnnflow.ingest.preview_rows import row_errors
from gnnflow.ingest.targets import DrawnSplit, EdgeTargets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import Config
    from gnnflow.graph.encodings import States
    from gnnflow.graph.errors import GnnflowError
    from gnnflow.ingest.preview import Preview

_ID = frozenset(("id", "uid", "key"))


def preview_of(config: Config, *, states: States) -> Preview:
    """Return a sample of the tables of a resolved run's config. states: of columns that a published model knows."""
    targets = EdgeTargets.of(config.task, config.graph, seed=config.seed)
    drawn = DrawnSplit.of(config.task, seed=config.seed)
    return preview_schemas(config.graph, targets=targets, drawn=drawn, states=states)


def errors_of_tables(preview: Preview, config: Config) -> list[GnnflowError]:
    """Return the errors of the tables' files, columns and sampled rows."""
    return [with_hint(error, preview) for error in (*preview.errors, *row_errors(preview, config.graph))]


def with_hint(error: GnnflowError, preview: Preview) -> GnnflowError:
    """Return an error about a missing column of ids or ends with the line to write, where names show one."""
    for table in preview.tables:
        if any(error.where == chunk.uri for chunk in table.source.chunks):
            line = _line(error.problem, table.parts[0].column_names)
            if line:
                return type(error)(error.problem, where=error.where, fix=f"{error.fix} By its name: `{line}`.")
    return error


def _line(problem: str, names: Sequence[str]) -> str:
    """Return the line of the config; "" where names do not show it."""
    pair = find_ends(names)
    if pair is not None:
        for end, name in zip(("src", "dst"), pair, strict=True):
            if f"(graph.{end})" in problem:
                return f"graph: {{{end}: {name}}}"
    ids = [name for name in names if {*split_words(name)[-1:]} & _ID]
    if "(graph.id)" in problem and len(ids) == 1:
        return f"graph: {{id: {ids[0]}}}"
    return ""
