"""The keys of the `train` section that every strategy has, with its losses, schedules and updaters.

The losses that go with each kind of labels are in `gnnflow.graph.labels`. A schedule's rates are shares of `train.lr`,
its times are epochs. `docs/training.md` compares the updaters.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from gnnflow.config.base import OWN_SPELLING, Integer, Number, Section, Uri, problem, tag_of
from gnnflow.config.pipelines import PIPELINES
from gnnflow.graph.labels import Metric

OWN_LOSS = "package.module:function"


class StandardLoss(Section):
    """The usual loss of the labels' kind."""

    kind: Literal["standard"] = Field(
        "standard",
        description="Cross entropy where a label is one class, binary cross entropy for several, squared error for a "
        "number.",
    )


class FocalLoss(Section):
    """Cross entropy that lowers the weight of confident targets (Lin et al., ICCV 2017, equation 4)."""

    kind: Literal["focal"] = Field(
        "focal",
        description="Cross entropy times (1 - p)^gamma, p being the truth's probability: for rare classes.",
    )
    gamma: Number = Field(2.0, ge=0, le=100, description="How fast sure targets lose their weight; 0: cross entropy.")


class HuberLoss(Section):
    """Squared error, linear for large errors."""

    kind: Literal["huber"] = Field(
        "huber", description="Half the squared error up to delta, linear beyond: outliers pull less."
    )
    delta: Annotated[Number, Field(gt=0)] = Field(
        1.0, description="Error from which on the loss is linear, in standard deviations of the training labels."
    )


class OwnLoss(Section):
    """A user's own loss function."""

    kind: str = Field(
        pattern=f"^{OWN_SPELLING.pattern}$",
        examples=[OWN_LOSS],
        description=f"A function of your own, written as {OWN_LOSS}: (logits, labels, weight) -> mean loss.",
    )
    options: dict[str, Any] = Field({}, description="Keyword arguments for the function.")


def _tag(value: Any) -> str | None:
    """Return the tag of the union's member that reads a value; None where it names no kind."""
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return None if kind is None else tag_of(kind, own=OWN_LOSS)


LossConfig = Annotated[
    Annotated[StandardLoss, Tag("standard")]
    | Annotated[FocalLoss, Tag("focal")]
    | Annotated[HuberLoss, Tag("huber")]
    | Annotated[OwnLoss, Tag(OWN_LOSS)],
    Field(discriminator=Discriminator(_tag)),
]


_WARMUP = "Epochs in which the rate rises from near 0 to train.lr, in equal parts per update; 0.5 is half an epoch."


class ConstantSchedule(Section):
    """The same rate in every update."""

    kind: Literal["constant"] = Field("constant", description="train.lr in every update.")


class LinearSchedule(Section):
    """A rise to `train.lr`, which then stays."""

    kind: Literal["linear"] = Field("linear", description="A linear warm-up to train.lr, which then stays.")
    warmup: Number = Field(1.0, ge=0, description=_WARMUP)


class CosineSchedule(Section):
    """A rise to `train.lr`, then half a cosine down to its floor."""

    kind: Literal["cosine"] = Field(
        "cosine", description="A linear warm-up to train.lr, then half a cosine down to the floor in the last epoch."
    )
    warmup: Number = Field(0.0, ge=0, description=_WARMUP)
    floor: Number = Field(0.0, ge=0, le=1, description="Where the cosine ends, as a share of train.lr.")


class PlateauSchedule(Section):
    """A lower rate each time the validation metric stops getting better."""

    kind: Literal["plateau"] = Field(
        "plateau", description="A lower rate each time train.metric stops getting better on the valid split."
    )
    factor: Annotated[Number, Field(gt=0, lt=1)] = Field(0.5, description="What the rate is multiplied by.")
    patience: Integer = Field(
        10, ge=1, description="Epochs without a better validation metric before the rate falls, and falls again."
    )
    floor: Number = Field(0.0, ge=0, le=1, description="Share of train.lr below which the rate does not fall.")


ScheduleConfig = Annotated[
    ConstantSchedule | LinearSchedule | CosineSchedule | PlateauSchedule, Field(discriminator="kind")
]


class AllReduceConfig(Section):
    """Every rank holds the weights; gradients are averaged over all ranks at each step."""

    kind: Literal["all_reduce"] = Field(
        "all_reduce",
        description="Every rank holds the weights and steps with the mean gradient of all ranks. One rank exchanges "
        "nothing.",
    )


class ParameterServerConfig(Section):
    """Servers hold the weights and the optimiser; ranks send gradients and fetch weights (AGL, section 3.3)."""

    kind: Literal["parameter_server"] = Field(
        "parameter_server",
        description="Servers on the cluster's workers hold the weights and the optimiser; ranks send gradients to them "
        "and fetch weights.",
    )
    servers: Integer = Field(1, ge=1, le=64, description="Servers that share the parameters between them.")
    mode: Literal["synchronous", "bounded", "asynchronous"] = Field(
        "synchronous",
        description="synchronous steps once with the gradients of all ranks; asynchronous with each as it comes; "
        "bounded likewise, while no rank is more than `staleness` steps ahead of another.",
    )
    staleness: Integer = Field(2, ge=0, le=10_000, description="Steps that a rank may be ahead, in mode bounded.")
    stealing: bool = Field(
        default=False,
        description="Ranks take the batches of an epoch from one queue, so that a fast rank computes batches of a slow "
        "one. Not in mode synchronous. In mode bounded, staleness then counts updates of the weights, as many as "
        "there are ranks for 1: a rank waits for any batch whose weights are older than that.",
    )

    @model_validator(mode="after")
    def _check_stealing(self) -> Self:
        if self.stealing and self.mode == "synchronous":
            raise problem(
                "true is not allowed where train.updater.mode is synchronous: every rank takes part in every step",
                key="stealing",
                fix="Set mode to bounded or asynchronous, or leave it out.",
            )
        return self


