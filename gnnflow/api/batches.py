"""Batches of neighbourhoods for a caller's own loop: tensors of a gnnflow model, or a graph of PyG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gnnflow.executions.minibatch import forward
from gnnflow.executions.tensors import batch_tensors, feature_tensors, tensor
from gnnflow.graph.batch import Features, TypedFeatures
from gnnflow.graph.errors import LayerError
from gnnflow.graph.libraries import load_library
from gnnflow.graphfeature.blocks import build_minibatch

if TYPE_CHECKING:
    from gnnflow.executions.tensors import BatchTensors
    from gnnflow.graph.arrays import IntArray
    from gnnflow.graph.edges import InEdges
    from gnnflow.graph.schema import GraphSchema
    from gnnflow.layers import Model
    from gnnflow.stages.neighborhoods import Cut


@dataclass(frozen=True)
class Batch:
    """The neighbourhoods of B nodes. ids: of these nodes, in order."""

    cut: Cut

    @property
    def ids(self) -> Sequence[Any]:
        """The ids of the batch's nodes, as they were asked."""
        return self.cut.ids

    @property
    def labels(self) -> torch.Tensor | None:
        """The labels of the batch's nodes [B, ...]; None where the graph has none."""
        return tensor(self.cut.labels)

    @cached_property
    def tensors(self) -> BatchTensors:
        """The batch as a gnnflow model takes it: an adjacency for each layer, and the rows of the first."""
        graph, whole = self.cut.graph, self.cut.neighborhood
        batch = build_minibatch(
            whole,
            whole.roots,
            sampling=graph.neighbors.sampling,
            num_layers=graph.config.model.layers,
            labels=self.cut.labels,
        )
        return batch_tensors(batch, self._schema)

    def logits(self, model: Model) -> torch.Tensor:
        """Return what a model gives for the batch's nodes [B, C], in their order."""
        return forward(model, self.tensors)

    def to_pyg(self) -> Any:
        """Return the batch as `torch_geometric.data.Data`, or `HeteroData` for a graph of several types or relations.

        The batch's nodes are the first rows (of their type), as in PyG's NeighborLoader: `batch_size` counts them and
        `y` has their labels. `x` has the features, `edge_index` an edge from source to target, `edge_weight` and
        `edge_attr` its columns where the graph has them. Raises ConfigError where PyG is not installed, LayerError
        where edges have leaves.
        """
        pyg = load_library("torch_geometric.data", extra="pyg")
        whole, schema = self.cut.neighborhood, self._schema
        if whole.edges.leaves is not None:
            raise LayerError(
                "in-edges here are instances of several edges, which PyG's graphs do not have",
                where="neighbors.kind",
                fix="Use the batch's `tensors`, or a run with neighbors.kind: direct.",
            )
        # rows in the batch's order: its nodes first, then the others [N], and the new row of each
        order = np.concatenate([whole.roots, np.setdiff1d(np.arange(whole.num_nodes), whole.roots)])
        types = whole.degrees.types
        types = np.zeros(whole.num_nodes, np.int64) if types is None else types
        # the rows of each type in this order, and the place of each row in its type [N]
        own = [order[types[order] == number] for number in range(schema.num_types)]
        places = np.empty(whole.num_nodes, np.int64)
        for rows in own:
            places[rows] = np.arange(len(rows))
        data = pyg.HeteroData() if schema.is_typed else pyg.Data()
        for number, name in enumerate(schema.types):
            store = data[name] if schema.is_typed else data
            _fill_nodes(store, whole.features, own[number], number)
            if number == self.cut.graph.config.graph.target_type:
                store.batch_size = len(whole.roots)
                if (labels := self.labels) is not None:
                    store.y = labels
        for number, relation in enumerate(schema.relations):
            names = (relation.source, relation.name, relation.target)
            _fill_edges(data[names] if schema.is_typed else data, whole.edges.relation(number), places)
        return data

    @property
    def _schema(self) -> GraphSchema:
        return self.cut.graph.neighbors.store.schema


def _fill_nodes(store: Any, features: Features | TypedFeatures, rows: IntArray, number: int) -> None:
    """Give a type's nodes their features; without features they have a number alone."""
    store.num_nodes = len(rows)
    if isinstance(features, TypedFeatures):
        part, rows = features.parts[number], features.places[rows]
    else:
        part = features
    if part is None or not part.width:
        return
    made = feature_tensors(part.take(rows))
    if made.dense is not None:
        store.x = made.dense
        return
    assert made.offsets is not None
    assert made.index is not None
    values = torch.ones(len(made.index)) if made.value is None else made.value
    store.x = torch.sparse_csr_tensor(made.offsets, made.index, values, (len(rows), made.width)).to_dense()


def _fill_edges(store: Any, edges: InEdges, places: IntArray) -> None:
    """Give a relation its edges, by the places of rows in their types."""
    targets = np.repeat(np.arange(edges.num_targets), edges.lengths)
    store.edge_index = torch.from_numpy(np.stack([places[edges.sources], places[targets]]))
    if edges.weight is not None:
        store.edge_weight = tensor(edges.weight)
    if edges.attributes is not None and edges.attributes.shape[1]:
        store.edge_attr = tensor(edges.attributes)
