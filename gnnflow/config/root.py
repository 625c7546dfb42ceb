"""The whole configuration and the checks that need more than one section."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from gnnflow.config.base import MAX_SEED, Integer, Section, Uri, problem
from gnnflow.config.cluster_section import AddressCluster, ClusterConfig, LocalCluster, SynchronousCluster
from gnnflow.config.deployment import anchored, default_workspace
from gnnflow.config.flat_section import FlatConfig
from gnnflow.config.graph_section import GraphConfig
from gnnflow.config.infer_section import InferConfig
from gnnflow.config.model_section import GATEConfig, GCNConfig, JoinedKeys, ModelConfig, PGNNConfig
from gnnflow.config.neighbors_section import (
    DirectNeighbors,
    MetapathNeighbors,
    NeighborsConfig,
    NoSampling,
    RingNeighbors,
    WalkNeighbors,
    relation_of,
)
from gnnflow.config.partition_section import BalancedPartition, HashPartition, PartitionConfig
from gnnflow.config.publish_section import GuardsConfig, PublishConfig
from gnnflow.config.task_section import NodeTask, TaskConfig
from gnnflow.config.train_section import Device, TrainConfig, needs_ranks
from gnnflow.graph.labels import LABEL_KINDS, metrics_to_choose
from gnnflow.graph.schema import Relation

_METRICS_OF_LABELS = {name for kind, traits in LABEL_KINDS.items() if kind != "link" for name in traits.metrics}
RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class Config(Section):
    """Everything one experiment says."""

    name: RunName = Field(description="Name of the experiment; runs are kept under runs/<name> in the workspace.")
    seed: Integer = Field(
        0, ge=0, le=MAX_SEED, description="Seed of sampling, initial weights, dropout and batch order."
    )
    workspace: Uri = Field(
        default_factory=default_workspace,
        description="Where artifacts and runs live: a folder or any fsspec URL. Left out: GNNFLOW_WORKSPACE, or runs.",
    )
    graph: GraphConfig = Field(description="Input tables and the layout of the graph store.")
    task: TaskConfig = Field(NodeTask(), description="What is labelled and scored: nodes, or pairs of nodes.")
    partition: PartitionConfig = Field(HashPartition(), description="Which nodes share a partition.")
    neighbors: NeighborsConfig = Field(DirectNeighbors(), description="Which neighbours a node aggregates.")
    flat: FlatConfig = Field(FlatConfig(), description="Neighbourhoods as GraphFeatures.")
    model: ModelConfig = Field(GCNConfig(), description="Encoder, layers and head.")
    train: TrainConfig = Field(TrainConfig(), description="Training.")
    infer: InferConfig = Field(InferConfig(), description="Scoring.")
    guards: GuardsConfig = Field(GuardsConfig(), description="What stops a scheduled run before it trains.")
    publish: PublishConfig = Field(PublishConfig(), description="What a model must show to be promoted.")
    cluster: ClusterConfig = Field(LocalCluster(), description="Where the work runs.")

    @field_validator("workspace")
    @classmethod
    def _workspace_is_one_place(cls, uri: str) -> str:
        if any(symbol in uri for symbol in "*?["):
            raise problem("holds a wildcard (*, ? or [), and a workspace is one place", fix="Name one folder.")
        return uri

    @model_validator(mode="after")
    def _workspace_is_beside_the_tables(self) -> Self:
        for table in ("nodes", "edges"):
            held = getattr(self.graph, table)
            for uri in [held] if isinstance(held, str) else held.values():
                if f"{anchored(self.workspace)}/".startswith(f"{anchored(uri).rstrip('/')}/"):
                    raise problem(
                        f"{self.workspace!r} lies inside graph.{table}, so a run's own files would be read as a table",
                        key="workspace",
                        fix="Name a folder beside the tables.",
                    )
        return self

    @property
    def num_hops(self) -> int:
        """How far neighbourhoods reach: flat.hops, or the number of layers where it is null."""
        return self.model.layers if self.flat.hops is None else self.flat.hops

    @property
    def scoring_device(self) -> Device:
        """Where GraphInfer computes: train.device, unless infer.device names another."""
        return self.train.device if self.infer.device == "same" else self.infer.device

    @property
    def fanouts(self) -> tuple[int, ...] | None:
        """In-edges kept per node, one number per hop from the targets outward; None keeps all.

        Where relations have fan-outs of their own, the largest of each hop.
        """
        held = self.relation_fanouts
        return None if held is None else tuple(map(max, zip(*held, strict=True)))

    @property
    def aggregated_relations(self) -> dict[Relation, int] | None:
        """The relations that are aggregated, in the order of their names, and how many leaves the edges of each have.

        None where a function of one's own selects neighbours: they are known once it has run.
        """
        found = self.neighbors.relations(self.graph.schema)
        return None if found is None else dict(sorted(found.items(), key=lambda each: str(each[0])))

    @property
    def relation_fanouts(self) -> tuple[tuple[int, ...], ...] | None:
        """The fan-outs of each relation, in the order of the graph's schema; None keeps all in-edges."""
        sampling, relations = self.neighbors.sampling, self.graph.schema.relations
        if isinstance(sampling, NoSampling):
            return None
        if isinstance(sampling.fanout, tuple):
            return (sampling.fanout,) * len(relations)
        return tuple(sampling.fanout[str(relation)] for relation in relations)

    @model_validator(mode="after")
    def _hops_reach_layers(self) -> Self:
        if self.num_hops < self.model.layers:
            raise problem(
                f"{self.flat.hops} is not allowed: must be at least {self.model.layers}, as model.layers",
                key="flat.hops",
                fix="Leave it out, or raise it: neighbourhoods of more hops serve models of fewer layers too.",
            )
        return self

    @model_validator(mode="after")
    def _links_have_their_own_keys(self) -> Self:
        if self.task.kind != "link":
            return self
        if self.train.metric not in metrics_to_choose("link"):
            raise problem(
                f"{self.train.metric} is not defined for links",
                key="train.metric",
                fix=f"Set it to {' or '.join(metrics_to_choose('link'))}.",
            )
        self._needs("infer.embeddings", self.infer.embeddings, needed=False, why="predictions are embeddings already")
        why = "splits are those of edges, and embeddings those of nodes"
        self._needs("infer.targets", self.infer.targets, needed="all", why=why)
        self._needs("train.class_weight", self.train.class_weight, needed="none", why="an edge has no class")
        return self

    @model_validator(mode="after")
    def _labels_of_edges_have_their_own_keys(self) -> Self:
        if self.task.kind != "edge":
            return self
        if self.train.metric in LABEL_KINDS["link"].metrics and self.train.metric not in _METRICS_OF_LABELS:
            raise problem(
                f"{self.train.metric} is not defined for labels of edges",
                key="train.metric",
                fix="Set it to a metric of classes or numbers.",
            )
        self._needs("infer.embeddings", self.infer.embeddings, needed=False, why="predictions are those of edges")
        held = self.graph.edge_features
        columns = held if isinstance(held, tuple) else {name for listed in held.values() for name in listed}
        for role in ("label", "split"):
            if getattr(self.graph, role) in columns:
                raise problem(
                    f"{getattr(self.graph, role)!r} is the column of graph.{role}, and task.kind is edge",
                    key="graph.edge_features",
                    fix="Take it out of the list: a label would be its own input.",
                )
        return self

    @model_validator(mode="after")
    def _neighborhoods_are_those_of_edges(self) -> Self:
        if self.task.kind != "node":
            why = "neighbourhoods are those of the ends of edges"
            self._needs("flat.targets", self.flat.targets, needed="labelled", why=why)
        return self

    def _needs(self, key: str, value: object, *, needed: object, why: str) -> None:
        if value != needed:
            reason = f"{value!r} is not allowed where task.kind is {self.task.kind}: {why}"
            raise problem(reason, key=key, fix="Leave it out.")

    @model_validator(mode="after")
    def _relations_are_joined_where_there_are_several(self) -> Self:
        model, relations = self.model, self.aggregated_relations
        has_several = self.graph.schema.num_types > 1 or relations is None or len(relations) > 1
        if has_several or not isinstance(model, JoinedKeys):
            return self
        if model.across != type(model).model_fields["across"].default:
            direct = isinstance(self.neighbors, DirectNeighbors)
            one = "the graph has one" if direct else f"neighbors.kind {self.neighbors.kind} gives one"
            raise problem(
                f"{model.across!r} joins what a node gets from several relations, and {one}",
                key="model.across",
                fix="Leave it out, or give graph.edges as {source__relation__target: path}.",
            )
        return self

    @model_validator(mode="after")
    def _ranks_have_workers(self) -> Self:
        if not needs_ranks(self.train) or isinstance(self.cluster, AddressCluster):
            return self
        if isinstance(self.cluster, SynchronousCluster):
            raise problem(
                f"train.workers is {self.train.workers} with train.updater {self.train.updater.kind}, and ranks are "
                "tasks of a Dask cluster, which cluster.kind: synchronous is not",
                key="train.workers",
                fix=f"Set cluster to {{kind: local, workers: {self.train.workers}}}, or train.workers to 1.",
            )
        if self.cluster.workers < self.train.workers and not self.train.elastic:
            raise problem(
                f"{self.train.workers} ranks need as many Dask workers, and cluster.workers is {self.cluster.workers}",
                key="train.workers",
                fix=f"Set cluster.workers to {self.train.workers}, or train.elastic to true.",
            )
        return self

    @model_validator(mode="after")
    def _fanout_fits_hops(self) -> Self:
        sampling, place = self.neighbors.sampling, "neighbors.sampling.fanout"
        if isinstance(sampling, NoSampling):
            return self
        if isinstance(sampling.fanout, dict):
            self._fanouts_name_relations(sampling.fanout)
        held = {place: sampling.fanout} if isinstance(sampling.fanout, tuple) else sampling.fanout
        for name, fanout in held.items():
            if len(fanout) != self.num_hops:
                raise problem(
                    f"{list(fanout)} is not allowed: must have {self.num_hops} numbers, one per hop",
                    key=name if name == place else f"{place}.{name}",
                    fix="Give one number per hop, targets first, or change model.layers or flat.hops.",
                )
        return self

    def _fanouts_name_relations(self, fanouts: Mapping[str, object]) -> None:
        """Raise where a map of fan-outs does not name exactly the graph's relations."""
        place = "neighbors.sampling.fanout"
        if isinstance(self.graph.edges, str):
            raise problem("a map of relations, and graph.edges is one table", key=place, fix="Give one list.")
        known = [str(relation) for relation in self.graph.schema.relations]
        if missing := [name for name in known if name not in fanouts]:
            raise problem(
                f"has no list for {', '.join(missing)}", key=place, fix="Name every relation, or give one list for all."
            )
        if unknown := [name for name in fanouts if name not in known]:
            raise problem(f"{unknown[0]!r} is no relation of the graph", key=place, fix=f"They are {', '.join(known)}.")

    @model_validator(mode="after")
    def _metapaths_follow_relations(self) -> Self:
        if not isinstance(self.neighbors, MetapathNeighbors):
            return self
        schema, key = self.graph.schema, "neighbors.paths"
        joined = {(relation.target, relation.source) for relation in schema.relations}
        for path in self.neighbors.paths:
            if unknown := [name for name in path if name not in schema.types]:
                fix = f"They are {', '.join(schema.types)}."
                raise problem(f"{unknown[0]!r} is no node type of the graph", key=key, fix=fix)
            if apart := [pair for pair in pairwise(path) if pair not in joined]:
                target, source = apart[0]
                raise problem(
                    f"{list(path)} steps from {target} to {source}, and no relation leads from {source} to {target}",
                    key=key,
                    fix="Paths follow edges backwards, from where they lead. Set graph.reverse_edges: true, or name "
                    "types that a relation joins.",
                )
        if len(set(self.neighbors.paths)) < len(self.neighbors.paths):
            raise problem("a path is listed twice", key=key, fix="List each once.")
        names = Counter(relation_of(path) for path in self.neighbors.paths)
        if twice := [str(each) for each, count in names.items() if count > 1]:
            fix = "Leave one out, or name the types without a `-`."
            raise problem(f"two paths give the relation {twice[0]}", key=key, fix=fix)
        return self

    @model_validator(mode="after")
    def _partitions_can_be_balanced(self) -> Self:
        if not isinstance(self.partition, BalancedPartition):
            return self
        why = None
        if self.task.kind != "node":
            why = f"task.kind is {self.task.kind}: pairs that are predicted stay where ingest placed them"
        elif not isinstance(self.neighbors, (DirectNeighbors, MetapathNeighbors)):
            why = f"neighbors.kind is {self.neighbors.kind}: costs are those of direct neighbours or of metapaths"
        if why is not None:
            fix = "Set it to hash."
            raise problem(f"balanced is not allowed where {why}", key="partition.kind", fix=fix)
        known = [str(relation) for relation in self.aggregated_relations or ()]
        if unknown := [name for name in self.partition.relations if name not in known]:
            key = "partition.relations"
            raise problem(
                f"{unknown[0]!r} is no relation that is aggregated", key=key, fix=f"They are {', '.join(known)}."
            )
        return self

    @model_validator(mode="after")
    def _pairs_have_direct_neighbors(self) -> Self:
        if self.task.kind != "node" and not isinstance(self.neighbors, DirectNeighbors):
            raise problem(
                f"{self.neighbors.kind} is not allowed where task.kind is {self.task.kind}: an edge that is scored is "
                "left out of the neighbours of its ends, and other neighbours do not say which edges they came by",
                key="neighbors.kind",
                fix="Set it to direct.",
            )
        return self

    @model_validator(mode="after")
    def _layers_find_what_they_read_of_edges(self) -> Self:
        model, neighbors = self.model, self.neighbors
        selected = isinstance(neighbors, (WalkNeighbors, RingNeighbors, MetapathNeighbors))
        if isinstance(model, GATEConfig) and selected:
            raise problem(
                f"{model.kind} reads edge attributes, and neighbours of kind {neighbors.kind} have none",
                key="model.kind",
                fix="Choose gat, or set neighbors.kind to direct.",
            )
        sets = model.anchor_sets if isinstance(model, PGNNConfig) else None
        if sets is not None and (selected or isinstance(neighbors, DirectNeighbors)):
            raise problem(
                f"{sets} is not allowed where neighbors.kind is {neighbors.kind}: only anchors are of sets",
                key="model.anchor_sets",
                fix="Leave it out, or set neighbors.kind to anchors.",
            )
        return self

    @model_validator(mode="after")
    def _typed_graphs_have_labelled_nodes(self) -> Self:
        if self.graph.schema.is_typed and self.task.kind != "node":
            raise problem(
                f"{self.task.kind} is not allowed where graph.nodes or graph.edges has several types",
                key="task.kind",
                fix="Set task.kind to node, or give one node table and one edge table.",
            )
        return self
