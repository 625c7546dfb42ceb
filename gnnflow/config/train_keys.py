"""The keys of the `train` section that every strategy has: everything an optimiser, a checkpoint and ranks need."""

from __future__ import annotations

import importlib.util
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gnnflow.config.base import Integer, Number, Section, Uri, problem
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
        description="Stop after this many epochs without a better validation metric, or as good a one with a lower "
        "validation loss; 0 never stops early.",
    )
    workers: Integer = Field(
        1,
        ge=1,
        le=1024,
        description="Ranks: training processes, each on a Dask worker of its own with its share of the targets. A step "
        "takes batch_size targets on each, so n ranks at batch_size B/n take steps as large as one does at B; under "
        "parallel: hybrid ranks share them.",
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
    metric: Metric = Field(
        "accuracy",
        description="Validation metric that picks the best epoch: mae or rmse where labels are numbers, "
        "roc_auc_micro only where a node has several labels, mrr and hits_at_k of links (with roc_auc), loss for all, "
        "the others where labels are classes.",
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
