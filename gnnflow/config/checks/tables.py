"""What is read of the tables: which keys of it go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config.base import problem

if TYPE_CHECKING:
    from gnnflow.config.root import Config


def what_is_scaled_as_a_model_is_scaled(config: Config) -> None:
    """Raise where a model is to say how columns are scaled, and none are."""
    graph = config.graph
    if graph.scaled_as is not None and "standard" not in {graph.normalize, graph.edge_normalize}:
        raise problem(
            f"{graph.scaled_as!r}, and no columns are scaled",
            key="graph.scaled_as",
            fix="Set graph.normalize or graph.edge_normalize to standard, or leave graph.scaled_as out.",
        )
