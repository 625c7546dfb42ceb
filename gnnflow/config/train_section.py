"""The `train` section: the strategy and everything an optimiser needs.

The strategies are those of `gnnflow.config.pipelines`. One that has keys of its own is a member of the union
`TrainConfig` here; any other has those of mini-batch.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ByteSize, Discriminator, Field, Tag, model_validator

from gnnflow.config.base import Integer, Number, Section, Size, Uri, problem
from gnnflow.config.loss_section import LossConfig, StandardLoss
from gnnflow.config.pipelines import PIPELINES
from gnnflow.config.schedule_section import ConstantSchedule, CosineSchedule, LinearSchedule, ScheduleConfig
from gnnflow.config.updater_section import AllReduceConfig, UpdaterConfig
from gnnflow.graph.labels import Metric


def _one_if_null(threads: Any) -> Any:
    # Versions published while null meant "every core" still hold it.
    return 1 if threads is None else threads


def _known_strategy(strategy: str) -> str:
    if strategy not in PIPELINES:
        known = " or ".join(map(repr, PIPELINES))
        raise problem(f"is not allowed: must be {known}", fix="Choose one of these strategies.")
    return strategy


def _installed(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise problem(
                f"is not allowed here: {name} is not installed", fix=f"pip install 'gnnflow[{name}]', or leave it out."
            )
    return names


def _strategies(schema: dict[str, Any]) -> None:
    schema["enum"] = list(PIPELINES)


_PUBLISHED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:/([^/]+))?")


def published_name(start: str) -> tuple[str, str] | None:
    """Return name and version (a number or an alias) of a `train.start` that names a published model, else None."""
    found = _PUBLISHED.fullmatch(start)
    return None if found is None else (found[1], found[2] or "champion")


RANKS_PLACE_ONLY = frozenset({"elastic", "restarts", "start_seconds", "step_seconds"})
"""Keys that say what happens when ranks are lost or late, and nothing about the weights."""

Device = Literal["auto", "cpu", "cuda"]
Strategy = Annotated[str, AfterValidator(_known_strategy), Field(json_schema_extra=_strategies)]


class TrainKeys(Section):
    """What every strategy has."""

    tag: ClassVar[str] = "strategy"

    strategy: Strategy
    epochs: Integer = Field(100, ge=1, description="Most passes over the training targets.")
    lr: Number = Field(0.01, gt=0, description="Learning rate.")
    loss: LossConfig = Field(StandardLoss(), description="What training makes small.")
    schedule: ScheduleConfig = Field(
        ConstantSchedule(), description="How the learning rate changes while training goes on."
    )
    optimizer: Literal["adam", "adamw", "sgd"] = Field("adam", description="Optimiser.")
    weight_decay: Number = Field(0.0, ge=0, description="L2 penalty (adam, sgd) or decoupled decay (adamw).")
    clip_norm: Annotated[Number, Field(gt=0)] | None = Field(
        None, description="Largest norm of all gradients together; longer ones are scaled down to it. null: any."
    )
    device: Device = Field(
        "cpu",
        description="Where batches are computed: cpu; cuda, a graphics card; or auto, a card where torch sees one. "
        "Sums are rounded elsewhere on a card, so what it trains is another result, with a fingerprint of its own; "
        "auto has one fingerprint wherever it runs.",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="What a training step's forward pass computes in. bfloat16 saves memory, and time on "
        "processors that multiply in it (AVX-512 BF16, AMX, graphics cards); weights, optimiser and loss, scoring and "
        "GraphInfer stay float32.",
    )
    patience: Integer = Field(
        0,
        ge=0,
        description="Stop after this many epochs without a better validation metric; 0 never stops early.",
    )
    workers: Integer = Field(
        1,
        ge=1,
        le=1024,
        description="Ranks: training processes, each on a Dask worker of its own with its share of the targets. A step "
        "takes batch_size targets on each, so n ranks at batch_size B/n train as one does at B.",
    )
    updater: UpdaterConfig = Field(AllReduceConfig(), description="How the weights of several ranks stay one model.")
    elastic: bool = Field(
        default=False,
        description="Go on with the workers that are there, where they are fewer than `workers`: a rank then computes "
        "several shares of each step, and the result is the same to rounding.",
    )
    restarts: Integer = Field(
        5, ge=0, le=1000, description="How often lost ranks are started again from the last checkpoint."
    )
    start_seconds: Number = Field(
        120.0, gt=0, le=86400, description="Seconds within which all ranks must have begun; else the run stops."
    )
    step_seconds: Number = Field(
        1800.0,
        gt=0,
        le=604800,
        description="Seconds that a step, or scoring a split, may take on a rank of several; else the run stops.",
    )
    metric: Metric = Field(
        "accuracy",
        description="Validation metric that picks the best epoch: mae or rmse where labels are numbers, "
        "roc_auc_micro only where a node has several labels, mrr and hits_at_k of links (with roc_auc), loss for all, "
        "the others where labels are classes.",
    )
    checkpoint_steps: Integer = Field(
        0, ge=0, description="Steps between checkpoints; 0 writes one after an epoch, at most once per second."
    )
    cache: Size = Field(
        ByteSize(512 * 1024**2),
        description="Memory of the reader for decoded shards and finished batches, such as 512MiB; 0 decodes shards in "
        "every epoch. Four shards are held whatever it says, since their targets are shuffled together.",
    )
    log: Annotated[tuple[Literal["tensorboard", "mlflow"], ...], AfterValidator(_installed)] = Field(
        (),
        description="Where learning curves go as they come: tensorboard writes to <workspace>/logs, mlflow to the "
        "server that MLFLOW_TRACKING_URI names.",
    )
    class_weight: Literal["none", "balanced"] = Field(
        "none", description="balanced weighs each class by the inverse of how often it occurs."
    )
    start: Uri | None = Field(
        None,
        description="Start from the weights of another model of the same architecture: NAME, NAME/VERSION or "
        "NAME/ALIAS of a model published in this workspace (NAME alone is its champion), or the path or URL of a run "
        "or of a published version. A head of another width starts fresh. null starts from the seed.",
    )
    baseline: bool = Field(
        default=False,
        description="Also train the same classifier without edges, to show what the graph adds.",
    )
    threads: Annotated[Integer, Field(ge=1, le=1024), BeforeValidator(_one_if_null)] = Field(
        1,
        description="Threads that training computes with, whatever the environment says (OMP_NUM_THREADS). Another "
        "number sums in another order and gives other weights, so it is part of a run's fingerprint.",
    )

    @model_validator(mode="after")
    def _warm_up_ends(self) -> Self:
        schedule = self.schedule
        if isinstance(schedule, LinearSchedule | CosineSchedule) and schedule.warmup >= self.epochs:
            raise problem(
                f"{schedule.warmup:g} is not allowed: must be less than {self.epochs}, as train.epochs",
                key="schedule.warmup",
                fix="Lower it, or train for more epochs.",
            )
        return self


class BatchKeys(TrainKeys):
    """What strategies have that train on batch after batch."""

    accumulate: Integer = Field(
        1,
        ge=1,
        description="Batches per update of the weights: their gradients become the mean over all their targets, as of "
        "one batch that large, in the memory of one. An epoch's last update may have fewer.",
    )
    prefetch: Integer = Field(
        2, ge=0, le=64, description="Batches prepared ahead of the one in training; 0 prepares in turn."
    )

    @model_validator(mode="after")
    def _stolen_batches_are_updates_of_their_own(self) -> Self:
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
        description="What batches are cut from: shards, GraphFlat's, for graphs of any size; or store, the whole graph "
        "in the memory of each rank, without GraphFlat.",
    )
    resample: Literal["never", "epoch"] = Field(
        "never",
        description="epoch draws the sample of neighbors.sampling (uniform or weighted), or the walks of "
        "neighbors.kind: walks, anew for every epoch of training, from the store; evaluation and scoring keep those "
        "that are drawn once.",
    )
    batch_size: Integer = Field(256, ge=1, description="Targets in a training batch of one rank.")
    eval_batch_size: Integer | None = Field(
        None,
        ge=1,
        description="Targets in an evaluation batch; null means batch_size. Does not change results.",
    )

    @model_validator(mode="after")
    def _only_a_store_can_be_sampled_again(self) -> Self:
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
        description="Clusters in a training batch of one rank, or a few more where their number does not divide: each "
        "cluster that has training targets comes once per epoch.",
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


class GlobalBatchConfig(TrainKeys):
    """Training on the whole graph at once, in as many parts as there are ranks (GraphTheta, section 4)."""

    strategy: Literal["global-batch"] = Field(
        "global-batch", description="The whole graph at once, a part of it on each rank."
    )
    accumulate: ClassVar[int] = 1
    recompute: bool = Field(
        default=False,
        description="Keep each layer's input alone for the backward pass, and compute the layer again there: memory of "
        "one layer instead of all, for about a third more time. Same weights.",
    )
    folds: Integer = Field(
        4,
        ge=1,
        le=1000,
        description="Where edges are looked for (task.kind: link, or edge with messages: false), steps per epoch: each "
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
    def _scratch_is_for_a_budget(self) -> Self:
        if self.scratch is not None and self.memory is None:
            raise problem(
                "is not allowed without train.memory, whose files lie there",
                key="scratch",
                fix="Set train.memory, or leave it out.",
            )
        return self


def _tag(value: Any) -> str | None:
    """Return which member of the union reads a value; None for what is not a mapping."""
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


_LATER: Mapping[str, object] = {"source": "shards", "resample": "never", "folds": 4, "memory": None, "scratch": None}
"""Keys that came later, and the values with which training is what it was before."""


def result_keys(train: TrainConfig, *, exclude: AbstractSet[str]) -> dict[str, Any]:
    """Return the keys of the section as JSON without the excluded ones; what is as it always was goes unnamed."""
    keys: dict[str, Any] = train.model_dump(mode="json", exclude=set(exclude))
    return {key: value for key, value in keys.items() if key not in _LATER or _LATER[key] != value}


def trains_from_shards(train: TrainConfig) -> bool:
    """Return whether training reads what GraphFlat writes."""
    return isinstance(train, MiniBatchConfig) and train.source == "shards"


def is_streamed(train: TrainConfig) -> bool:
    """Return whether training keeps a budget of memory, with the graph in files."""
    return isinstance(train, GlobalBatchConfig) and train.memory is not None


def several_ranks(train: TrainConfig) -> dict[str, Any]:
    """Return the keys about ranks that weights depend on, where they are other than one rank's."""
    updater = train.updater.model_dump(mode="json")
    if not updater.get("stealing"):  # came later
        updater.pop("stealing", None)
    keys = {"workers": train.workers} if train.workers > 1 else {}
    return keys if train.updater.kind == "all_reduce" else {**keys, "updater": updater}


def needs_ranks(train: TrainConfig) -> bool:
    """Return whether training runs as ranks on the cluster's workers, and not in the stage's own process."""
    return bool(several_ranks(train))
