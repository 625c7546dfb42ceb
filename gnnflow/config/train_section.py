"""The `train` section: the keys that each training strategy adds to the common ones.

`gnnflow.config.pipelines` lists the strategies. A strategy with its own keys is a member of the union `TrainConfig`
here; any other has the keys of mini-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ByteSize, Discriminator, Field, Tag, model_validator

from gnnflow.config.base import Integer, Size, problem
from gnnflow.config.pipelines import HYBRID, PIPELINES, Pipeline
from gnnflow.config.train_keys import Strategy, TrainKeys


class BatchKeys(TrainKeys):
    """The keys of strategies that train on one batch after another."""

    parallel: Literal["data", "hybrid"] = Field(
        "data",
        description="How ranks divide the work: data, each computes other batches; or hybrid, all compute each batch "
        "together, and each holds only its partitions of the graph (docs/global-batch.md#hybrid-parallelism).",
    )
    accumulate: Integer = Field(
        1,
        ge=1,
        description="Batches per update of the weights: their gradients become the mean over all their targets, as of "
        "one batch that large, in the memory of one. An epoch's last update may have fewer.",
    )
    prefetch: Integer = Field(
        2,
        ge=0,
        le=64,
        description="Batches prepared ahead of the one in training; 0 prepares in turn. Several ranks with parallel: "
        "hybrid prepare only the next one, while gradients travel.",
    )
    cache: Size = Field(
        ByteSize(512 * 1024**2),
        description="Memory of the reader for decoded shards and finished batches, such as 512MiB; 0 decodes shards in "
        "every epoch. Four shards are held whatever it says, since their targets are shuffled together.",
    )

    @model_validator(mode="after")
    def _check_accumulate(self) -> Self:
        if self.accumulate > 1 and self.updater.kind == "parameter_server" and self.updater.stealing:
            raise problem(
                f"{self.accumulate} is not allowed where train.updater.stealing is true: no rank knows which of its "
                "batches is the last",
                key="accumulate",
                fix="Set it to 1 and raise train.batch_size, or leave stealing out.",
            )
        return self


class MiniBatchConfig(BatchKeys):
    """Mini-batch training on GraphFeatures, or on a graph store in memory."""

    strategy: Strategy = Field("mini-batch", description="Some targets with their neighbourhoods at a time.")
    source: Literal["shards", "store"] = Field(
        "shards",
        description="Where batches come from: shards of GraphFlat, for graphs of any size; or store, the whole graph "
        "in the memory of each rank, without GraphFlat; with parallel: hybrid store, a part of it on each rank.",
    )
    resample: Literal["never", "epoch"] = Field(
        "never",
        description="epoch draws the sample of neighbors.sampling (uniform or weighted), or the walks of "
        "neighbors.kind: walks, again for every epoch of training, from the store; evaluation and scoring keep one "
        "sample.",
    )
    batch_size: Integer = Field(
        256, ge=1, description="Targets in a training batch of one rank; of all ranks together with parallel: hybrid."
    )
    eval_batch_size: Integer | None = Field(
        None,
        ge=1,
        description="Targets in an evaluation batch; null means batch_size. Does not change results.",
    )

    @property
    def scoring_size(self) -> int:
        """Targets in an evaluation batch."""
        return self.eval_batch_size or self.batch_size

    @model_validator(mode="before")
    @classmethod
    def _set_source(cls, keys: Any) -> Any:
        return {"source": "store", **keys} if isinstance(keys, Mapping) and keys.get("parallel") == "hybrid" else keys

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if self.parallel == "hybrid" and self.source == "shards":
            raise problem(
                "shards is not allowed where train.parallel is hybrid: ranks read their partitions of the graph store",
                key="source",
                fix="Leave it out.",
            )
        if self.resample == "epoch" and self.source == "shards":
            raise problem(
                "epoch is not allowed where train.source is shards: GraphFlat wrote one sample",
                key="resample",
                fix="Set train.source to store, or leave it out.",
            )
        return self


class ClusterBatchConfig(BatchKeys):
    """Cluster-batch training on the graph store (Cluster-GCN, Chiang et al., KDD 2019; GraphTheta, section 4)."""

    strategy: Literal["cluster-batch"] = Field(
        "cluster-batch", description="A few clusters of the graph at a time, with their boundary."
    )
    clusters_per_batch: Integer = Field(
        1,
        ge=1,
        description="Clusters in a training batch of one rank, of all ranks together with parallel: hybrid; or a few "
        "more where their number does not divide: each cluster that has training targets comes once per epoch.",
    )
    boundary_hops: Literal[0, 1, 2] = Field(
        0, description="How far around its clusters a batch reaches; what lies beyond is left out."
    )
    eval_batch_size: Integer | None = Field(
        None,
        ge=1,
        description="Targets in an evaluation batch, which has all of their neighbourhoods; null takes a rank's part "
        "of a split at once. Does not change results.",
    )


FIXED_MEMORY: Mapping[str, int] = {"cpu": 32 * 2**20, "cuda": (64 + 6 * 16) * 2**20}
"""Bytes of `train.memory` that a device needs whatever the graph is.

