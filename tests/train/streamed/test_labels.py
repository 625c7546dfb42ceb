"""Labels under a budget: counted by their width before any is read, and read into their place."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from gnnflow.config import model_from_dict
from gnnflow.graph.errors import TrainingError
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.train.globalbatch.graph import labelled, targets_by_split
from gnnflow.train.streamed import open_streamed, source
from gnnflow.train.streamed.budget import plan
from gnnflow.train.streamed.size import GraphSize, graph_size, scaled_size
from tests.train.globalbatch.stored import job_for, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    write(folder)
    return folder


def test_a_budget_that_is_too_small_is_refused_before_labels_are_read(folder):
    job = job_for(folder, memory="33MiB")
    with mock.patch.object(source, "labelled") as read, pytest.raises(TrainingError, match="33MiB is not enough"):
        open_streamed(job)
    read.assert_not_called()


def test_labels_of_all_splits_are_counted_as_they_are_read(folder):
    job = job_for(folder, memory="1GiB")
    store, partitions = job.neighbors.store, range(4)
    columns = [np.concatenate(each) for each in zip(*(labelled(store, each) for each in partitions), strict=True)]
    counts = targets_by_split(store, partitions)
    assert counts.tolist() == np.bincount(columns[1], minlength=3).tolist()
    size = graph_size(job.neighbors, counts, partitions)
    assert (size.num_targets, size.labelled, size.label_bytes) == (counts.max(), counts.sum(), 8)
    assert size.tested == counts[2]
    assert scaled_size(size, 3, partitions=1).labelled == 3 * size.labelled
    with open_streamed(job) as found:
        order = np.argsort(found.ids)
        for held, column in zip((found.ids, found.row_splits, found.labels), columns, strict=True):
            np.testing.assert_array_equal(held[order], column)


def test_a_label_of_many_numbers_asks_for_as_many_bytes():
    model = build_model(model_from_dict({"kind": "sage", "hidden": 16}), ModelInputs(4, 100))
    size = GraphSize((200_000,), (100_000,), 100_000, (4,), 0, (12_500, 6_250), labelled=200_000)
    wide = replace(size, label_bytes=400)
    needed = []
    for each in (replace(size, labelled=0), size, wide):
        with pytest.raises(TrainingError, match=r"Set it to \d+MiB or more") as caught:
            plan(model, each, budget=33 << 20)
        needed.append(int(str(caught.value).split("Set it to ")[1].split("MiB")[0]))
    assert needed[1] - needed[0] == pytest.approx(200_000 * 32 / 2**20, abs=1)
    assert needed[2] - needed[1] == pytest.approx((200_000 + 100_000) * 392 / 2**20, abs=1)
    with pytest.raises(TrainingError, match=r"labels of 20,000,000 nodes"):
        plan(model, replace(wide, labelled=20_000_000), budget=33 << 20)


def test_metrics_of_a_test_split_of_many_numbers_count_where_they_are_more_than_the_loss():
    model = build_model(model_from_dict({"kind": "sage", "hidden": 16}), ModelInputs(4, 100))
    size = GraphSize((200_000,), (100_000,), 100_000, (4,), 0, (12_500, 6_250), labelled=200_000, label_bytes=400)
    plans = [plan(model, replace(size, tested=tested), budget=1 << 30).num_bytes for tested in (0, 10_000, 100_000)]
    assert plans[0] == plans[1]
    assert plans[2] > 100_000 * 100 * 4 * 14
    single = replace(size, label_bytes=8, tested=100_000)
    assert (
        plan(model, single, budget=1 << 30).num_bytes
        == plan(model, replace(single, tested=0), budget=1 << 30).num_bytes
    )
    assert scaled_size(single, 2, partitions=1).tested == 200_000
