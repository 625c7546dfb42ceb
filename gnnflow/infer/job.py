"""The job of GraphInfer: what all of its tasks know."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from gnnflow.executions.plan import EdgeColumns
from gnnflow.infer.choice import Exchange
from gnnflow.kernels.device import compute_threads, computing_on, find_device
from gnnflow.layers.model import Model
from gnnflow.layers.saved import load_model
from gnnflow.native import core

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gnnflow.config import Device, RowKind
    from gnnflow.graph.labels import LabelKind
    from gnnflow.graph.run_facts import Decision
    from gnnflow.graph.sampling import Fanout
    from gnnflow.infer.choice import LayerBytes
    from gnnflow.neighbors.selected import Neighbors


@dataclass(frozen=True)
class InferJob:
    """targets: "all", or the split codes to score. model: URI of the trained model's folder.

    label_kind: of what the model learned, class_names: of its classes, where they have names. scores_edges: targets are
    edges, scored from the embeddings of their ends; all nodes are then computed.
    device: where slices are computed, see `infer.device`. A device of the model that it loads computes its slices.
    decision: the model's decision between classes, if any. rows: how rows travel, see `row_form.py`.
    exchange: how partitions send to each other. hub_threshold: in-edges of a target above which `hubs.py` splits them;
    None: never.
    """

    artifact: str
    neighbors: Neighbors
    model: str
    num_layers: int
    label_kind: LabelKind
    targets: str | tuple[int, ...]
    embeddings: bool
    parity_samples: int
    seed: int
    class_names: tuple[str, ...] = ()
    scores_edges: bool = False
    device: Device = "cpu"
    exchange: Exchange = field(default_factory=Exchange)
    hub_threshold: int | None = None
    decision: Decision | None = None
    rows: RowKind = "float32"

    @property
    def mapped(self) -> bool:
        """True if rows stay where they are made, and tasks map each other's files."""
        return bool(self.exchange.mapped)

    @property
    def joins(self) -> bool:
        """True if in-edges are kept in pieces, over which a kernel merges the states of all partitions at once."""
        every = all(each.joins for layer in self.exchange.layers for each in layer)
        return self.mapped and self.keeps_terms and every and core() is not None

    @property
    def row_kind(self) -> LabelKind:
        """The kind of row the model gives for a node: its scores, or where edges are scored its embedding."""
        return "link" if self.scores_edges else self.label_kind

    @property
    def node_targets(self) -> str | tuple[int, ...]:
        """The split codes of the nodes to compute, or "all"."""
        return "all" if self.scores_edges else self.targets

    def fanout(self, layer: int) -> Fanout | None:
        """Return how many in-edges layer `layer` (from 1) takes: the last layer the targets' own fan-out."""
        return self.neighbors.sampling.of_hop(self.num_layers - layer + 1)

    def need_layer(self, layer: int) -> int:
        """Return the layer whose need round serves this one: without pruning and sampling all layers need the same.

        Not where there are several types: targets are of one of them, and lower layers compute nodes of others.
        """
        whole = self.node_targets == "all" and self.neighbors.sampling.takes_every
        whole = whole and self.neighbors.store.schema.num_types == 1
        return self.num_layers if whole else layer

    def layers_served(self, need_layer: int, relation: int) -> list[LayerBytes]:
        """Return the bytes sent in a relation by the layers that a need round serves."""
        return [self.exchange.layers[layer - 1][relation] for layer in self.served(need_layer)]

    def served(self, need_layer: int) -> list[int]:
        """Return the layers (from 1) that a need round serves."""
        return [layer for layer in range(1, self.num_layers + 1) if self.need_layer(layer) == need_layer]

    @property
    def edge_columns(self) -> EdgeColumns:
        """The columns that the edges of the graph have."""
        facts = self.neighbors.store.facts
        return EdgeColumns(facts.has_weight, facts.attribute_width)

    @property
    def keeps_terms(self) -> bool:
        """True if targets keep their terms, which one relation allows; with several they keep their input rows."""
        schema = self.neighbors.store.schema
        return schema.num_types == schema.num_relations == 1

    def channel(self, what: str, layer: int, relation: int) -> str:
        """Return the name of a channel that each relation of a layer has once."""
        return f"{what}_{layer}_{relation}"

    def source_channels(self, layer: int) -> tuple[str, ...]:
        """Return the channels in which the source terms of a layer travel, one per relation."""
        return self._channels("source", layer, range(self.neighbors.store.schema.num_relations))

    def state_channels(self, layer: int) -> dict[str, str]:
        """Return the channels in which states of a layer travel, and the round that makes them.

        Where files are mapped who takes a state makes it.
        """
        if self.mapped:
            return {}
        made = {True: f"states_{layer}", False: f"slice_{layer - 1}"}
        relations = self.exchange.askers.get(self.need_layer(layer), ())
        return {self.channel("state", layer, each): made[self.reads_targets(layer, each)] for each in relations}

    def target_channels(self, layer: int) -> tuple[str, ...]:
        """Return the channels of what a slice leaves for the round that makes states with terms of their targets."""
        if self.mapped:
            return ()
        relations = self.exchange.askers.get(self.need_layer(layer), ())
        reading = [each for each in relations if self.reads_targets(layer, each)]
        return (*self._channels("kept", layer, reading), *self._channels("target", layer, reading))

    def edge_channels(self, need_layer: int) -> tuple[str, ...]:
        """Return the channels in which a need round sends edges to who makes states over them, and of which targets.

        Where files are mapped it keeps the edges, numbered, for the slices of the same partition.
        """
        if self.mapped:
            return (f"edges_{need_layer}",)
        relations = self.exchange.askers.get(need_layer, ())
        reading = [each for each in relations if any(of.read for of in self.layers_served(need_layer, each))]
        return (*self._channels("edges", need_layer, relations), *self._channels("targets", need_layer, reading))

    def reads_targets(self, layer: int, relation: int) -> bool:
        """Return whether states of a layer are made from terms of their targets too."""
        return self.exchange.layers[layer - 1][relation].read > 0

    def splits_hubs(self, need_layer: int, relation: int) -> bool:
        """Return whether in-edges of hubs are split in the layers that a need round serves."""
        merges = all(of.state is not None for of in self.layers_served(need_layer, relation))
        return merges and self.neighbors.store.num_partitions > 1

    def hub_owners(self, layer: int, relation: int) -> tuple[int, ...]:
        """Return the partitions whose hubs' in-edges are split in a layer's relation, ascending."""
        return self.exchange.hubs.get(self.need_layer(layer), {}).get(relation, ())

    def hub_relations(self, layer: int) -> tuple[int, ...]:
        """Return the relations of a layer in which in-edges of hubs are split, ascending."""
        return tuple(self.exchange.hubs.get(self.need_layer(layer), {}))

    def _channels(self, what: str, layer: int, relations: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.channel(what, layer, relation) for relation in relations)

    def load_model(self) -> Model:
        """Return the trained model in evaluation mode, on the CPU."""
        return load_model(self.model)

    @contextmanager
    def computing(self, partition: int) -> Iterator[Model]:
        """Yield the model on the device that computes a partition; inside the block one thread computes.

        Of several cards each partition takes one, in turn; tasks may share a card.
        """
        device = find_device(self.device, where="infer.device", number=partition)
        with compute_threads(1), computing_on(device, where="infer.device"), torch.no_grad():
            yield self.load_model().to(device)
