"""A stage: it counts the nodes of the graph store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnflow.stages.base import Made
from gnnflow.storage.filesystem import join
from gnnflow.storage.writing import write_json

if TYPE_CHECKING:
    from gnnflow.stages.base import StageRun


@dataclass(frozen=True)
class ToyFacts:
    """The number of nodes."""

    num_nodes: int


def work(run: StageRun) -> Made:
    """Write the number of nodes."""
    num_nodes = run.store.facts.num_nodes
    file = write_json(join(run.artifact, "toy.json"), {"nodes": num_nodes})
    return Made((file,), rows_in=num_nodes, rows_out=num_nodes, facts=ToyFacts(num_nodes))