UpdaterConfig = Annotated[AllReduceConfig | ParameterServerConfig, Field(discriminator="kind")]


def _replace_null(threads: Any) -> Any:
    # Versions published while null meant "every core" still say null.
    return 1 if threads is None else threads


def _check_strategy(strategy: str) -> str:
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


def _list_strategies(schema: dict[str, Any]) -> None:
    schema["enum"] = list(PIPELINES)


RANKS_PLACE_ONLY = frozenset({"elastic", "restarts", "start_seconds", "step_seconds"})
"""Keys about lost or late ranks, which do not change the weights."""

PATIENCE = 20
"""Epochs that `train.patience: null` stands for."""
Device = Literal["auto", "cpu", "cuda"]
Baseline = Literal["majority", "trees", "neighbor_trees", "popularity", "most_recent", "item_knn"]
BASELINES: Mapping[str, tuple[Baseline, ...]] = {
    "node": ("majority", "trees", "neighbor_trees"),
    "link": ("popularity", "most_recent", "item_knn"),
    "edge": ("majority", "trees"),
}
"""The baselines of each kind of task."""
Strategy = Annotated[str, AfterValidator(_check_strategy), Field(json_schema_extra=_list_strategies)]


class TrainKeys(Section):
    """The keys that every strategy has."""

    tag: ClassVar[str] = "strategy"

    strategy: Strategy
    epochs: Integer = Field(
        100, ge=1, description="Most passes over the training targets; train.patience may stop sooner."
    )
    lr: Number = Field(0.01, gt=0, description="Learning rate.")
    loss: LossConfig = Field(StandardLoss(), description="The function that training minimises.")
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
        "A card rounds sums in another order, so its result differs and has another fingerprint; auto has one "
        "fingerprint wherever it runs.",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="The number format of a training step's forward pass. bfloat16 saves memory, and time on "
        "processors that multiply in it (AVX-512 BF16, AMX, graphics cards); weights, optimiser and loss, scoring and "
        "GraphInfer stay float32.",
    )
    patience: Integer | None = Field(
        None,
        ge=0,
        description="Stop after this many epochs without a better validation metric, or as good a one with a lower "
        f"validation loss; 0 never stops early. null: {PATIENCE}, where the valid split has targets. The best epoch's "
        "weights are kept.",
    )
    workers: Integer = Field(
        1,
        ge=1,
        le=1024,
        description="Ranks: training processes, each on its own Dask worker with its share of the targets. A step "
        "takes batch_size targets on each, so n ranks at batch_size B/n take steps as large as one does at B; with "
        "parallel: hybrid ranks share them.",
    )
    updater: UpdaterConfig = Field(AllReduceConfig(), description="How the weights of several ranks stay one model.")
    elastic: bool = Field(
        default=False,
        description="Continue with fewer workers than `workers` where some are missing: a rank then computes several "
        "shares of each step, and the result is the same to rounding.",
    )
    restarts: Integer = Field(
        5, ge=0, le=1000, description="How often lost ranks are started again from the last checkpoint."
    )
    start_seconds: Number = Field(
        120.0,
        gt=0,
        le=86400,
        description="Seconds within which ranks must have begun once they are told to; else the run stops.",
    )
    step_seconds: Number = Field(
        1800.0,
        gt=0,
        le=604800,
        description="Seconds that a step, or scoring a split, may take on a rank of several; else the run stops.",
    )
    metric: Literal["auto", Metric] = Field(
        "auto",
        description="Validation metric that picks the best epoch. auto: average_precision where a class is rare (of "
        "two under 20 % of the labels) or named by task.decide, else accuracy; micro_f1 where a node has several "
        "labels, mae of numbers, mrr of links. mae and rmse are for numbers, roc_auc_micro for several labels, brier "
        "for one, mrr and hits_at_k for links (with roc_auc), loss for all, the others where labels are classes.",
    )
    checkpoint_steps: Integer = Field(
        0, ge=0, description="Steps between checkpoints; 0 writes one after an epoch, at most once per second."
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
    baselines: Literal["none", "all"] | tuple[Baseline, ...] = Field(
        "none",
        description="What the score is compared with, made by a stage of its own (docs/baselines.md): all that fit the "
        "task, none, or a list. Of nodes: majority, trees (gradient-boosted, on the columns), neighbor_trees (also on "
        "the averages of the in-neighbours' columns). Of labels of edges: majority, trees (on the columns of edge and "
        "ends). Of links: popularity, most_recent, item_knn. Other ones here do not train the model again.",
    )
    threads: Annotated[Integer, Field(ge=1, le=1024), BeforeValidator(_replace_null)] = Field(
        1,
        description="Threads that training computes with, whatever the environment says (OMP_NUM_THREADS). Another "
        "number sums in another order and gives other weights, so it is part of a run's fingerprint.",
    )

    @property
    def patient_epochs(self) -> int:
        """Epochs without a better one after which training stops; 0 for never."""
        return PATIENCE if self.patience is None else self.patience

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        schedule = self.schedule
        if isinstance(schedule, LinearSchedule | CosineSchedule) and schedule.warmup >= self.epochs:
            raise problem(
                f"{schedule.warmup:g} is not allowed: must be less than {self.epochs}, as train.epochs",
                key="schedule.warmup",
                fix="Lower it, or train for more epochs.",
            )
        return self
