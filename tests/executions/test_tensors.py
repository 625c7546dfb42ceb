"""Arrays become tensors without a copy where that is safe."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from gnnflow.executions.tensors import batch_tensors, block_tensors, tensor
from gnnflow.graph.batch import Block
from gnnflow.graph.edges import InEdges
from tests.contracts.in_memory import GraphShape, mini_batch, whole_graph


def test_writable_arrays_are_shared_and_read_only_ones_are_copied():
    array = np.zeros(3, np.float32)
    shared = tensor(array)
    array[0] = 5
    assert shared[0] == 5
    array.flags.writeable = False
    copied = tensor(array)
    copied[1] = 7
    assert array[1] == 0


def test_edge_attributes_of_no_columns_count_as_none():
    edges = InEdges(np.array([0, 1]), np.array([0]), attributes=np.zeros((1, 0), np.float32))
    assert block_tensors(Block(edges, num_sources=1)).edge.attributes is None


def test_a_batch_keeps_its_row_order_and_its_labels():
    graph = whole_graph(GraphShape(4, ((3, 1), (2, 1)), seed=0))
    batch = mini_batch(graph, np.array([1, 0]), per_layer=[graph.adjacency])
    tensors = batch_tensors(batch)
    assert tensors.labels is None
    assert tensors.blocks[0].num_targets == 2
    assert tensors.nodes.in_degree.tolist() == [2.0, 0.0, 0.0, 0.0]
    assert torch.equal(tensors.features.dense, torch.from_numpy(graph.features.dense[[1, 0, 2, 3]]))


def test_layers_that_have_one_block_in_common_share_its_tensors():
    graph = whole_graph(GraphShape(4, ((3, 1), (2, 1)), seed=0))
    batch = mini_batch(graph, np.arange(4), per_layer=[graph.adjacency] * 2)
    block = batch.blocks[-1]
    same = batch_tensors(replace(batch, blocks=(block, block))).blocks
    assert same[0] is same[1]
