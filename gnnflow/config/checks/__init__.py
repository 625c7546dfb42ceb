"""The checks between sections: functions that raise where two sections contradict each other.

Each raises `problem` with its key. `problems_of` runs them all in the order of `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from gnnflow.config.base import contexts_of
from gnnflow.config.checks import graph, neighbors, tasks, training

if TYPE_CHECKING:
    from gnnflow.config.sections import Sections

CHECKS: tuple[Callable[[Sections], None], ...] = (
    graph.check_memory_urls,
    neighbors.check_hops,
    tasks.check_link_keys,
    tasks.check_baselines,
    tasks.check_edge_keys,
    tasks.check_pair_targets,
    neighbors.check_across,
    training.check_workers,
    training.check_shard_keys,
    training.check_store_training,
    training.check_global_batch,
    neighbors.check_fanouts,
    neighbors.check_metapaths,
    graph.check_balance,
    graph.check_placement,
    graph.check_clusters,
    tasks.check_pair_neighbors,
    neighbors.check_edge_columns,
    tasks.check_target,
    tasks.check_inputs,
    neighbors.check_target_neighbors,
)


def problems_of(config: Sections) -> list[PydanticCustomError]:
    """Return the problems that all checks find, one for each key."""
    found: dict[str, PydanticCustomError] = {}
    for check in CHECKS:
        try:
            check(config)
        except PydanticCustomError as error:
            for each in contexts_of([error]):
                found.setdefault(each["key"], PydanticCustomError("gnnflow", "{text}", {**each, "others": []}))
        except (LookupError, ValueError):
            if not found:  # a check may rely on what an earlier one has refused
                raise
    return list(found.values())
