"""All sections of a configuration, and what several of them say together. Each is right by itself."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from gnnflow.config.base import MAX_SEED, Integer, Section, Uri, problem
from gnnflow.config.cluster_section import ClusterConfig, LocalCluster
from gnnflow.config.deployment import anchored, default_workspace
from gnnflow.config.flat_section import FlatConfig
from gnnflow.config.graph_section import GraphConfig
from gnnflow.config.infer_section import InferConfig
from gnnflow.config.model_section import GCNConfig, ModelConfig
from gnnflow.config.neighbors_section import DirectNeighbors, NeighborsConfig, NoSampling
from gnnflow.config.partition_section import HashPartition, PartitionConfig
from gnnflow.config.publish_section import GuardsConfig, PublishConfig
from gnnflow.config.task_section import NodeTask, TaskConfig
from gnnflow.config.train_keys import Device
from gnnflow.config.train_section import MiniBatchConfig, TrainConfig
from gnnflow.graph.schema import Relation

RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class Sections(Section):
    """The sections of one experiment, before `gnnflow.config.checks` says whether they go together."""

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
    train: TrainConfig = Field(
        MiniBatchConfig(), description="How the graph is cut for training, and how weights are found."
    )
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
