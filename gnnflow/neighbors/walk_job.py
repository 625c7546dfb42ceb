"""What every task of walks knows, in the rounds of `walks.py` and in the views of `walk_views.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.errors import ConfigError
from gnnflow.graph.hashing import seed_word
from gnnflow.neighbors.selection import Selection

if TYPE_CHECKING:
    from gnnflow.config.neighbors_section import WalkNeighbors

SMALL_IDS = 1 << 31
"""Number of nodes, or of edges, below which their ids are 32-bit integers."""


@dataclass(frozen=True)
class WalkJob(Selection):
    """What every task of walks knows."""

    walks: int
    length: int
    top_k: int
    by_weight: bool = False

    @property
    def id_type(self) -> type[np.integer]:
        """The type of dense ids in rows that travel."""
        return np.int32 if self.store.facts.num_nodes < SMALL_IDS else np.int64

    def word(self, view: int = 0) -> np.uint64:
        """Return what the draws of a view are hashed from, beside the root; view 0 is what the stage selects."""
        return seed_word("walks", self.seed, view) if view else seed_word("walks", self.seed)


def job_of(store_job: Selection, section: WalkNeighbors) -> WalkJob:
    """Return what every task of walks knows. Raises ConfigError where there are no weights to walk by."""
    base = store_job.of(section.relations(store_job.store.schema))
    by_weight = section.by == "weight"
    if by_weight and not base.store.facts.has_weight:
        raise ConfigError(
            "walks by weight need edge weights, and the graph has none",
            where="neighbors.by",
            fix="Add a weight column to the edge table, or set it to uniform.",
        )
    numbers = section.walks, section.length, section.top_k
    return WalkJob(base.artifact, base.store, base.relations, base.seed, *numbers, by_weight=by_weight)


def number_of(job: WalkJob, node_type: int) -> int:
    """Return the number of the relation of walks from the nodes of a type."""
    name = job.store.schema.types[node_type]
    return next(number for number, each in enumerate(job.schema.relations) if each.target == name)