cpu: threads, temporary tensors of some rows, libraries that load late, gaps between tensors. cuda: workspaces of
cuBLAS, gaps between tensors, and temporary tensors of a run of rows.
"""


class GlobalBatchConfig(TrainKeys):
    """Training on the whole graph at once, in as many parts as there are ranks (GraphTheta, section 4)."""

    strategy: Literal["global-batch"] = Field(
        "global-batch", description="The whole graph at once, a part of it on each rank."
    )
    accumulate: ClassVar[int] = 1
    recompute: bool = Field(
        default=False,
        description="Keep only each layer's input for the backward pass, and compute the layer again there: memory of "
        "one layer instead of all, for about a third more time. Same weights.",
    )
    folds: Integer = Field(
        4,
        ge=1,
        le=1000,
        description="Steps per epoch where edges are predicted (task.kind: link, or edge with messages: false): each "
        "scores its share of the training edges in the graph without them. With 1 no training edge carries messages.",
    )
    memory: Annotated[Size, Field(gt=0)] | None = Field(
        None,
        description="Most memory of train.device that training takes on each rank, such as 2GiB: its part of the "
        "graph, rows and gradients then lie in files of a local disk, and a few intervals of nodes in memory; for a "
        "graphics card, in the memory of the machine (docs/streamed.md). How the graph is cut follows from it, and so "
        "does the order of sums. null: the whole graph is in memory.",
    )
    scratch: str | None = Field(
        None,
        min_length=1,
        description="Folder of a local disk for the files of train.memory, which have no name and are gone when the "
        "process ends. null: the system's folder for temporary files (TMPDIR); for a graphics card, page-locked memory "
        "of the machine and no disk.",
    )

    @model_validator(mode="after")
    def _check_memory_keys(self) -> Self:
        if self.scratch is not None and self.memory is None:
            raise problem(
                "is not allowed without train.memory, whose files lie there",
                key="scratch",
                fix="Set train.memory, or leave it out.",
            )
        if self.recompute and self.memory is not None:
            raise problem(
                "true is not allowed where train.memory is set, whose backward pass computes each piece again anyway",
                key="recompute",
                fix="Leave it out.",
            )
        return self


def _tag(value: Any) -> str | None:
    """Return the tag of the union's member that reads a value; None for no mapping."""
    default = "mini-batch"
    found = value.get("strategy", default) if isinstance(value, Mapping) else getattr(value, "strategy", None)
    if found is None:
        return None
    return found if found in ("cluster-batch", "global-batch") and found in PIPELINES else default


TrainConfig = Annotated[
    Annotated[MiniBatchConfig, Tag("mini-batch")]
    | Annotated[ClusterBatchConfig, Tag("cluster-batch")]
    | Annotated[GlobalBatchConfig, Tag("global-batch")],
    Field(discriminator=Discriminator(_tag)),
]


_LATER: Mapping[str, object] = {
    "parallel": "data",
    "source": "shards",
    "resample": "never",
    "folds": 4,
    "memory": None,
    "scratch": None,
}
"""Keys that were added later, with the values that keep training as it was before."""


def result_keys(train: TrainConfig, *, exclude: AbstractSet[str]) -> dict[str, Any]:
    """Return the keys of the section as JSON without the excluded ones and without later keys at their old value.

    patience: the epochs that it stands for, so that another default is another result.
    """
    keys: dict[str, Any] = train.model_dump(mode="json", exclude=set(exclude)) | {"patience": train.patient_epochs}
    return {key: value for key, value in keys.items() if key not in _LATER or _LATER[key] != value}


def trains_from_shards(train: TrainConfig) -> bool:
    """Return whether training reads what GraphFlat writes."""
    return isinstance(train, MiniBatchConfig) and train.source == "shards"


def is_hybrid(train: TrainConfig) -> bool:
    """Return whether all ranks compute each batch together."""
    return isinstance(train, BatchKeys) and train.parallel == "hybrid"


def pipeline_of(train: TrainConfig) -> Pipeline:
    """Return the pipeline of a training section."""
    return HYBRID if is_hybrid(train) else PIPELINES[train.strategy]


def is_streamed(train: TrainConfig) -> bool:
    """Return whether training keeps a budget of memory, with the graph in files."""
    return isinstance(train, GlobalBatchConfig) and train.memory is not None


def rank_keys(train: TrainConfig) -> dict[str, Any]:
    """Return the keys about ranks that weights depend on; empty for one rank."""
    updater = train.updater.model_dump(mode="json")
    if not updater.get("stealing"):  # added later
        updater.pop("stealing", None)
    keys = {"workers": train.workers} if train.workers > 1 else {}
    return keys if train.updater.kind == "all_reduce" else {**keys, "updater": updater}


def needs_ranks(train: TrainConfig) -> bool:
    """Return whether training runs as ranks on the cluster's workers instead of in the stage's own process."""
    return bool(rank_keys(train))
