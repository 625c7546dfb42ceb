"""What a config must satisfy beyond one section: functions that raise where two sections do not go together.

Each raises `problem` with the key that it is about. They run in the order of `CHECKS`; one that raises is the last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gnnflow.config.checks import neighbors, partitions, tables, tasks, training

if TYPE_CHECKING:
    from gnnflow.config.sections import Sections

CHECKS: tuple[Callable[[Sections], None], ...] = (
    tables.processes_share_what_lies_in_memory,
    tables.what_is_scaled_as_a_model_is_scaled,
    neighbors.hops_reach_layers,
    tasks.links_have_their_own_keys,
    tasks.labels_of_edges_have_their_own_keys,
    tasks.neighborhoods_are_those_of_edges,
    neighbors.relations_are_joined_where_there_are_several,
    training.ranks_have_workers,
    training.shards_are_cut_where_they_are_described,
    training.a_store_can_be_trained_on,
    training.the_whole_graph_can_be_one_batch,
    neighbors.fanout_fits_hops,
    neighbors.metapaths_follow_relations,
    partitions.partitions_can_be_balanced,
    partitions.placed_edges_are_the_graphs_own,
    partitions.clusters_are_a_multiple_of_partitions,
    tasks.pairs_have_direct_neighbors,
    neighbors.layers_find_what_they_read_of_edges,
    tasks.target_is_of_the_task,
    tasks.inputs_are_no_labels,
    neighbors.targets_have_neighbors,
)
