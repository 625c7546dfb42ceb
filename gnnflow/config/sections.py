"""All sections of a configuration, with the small ones: `flat`, `infer`, `recommend`, `publish` and `guards`.

`publish` and `guards` change no stage's result, so no fingerprint covers them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from gnnflow.config.base import MAX_SEED, Integer, Number, Section, Uri, problem
from gnnflow.config.cluster_section import ClusterConfig, LocalCluster
from gnnflow.config.deployment import anchored, default_workspace
from gnnflow.config.graph_section import GraphConfig
from gnnflow.config.model_section import GCNConfig, ModelConfig
from gnnflow.config.moments import HOW, read_moment
from gnnflow.config.neighbors_section import DirectNeighbors, NeighborsConfig, NoSampling
from gnnflow.config.partition_section import HashPartition, PartitionConfig
from gnnflow.config.task_section import NodeTask, TaskConfig
from gnnflow.config.train_keys import Device
from gnnflow.config.train_section import MiniBatchConfig, TrainConfig
from gnnflow.graph.labels import PublishMetric
from gnnflow.graph.sampling import Sampling
from gnnflow.graph.schema import Relation
from gnnflow.graph.splits import Split


class FlatConfig(Section):
    """Neighbourhoods as GraphFeatures."""

    hops: Integer | None = Field(
        None,
        ge=1,
        le=16,
        description="How far neighbourhoods reach: at least model.layers, which is what null means. One GraphFlat "
        "serves models of every depth up to it.",
    )
    shard_size: Integer = Field(
        8192, ge=1, description="Most targets per shard; fewer where their neighbourhoods would take above 512 MiB."
    )
    layout: Literal["auto", "shared", "inline"] = Field(
        "auto",
        description="shared stores a node's features once per shard, inline once per target (as AGL does). auto is "
        "shared, but writes the targets alone where training can hold the graph in a worker's memory "
        "(cluster.memory_limit) and cut the same batches from it.",
    )
    targets: Literal["labelled", "all"] = Field(
        "labelled", description="Which nodes get a neighbourhood: those with a label and a split, or all."
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_moved_keys(cls, raw: Any) -> Any:
        for key in ("sampling", "hub_threshold"):
            if isinstance(raw, dict) and key in raw:
                raise problem(
                    f"neighbours are selected for all stages at once, so the key is neighbors.{key} now",
                    key=key,
                    fix=f"Move it: `neighbors: {{{key}: ...}}`.",
                )
        return raw


RowKind = Literal["float32", "float16", "bfloat16"]
"""The number format of a layer's rows on their way between partitions."""


class InferConfig(Section):
    """Layer-wise scoring of the whole graph or a part of it."""

    targets: Literal["all"] | Annotated[tuple[Split, ...], Field(min_length=1)] = Field(
        "all", description="all, or a list of splits such as [test]; fewer targets prune the rounds."
    )
    embeddings: bool = Field(default=False, description="Also write the last layer's embedding of each target.")
    parity_samples: Integer = Field(
        256,
        ge=0,
        description="Targets scored again by the k-hop path, over the same neighbours; the run fails where scores "
        "differ by more than 1e-4. 0 compares nothing, and such a run cannot be published.",
    )
    device: Literal["same", "auto", "cpu", "cuda"] = Field(
        "same",
        description="Where slices are computed: same uses train.device; the others mean what they mean there. The "
        "certificate always scores its targets on the CPU.",
    )
    sampling: Literal["same", "none"] = Field(
        "same",
        description="same uses the neighbours training saw; none uses every in-edge, in both paths of the certificate.",
    )
    rows: RowKind = Field(
        "float32",
        description="How a layer's rows travel between partitions: float16 and bfloat16 round each number, in half the "
        "bytes, and the certificate then allows 1e-2 or 5e-2. Rows that tasks map, on one machine, are rounded alike.",
    )


class RecommendConfig(Section):
    """The lists of `gnnflow recommend`, which ranks all items for each user of a run that predicts links."""

    top: Integer = Field(10, ge=1, description="Items in each user's list, at most as many as there are.")
    exclude_seen: bool = Field(
        default=True, description="Leave out the items that a user has an edge to in the graph of the embeddings."
    )


ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class PublishConfig(Section):
    """Registration of a model, and its comparison with the one in service."""

    name: ModelName | None = Field(None, description="Name in the registry; null means the config's name.")
    metric: PublishMetric | None = Field(
        None,
        description="Metric on the test split, where a model must match or beat the champion; null: train.metric. "
        "cost: of decisions, on average, where task.decide.kind is cost.",
    )
    incomparable: Literal["keep", "promote"] = Field(
        "keep",
        description="Where the champion cannot be scored on this graph: keep it in service, or promote the new model.",
    )
    approval: bool = Field(
        default=False,
        description="A version that would be promoted waits as the candidate until a person promotes it.",
    )
    approvers: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (),
        description="Ids of the users who alone may promote a version in Airflow; empty: all who may edit. A model's "
        "file names them in approval.users.",
    )
    date: str | None = Field(
        None,
        description="Date of the tables, such as 2026-01-31: a model of earlier tables replaces none of later ones. "
        "The retraining DAG sets it where the config's texts name dates.",
    )

    @model_validator(mode="after")
    def _check_approvers(self) -> Self:
        if self.approvers and not self.approval:
            raise problem("approvers are named, and none is asked", key="approvers", fix="Set publish.approval: true.")
        return self

    @field_validator("date")
    @classmethod
    def _refuse_other_texts(cls, text: str | None) -> str | None:
        try:
            return text if text is None else read_moment(text).isoformat()
        except ValueError:
            raise problem("is not a date", fix=HOW) from None


