"""The whole configuration and the checks that need more than one section."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from gnnflow.config.base import MAX_SEED, Integer, Section, Uri, problem
from gnnflow.config.cluster_section import AddressCluster, ClusterConfig, LocalCluster, SynchronousCluster
from gnnflow.config.deployment import anchored, default_workspace
from gnnflow.config.flat_section import FlatConfig
from gnnflow.config.graph_section import GraphConfig
from gnnflow.config.infer_section import InferConfig
from gnnflow.config.model_section import GCNConfig, ModelConfig
from gnnflow.config.neighbors_section import NeighborsConfig, NoSampling
from gnnflow.config.publish_section import GuardsConfig, PublishConfig
from gnnflow.config.task_section import NodeTask, TaskConfig
from gnnflow.config.train_section import Device, TrainConfig, needs_ranks
from gnnflow.graph.labels import LABEL_KINDS, metrics_to_choose

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
    neighbors: NeighborsConfig = Field(NeighborsConfig(), description="Which neighbours a node aggregates.")
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
        """In-edges kept per node, one number per hop from the targets outward; None keeps all."""
        sampling = self.neighbors.sampling
        return None if isinstance(sampling, NoSampling) else sampling.fanout

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
        for role in ("label", "split"):
            if getattr(self.graph, role) in self.graph.edge_features:
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
        if self.fanouts is not None and len(self.fanouts) != self.num_hops:
            raise problem(
                f"{list(self.fanouts)} is not allowed: must have {self.num_hops} numbers, one per hop",
                key="neighbors.sampling.fanout",
                fix="Give one number per hop, targets first, or change model.layers or flat.hops.",
            )
        return self
