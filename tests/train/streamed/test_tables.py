"""Under a budget a table of sparse features has gradients of the rows that were read, and no other numbers."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from gnnflow.executions.streamed import EdgesBack
from gnnflow.layers.saved import decode_weights
from gnnflow.progress import Silent
from gnnflow.train.streamed import source
from gnnflow.train.trainer import train
from tests.small_graphs import graph_config, write_graph
from tests.train.on_stores import job_of
from tests.train.streamed.cutting import cut_to

WIDE = 500


def sparse_config(folder: Path, **keys: object):
    """Return a config of a graph whose nodes have three of many columns each."""
    write_graph(folder)
    nodes = pq.read_table(folder / "nodes.parquet")
    index = np.random.default_rng(0).integers(0, WIDE, (nodes.num_rows, 3)).astype(np.int32)
    nodes = nodes.drop_columns(["x"]).append_column("x_index", pa.array(list(index)))
    pq.write_table(nodes, folder / "nodes.parquet")
    keys = {"strategy": "global-batch", "epochs": 3, "optimizer": "sgd", "lr": 0.5, **keys}
    model = {"kind": "sage", "hidden": 4, "dropout": 0.0}
    return graph_config(folder, graph={"feature_dim": WIDE}, model=model, train=keys)


def test_a_table_has_gradients_of_the_rows_that_were_read(tmp_path):
    whole = train(job_of(sparse_config(tmp_path)), progress=Silent())
    shapes, counted = [], EdgesBack._count

    def count(back, place, gradient):
        if back.learned[place].shape[0] == WIDE:
            shapes.append(tuple(gradient._values().shape) if gradient.is_sparse else tuple(gradient.shape))
        counted(back, place, gradient)

    with mock.patch.object(source, "plan", cut_to(0)), mock.patch.object(EdgesBack, "_count", count):
        streamed = train(job_of(sparse_config(tmp_path, memory="1GiB")), progress=Silent())
    assert len(shapes) > 3
    assert max(rows for rows, _ in shapes) <= 3 * 20  # a run has at most 20 nodes
    for name, each in decode_weights(whole.weights).items():
        torch.testing.assert_close(decode_weights(streamed.weights)[name], each, rtol=1e-4, atol=1e-6)
