"""Where nodes lie in the files of a graph under a budget: intervals of about as many edges, active rows first."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.train.globalbatch.graph import blocks_of, read_part
from gnnflow.train.streamed.numbering import MOST, by_id, depths, numbered
from tests.contracts.in_files import depth_of
from tests.train.globalbatch.stored import NUM_NODES, job_for, write

HUBS = np.rint(1e6 * np.arange(1, 10_001) ** -0.9).astype(np.int32)  # a tenth of all edges are of one node
EVEN = np.full(1000, 7, np.int32)


def edges_of(found, degree):
    rows = np.arange(len(degree)) if found.rows is None else found.rows
    by_row = np.empty(len(degree))
    by_row[rows] = degree
    return np.add.reduceat(by_row, found.firsts[:-1])


@pytest.mark.parametrize("hubs", [{"in_degree"}, {"out_degree"}, {"in_degree", "out_degree"}])
def test_hubs_are_dealt_to_intervals_of_as_many_nodes(hubs):
    degrees = {name: HUBS if name in hubs else np.full_like(HUBS, 7) for name in ("in_degree", "out_degree")}
    before, found = by_id([1250] * 8), numbered(8, **degrees)
    for name in hubs:
        edges = edges_of(before, degrees[name])
        assert edges.max() > 3 * edges.mean()
        edges = edges_of(found, degrees[name])
        assert edges.max() <= max(1.25 * edges.mean(), HUBS[0] + edges.min())
        assert edges.max() - edges.min() <= HUBS[0]
    assert found.sizes == before.sizes
    assert sorted(found.rows) == list(range(10_000))


def test_a_graph_of_equal_degrees_keeps_its_ids():
    found = numbered(7, in_degree=EVEN, out_degree=EVEN)
    assert found.rows is None
    assert found.active(0) == found.active(2) == found.sizes


@given(
    depth=st.lists(st.integers(-1, 3), min_size=1, max_size=40),
    intervals=st.integers(1, 5),
    cut=st.integers(0, 40),
    is_skewed=st.booleans(),
)
def test_what_is_active_lies_first_and_a_partition_in_runs(depth, intervals, cut, is_skewed):
    depth, number = np.array(depth, np.int8), len(depth)
    degree = np.arange(number, dtype=np.int32)[::-1] ** 3 if is_skewed else np.ones(number, np.int32)
    found = numbered(min(intervals, number), in_degree=degree, out_degree=degree, depth=depth, num_levels=4)
    by_row = np.empty(number)
    by_row[found.rows] = depth
    for level in range(4):
        for (first, last), active in zip(pairwise(found.firsts.tolist()), found.active(level), strict=True):
            assert (by_row[first : first + active] >= level).all()
            assert (by_row[first + active : last] < level).all()
    seen = []
    for first, last in pairwise([0, min(cut, number), number]):
        for run in found.runs(first, last - first):
            nodes = first + run.places
            assert (found.rows[nodes] == run.first + np.arange(len(nodes))).all()
            assert (depth[nodes] == run.depth).all()
            assert found.firsts[run.interval] <= run.first < found.firsts[run.interval + 1]
            seen.extend(nodes.tolist())
    assert sorted(seen) == list(range(number))


@pytest.mark.table(2)
@pytest.mark.parametrize("sampling", [None, {"kind": "uniform", "fanout": [3, 1]}])
@pytest.mark.parametrize("num_targets", [1, 5, 30])
def test_what_reaches_a_target_is_what_some_layer_reads_for_it(tmp_path, sampling, num_targets):
    write(tmp_path)
    job = job_for(tmp_path, sampling=sampling)
    neighbors, book = job.neighbors, job.neighbors.store.book
    targets = np.sort(np.random.default_rng(num_targets).permutation(NUM_NODES)[:num_targets])
    blocks = blocks_of(read_part(neighbors, range(book.num_partitions)), neighbors, num_layers=job.model.config.layers)
    expected = depth_of(blocks, targets)
    found = depths(book, neighbors.in_edges, targets, limits=neighbors.sampling.of_hops(job.model.config.layers))
    for level in range(job.model.config.layers + 1):
        wanted = expected >= level
        assert ((found >= level) == wanted).all() or (wanted.mean() > MOST and (found >= level).all())
    assert not (found == job.model.config.layers).all()


def test_nothing_is_pruned_where_that_saves_little(tmp_path):
    write(tmp_path)
    job = job_for(tmp_path)
    most = np.arange(int(NUM_NODES * MOST) + 1)
    assert depths(job.neighbors.store.book, job.neighbors.in_edges, most, limits=[None, None]) is None