class GuardsConfig(Section):
    """The largest allowed changes since the model in service was trained, or scored; null turns a guard off."""

    commands: tuple[Literal["run", "score"], ...] = Field(
        (),
        description="Commands that check these limits themselves: run before it trains, score before it scores (the "
        "tables, without their labels) and before its predictions appear. The retraining DAG checks in any case.",
    )
    rows: Annotated[Number, Field(gt=0)] | None = Field(
        0.5, description="Largest relative change of the number of nodes or of edges: 0.5 allows half to 1.5 times."
    )
    label_rate: Annotated[Number, Field(gt=0)] | None = Field(
        0.2, description="Largest relative change of the share of nodes with a label."
    )
    psi: Annotated[Number, Field(gt=0)] | None = Field(
        0.25,
        description="Largest population stability index of a column of nodes or edges, or of the classes of labels.",
    )
    scores: Annotated[Number, Field(gt=0)] | None = Field(
        0.25,
        description="Largest population stability index of predicted classes, or of scores, since the scoring before; "
        "only where guards.commands names score.",
    )
    metric: Annotated[Number, Field(gt=0)] | None = Field(
        0.2,
        description="Largest relative loss of the metric that chose the model since the scoring before, where tables "
        "have labels and the loss is not mere noise; only where guards.commands names score.",
    )


RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class Sections(Section):
    """The sections of one experiment, before `gnnflow.config.checks` compares them."""

    name: RunName = Field(description="Name of the experiment; runs are kept under runs/<name> in the workspace.")
    seed: Integer = Field(
        0, ge=0, le=MAX_SEED, description="Seed of sampling, initial weights, dropout and batch order."
    )
    workspace: Uri = Field(
        default_factory=default_workspace,
        description="Where artifacts and runs live: a folder or any fsspec URL. Left out: GNNFLOW_WORKSPACE, or runs.",
    )
    graph: GraphConfig = Field(description="Input tables and the layout of the graph store.")
    task: TaskConfig = Field(
        NodeTask(), description="The targets that are labelled and scored: nodes, or pairs of nodes."
    )
    partition: PartitionConfig = Field(HashPartition(), description="Which nodes share a partition.")
    neighbors: NeighborsConfig = Field(DirectNeighbors(), description="Which neighbours a node aggregates.")
    flat: FlatConfig = Field(FlatConfig(), description="Neighbourhoods as GraphFeatures.")
    model: ModelConfig = Field(GCNConfig(), description="Encoder, layers and head.")
    train: TrainConfig = Field(
        MiniBatchConfig(), description="How the graph is cut for training, and how the model is trained."
    )
    infer: InferConfig = Field(InferConfig(), description="Scoring.")
    recommend: RecommendConfig = Field(RecommendConfig(), description="Lists of the best items of each user.")
    guards: GuardsConfig = Field(GuardsConfig(), description="Checks that stop a run or a scoring.")
    publish: PublishConfig = Field(PublishConfig(), description="Conditions for promoting a model.")
    cluster: ClusterConfig = Field(
        LocalCluster(),
        description="Where the work runs. Without the section, tables of up to 64 MiB in memory are worked on "
        "in this process, unless train.workers asks for ranks.",
    )

    @field_validator("workspace")
    @classmethod
    def _check_workspace(cls, uri: str) -> str:
        if any(symbol in uri for symbol in "*?["):
            raise problem("holds a wildcard (*, ? or [), and a workspace is one folder", fix="Name one folder.")
        return uri

    @model_validator(mode="after")
    def _check_workspace_location(self) -> Self:
        for table in ("nodes", "edges"):
            held = self.graph.node_tables if table == "nodes" else self.graph.edge_tables
            for uri in filter(None, held.values()):
                if f"{anchored(self.workspace)}/".startswith(f"{anchored(uri).rstrip('/')}/"):
                    raise problem(
                        f"{self.workspace!r} lies inside graph.{table}, so a run's own files would be read as a table",
                        key="workspace",
                        fix="Name a folder outside the tables.",
                    )
        return self

    @property
    def num_hops(self) -> int:
        """The number of hops of neighbourhoods: flat.hops, or the number of layers where that is null."""
        return self.model.layers if self.flat.hops is None else self.flat.hops

    @property
    def scoring_device(self) -> Device:
        """The device of GraphInfer: train.device, unless infer.device names another."""
        return self.train.device if self.infer.device == "same" else self.infer.device

    @property
    def sampling(self) -> Sampling:
        """The in-edges that are taken of each node of a neighbourhood."""
        return Sampling(self.neighbors.sampling.kind, self.fanouts)

    @property
    def fanouts(self) -> tuple[int, ...] | None:
        """In-edges kept per node, one number per hop from the targets outward; None keeps all.

        Where each relation has its own fan-outs, the largest of each hop.
        """
        held = self.relation_fanouts
        return None if held is None else tuple(map(max, zip(*held, strict=True)))

    @property
    def aggregated_relations(self) -> dict[Relation, int] | None:
        """The aggregated relations, in the order of their names, and the number of leaves of an edge of each.

        None where a user's own function selects neighbours: they are known after it has run.
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
