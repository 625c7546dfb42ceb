"""What is read of the tables: which keys of it go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config.base import problem
from gnnflow.config.table_names import table_key, tables_by_name

if TYPE_CHECKING:
    from gnnflow.config.sections import Sections


def processes_share_what_lies_in_memory(config: Sections) -> None:
    """Raise where several processes are to read what lies in the memory of one."""
    if config.cluster.kind == "synchronous":
        return
    tables = {table_key(name): uri for name, uri in tables_by_name(config.graph).items()}
    for key, uri in {"workspace": config.workspace, **tables}.items():
        if uri.startswith("memory:"):
            raise problem(
                f"{uri!r} lies in the memory of one process, and the workers of a {config.cluster.kind} cluster are "
                "others",
                key=key,
                fix="Set cluster to {kind: synchronous}, or give a folder or a bucket.",
            )


def what_is_scaled_as_a_model_is_scaled(config: Sections) -> None:
    """Raise where a model is to say how columns are scaled, and none are."""
    graph = config.graph
    if graph.scaled_as is not None and "standard" not in {graph.normalize, graph.edge_normalize}:
        raise problem(
            f"{graph.scaled_as!r}, and no columns are scaled",
            key="graph.scaled_as",
            fix="Set graph.normalize or graph.edge_normalize to standard, or leave graph.scaled_as out.",
        )
