"""GraphFlat over a selection of instances against a plain definition: what targets reach through all leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gnnflow.graph.sampling import EVERY_EDGE
from gnnflow.graphfeature.blocks import build_minibatch
from gnnflow.graphfeature.shards import read_shard
from gnnflow.graphflat.job import FlatJob
from gnnflow.graphflat.run import run_rounds
from gnnflow.graphflat.shard_plan import bounded_shard_size, signatures
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.neighbors.selected import Neighbors
from tests.graphfeature.random_graphs import assert_same
from tests.graphfeature.random_instances import sources_of
from tests.instance_stores import KINDS, Instance, Selection, instance_store

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.graph.edges import InEdges
    from gnnflow.graph.facts import Layout
    from gnnflow.graphfeature.shards import Shard
    from tests.instance_stores import Kind


def cut(selection: Selection, folder: Path, *, num_hops: int, layout: Layout = "shared") -> list[Shard]:
    neighbors = Neighbors(selection.store)
    job = FlatJob(str(folder / layout), neighbors, num_hops, layout, None)
    result = run_rounds(job, RoundRunner(str(folder / f"work-{layout}"), Synchronous()), shard_size=6)
    return [read_shard(job.artifact, entry) for entry in result.facts.shards]


def reached_from(targets: list[int], selection: Selection, num_hops: int) -> tuple[set[int], set[int]]:
    """The definition: the nodes whose instances the targets need, and all that they reach."""
    aggregated: set[int] = set()
    reached = set(targets)
    for _ in range(num_hops):
        aggregated |= reached
        for (_, root), instances in selection.instances.items():
            if root in aggregated:
                reached |= {leaf for each in instances for leaf in each.leaves}
    return aggregated, reached


def held_instances(edges: InEdges, row: int, node_ids: np.ndarray, attribute_width: int) -> list[Instance]:
    """The instances of a row of one relation, its attributes cut to the relation's own."""
    found = []
    for edge in range(*edges.offsets[row : row + 2]):
        weight = 1.0 if edges.weight is None else float(edges.weight[edge])
        wide = () if edges.attributes is None else tuple(edges.attributes[edge].tolist())
        assert not any(wide[attribute_width:])
        leaves = tuple(node_ids[sources_of(edges, edge)].tolist())
        found.append(Instance(leaves, weight, wide[:attribute_width]))
    return found


@pytest.mark.table(3)
@pytest.mark.parametrize("num_hops", [1, 2])
@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_holds_what_its_targets_reach_through_leaves(
    tmp_path: Path, kind: Kind, partitions: int, num_hops: int
) -> None:
    selection = instance_store(tmp_path, kind, partitions, partitions=partitions)
    facts = selection.store.facts
    widths = [each.attribute_width for each in facts.relations] or [facts.attribute_width]
    shards = cut(selection, tmp_path, num_hops=num_hops)
    assert len(shards) > 2
    for shard in shards:
        held = shard.neighborhood
        aggregated, reached = reached_from(shard.targets.tolist(), selection, num_hops)
        assert held.node_ids.tolist() == sorted(reached)
        for relation, width in enumerate(widths):
            edges = held.edges.relation(relation)
            for row, node in enumerate(held.node_ids.tolist()):
                wanted = selection.instances.get((relation, node), []) if node in aggregated else []
                assert held_instances(edges, row, held.node_ids, width) == wanted
        batch = build_minibatch(held, shard.rows, sampling=EVERY_EDGE, num_layers=num_hops)
        assert batch.blocks[0].num_sources == len(reached)
        assert {int(node) for node in held.node_ids[shard.rows]} == set(shard.targets.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_shared_and_inline_shards_with_leaves_are_read_alike(tmp_path: Path, kind: Kind) -> None:
    selection = instance_store(tmp_path, kind, 5, partitions=2)
    shared, inline = (cut(selection, tmp_path, num_hops=2, layout=layout) for layout in ("shared", "inline"))
    assert len(shared) == len(inline) > 2
    for ours, theirs in zip(shared, inline, strict=True):
        assert_same(ours.neighborhood.node_ids[ours.rows], theirs.neighborhood.node_ids[theirs.rows])
        assert_same(ours.neighborhood.edges, theirs.neighborhood.edges)
        assert_same(ours.neighborhood.degrees, theirs.neighborhood.degrees)


def test_a_signature_is_the_smallest_hash_of_a_root_and_all_its_leaves(tmp_path: Path) -> None:
    selection = instance_store(tmp_path, "typed", 3, partitions=1)
    edges = Neighbors(selection.store).in_edges(0)
    rows = np.arange(edges.num_targets)
    picked = edges.prefix(rows, limit=None)
    found = signatures(rows, edges.source_offsets(picked), edges.sources_of(picked.positions))
    for row in rows.tolist():
        own = [each.leaves for r in range(4) for each in selection.instances.get((r, row), [])]
        among = np.array([row, *(leaf for leaves in own for leaf in leaves)])
        assert found[row] == signatures(among, np.zeros(len(among) + 1, np.int64), np.zeros(0, np.int64)).min()


def test_shards_are_bounded_by_what_leaves_reach(tmp_path: Path) -> None:
    facts = instance_store(tmp_path, "untyped", 1, partitions=1).store.facts
    large = replace(facts, num_nodes=10**9, num_edges=10**10)
    sizes = [
        bounded_shard_size(replace(large, leaves=leaves), (None, None), shard_size=10**5) for leaves in (1, 2, 0, 7)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1] * 5
