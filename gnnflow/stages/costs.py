"""Costs of aggregating nodes, learned from a completed run: the seconds of GraphInfer's tasks, one per partition."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow import registry
from gnnflow.config import config_from_dict
from gnnflow.graph.errors import StorageError
from gnnflow.partition.costs import CostModel, learn, terms_of
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import read_manifest
from gnnflow.storage.run_folder import read_run

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.graph.arrays import IntArray
    from gnnflow.partition.costs import CostArray

FEWEST_TASKS = 8
_SLICE = re.compile(r"slice_\d+")


def learn_costs(run: str, *, workspace: str) -> CostModel:
    """Return the costs of a run's nodes, in seconds over all slices of its model.

    run: as `registry.find_run` reads it. Raises StorageError if there is no such run, it has fewer than eight
    partitions, or its manifest lacks the seconds of tasks.
    """
    uri = registry.find_run(run, workspace=workspace)
    record = read_run(uri)
    artifacts, config = record["artifacts"], config_from_dict(record["config"])
    store = GraphStore.of_run(artifacts[record["store"]], artifacts["select"])
    if store.num_partitions < FEWEST_TASKS:
        raise StorageError(
            f"has {store.num_partitions} partitions; learning costs takes at least {FEWEST_TASKS}",
            where=uri,
            fix=f"Learn from a run with graph.partitions: {2 * FEWEST_TASKS} or more.",
        )
    terms = np.stack([terms_of(*_counts(store, each, config)).sum(0) for each in range(store.num_partitions)])
    seconds = _seconds(artifacts["infer"], store.num_partitions)
    return learn(terms, seconds, relations=[str(relation) for relation in store.schema.relations])


def _counts(store: GraphStore, partition: int, config: Config) -> tuple[IntArray, IntArray]:
    """Return the numbers of instances and of leaves that each node aggregates in each relation [N, R]."""
    counts = store.degrees(partition).in_degree.reshape(-1, store.schema.num_relations)
    if config.relation_fanouts is not None:
        counts = np.minimum(counts, np.array(config.relation_fanouts).max(1))
    return counts, counts * np.array(store.facts.leaves_of_relations)


def _seconds(artifact: str, num_partitions: int) -> CostArray:
    """Return the seconds of each partition over the tasks of all slices."""
    rounds: list[dict[str, Any]] = read_manifest(artifact).timings.get("rounds", [])
    taken = [each.get("task_seconds", []) for each in rounds if _SLICE.fullmatch(each["name"])]
    if not taken or any(len(each) != num_partitions for each in taken):
        raise StorageError(
            "does not hold the seconds of each task",
            where=artifact,
            fix="An earlier version wrote it: delete the folder and run again.",
        )
    seconds: CostArray = np.array(taken, np.float64).sum(0)
    return seconds
