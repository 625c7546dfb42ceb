"""The checks between sections: functions that raise where two sections contradict each other.

Each raises `problem` with its key. They run in the order of `CHECKS`; the first one that raises ends them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gnnflow.config.checks import graph, neighbors, tasks, training

if TYPE_CHECKING:
    from gnnflow.config.sections import Sections

CHECKS: tuple[Callable[[Sections], None], ...] = (
    graph.check_memory_urls,
    neighbors.check_hops,
    tasks.check_link_keys,
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
