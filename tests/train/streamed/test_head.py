"""A head that reads the rows after the last layer alone takes them as they are computed, and not from a file."""

from __future__ import annotations

from unittest import mock

import pytest

from gnnflow.executions.streamed import LayerRelations
from tests.train.globalbatch.stored import job_for, write
from tests.train.streamed.cutting import trained_counted

LAST_ALONE = {
    "direct": {"kind": "gcn", "hidden": 8, "head": "direct"},
    "linear, which drops its input": {"kind": "sage", "hidden": 8, "head": "linear", "dropout": 0.5},
    "linear behind attention": {"kind": "gat", "hidden": 8, "heads": 2, "head": "linear"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("head")
    write(folder)
    return folder


def trained(folder, model):
    return trained_counted(job_for(folder, memory="1GiB", epochs=3, model=model))


@pytest.mark.table(3)
@pytest.mark.parametrize("model", LAST_ALONE.values(), ids=LAST_ALONE)
def test_rows_in_no_file_give_the_same_bits_with_less_written(folder, model):
    *found, written = trained(folder, model)
    with mock.patch.object(LayerRelations, "predicts", False):
        *filed, more = trained(folder, model)
    assert found == filed
    assert written < more


def test_rows_of_every_layer_that_a_head_reads_lie_in_files(folder):
    model = {"kind": "gcn", "hidden": 8, "head": "jumping"}
    assert trained(folder, model)[2] > trained(folder, model | {"head": "linear"})[2]
