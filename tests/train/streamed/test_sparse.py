"""Sparse features under a budget: how they lie in files, and what they count for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.config import config_from_dict, model_from_dict
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Features
from gnnflow.graph.errors import TrainingError
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.train.streamed.budget import plan
from gnnflow.train.streamed.files import Scratch
from gnnflow.train.streamed.graph import FeatureFile
from gnnflow.train.streamed.numbering import Run
from gnnflow.train.streamed.size import GraphSize, graph_size, scaled_size
from tests.train.globalbatch.stored import config_of, job_of

WIDTH = 50
LENGTHS = np.array([3, 0, 2, 5, 1, 4, 2])


def rows_of(lengths, *, valued):
    rng = np.random.default_rng(0)
    index = rng.integers(0, WIDTH, lengths.sum())
    value = rng.random(len(index)).astype(np.float32) if valued else None
    return Features(WIDTH, offsets=offsets_of(lengths), index=index, value=value)


@pytest.mark.parametrize("valued", [True, False])
@pytest.mark.parametrize("num_rows", [7, 5, 4, 1, 0])
def test_the_first_rows_of_an_interval_are_read_of_all_runs_that_it_was_written_in(tmp_path, num_rows, valued):
    features = rows_of(LENGTHS, valued=valued)
    scratch = Scratch(str(tmp_path))
    try:
        file = FeatureFile(scratch, [7], WIDTH, sparse=True)
        for first, last in ((4, 7), (0, 4)):
            places = np.arange(first, last)
            file.add(Run(0, first, first, places, 0), features, places)
        read = file.read(0, num_rows)
    finally:
        scratch.close()
    expected = features.take(np.arange(num_rows))
    np.testing.assert_array_equal(read.offsets, expected.offsets)
    np.testing.assert_array_equal(read.index, expected.index)
    assert (read.value is None) == (not valued)
    if valued:
        np.testing.assert_array_equal(read.value, expected.value)


def test_entries_are_counted_by_partition_as_they_are_stored(tmp_path):
    lengths = np.arange(60) % 5 + 1
    index = np.concatenate([np.arange(each) for each in lengths]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets_of(lengths), pa.int32()), pa.array(index))
    split = np.array(["train", "valid", "test"])[np.arange(60) % 3]
    nodes = {"id": np.arange(60), "x_index": lists, "label": np.arange(60) % 2, "split": split}
    pq.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"src": np.arange(60), "dst": (np.arange(60) + 1) % 60}), tmp_path / "edges.parquet")
    document = config_of(tmp_path, memory="1GiB").model_dump(mode="json", exclude_unset=True)
    document["graph"]["feature_dim"] = 5
    job = job_of(config_from_dict(document))
    store = job.neighbors.store
    size = graph_size(job.neighbors, [20, 20, 20], range(store.num_partitions))
    held = [store.nodes(each, ["x_index"])["x_index"].combine_chunks() for each in range(store.num_partitions)]
    assert size.entries == (lengths.sum(),)
    assert size.largest_entries == max(len(each.flatten()) for each in held)
    assert size.mean_entries == (3,)
    larger = scaled_size(size, 10, partitions=2.0)
    assert (larger.entries, larger.largest_entries) == ((1800,), 5 * size.largest_entries)


def test_the_more_entries_a_node_has_the_more_a_budget_is_asked_for():
    model = build_model(model_from_dict({"kind": "sage", "hidden": 16}), ModelInputs(1000, 8, sparse=True))
    none = GraphSize((200_000,), (1_000_000,), 100_000, (0,), 0, (4_000, 20_000))
    sizes = [replace(none, entries=(200_000 * each,), largest_entries=4_000 * each) for each in (0, 50, 150)]
    plans = [plan(model, size, budget=120 << 20) for size in sizes]
    assert plans[0].intervals < plans[1].intervals < plans[2].intervals
    assert all(each.num_bytes <= 120 << 20 for each in plans)
    assert plans[2].disk_bytes - plans[0].disk_bytes > 200_000 * 150 * 8
    with pytest.raises(TrainingError, match=r"in-edges, 2,000,000 entries of sparse features: a larger graph\.parti"):
        plan(model, replace(none, entries=(100_000_000,), largest_entries=2_000_000), budget=120 << 20)
