"""The `train.updater` section: how the weights of several ranks stay one model.

`docs/training.md` says when to use which.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gnnflow.config.base import Integer, Section, problem


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
        description="Ranks take the batches of an epoch from one queue: one that is ahead takes those of the one that "
        "is behind. Not in mode synchronous. In mode bounded, staleness then counts updates of the weights, as many as "
        "there are ranks for 1: a rank waits while a batch is under way that read weights older than that.",
    )

    @model_validator(mode="after")
    def _stolen_only_where_nobody_waits(self) -> Self:
        if self.stealing and self.mode == "synchronous":
            raise problem(
                "true is not allowed where train.updater.mode is synchronous: every rank takes part in every step",
                key="stealing",
                fix="Set mode to bounded or asynchronous, or leave it out.",
            )
        return self


UpdaterConfig = Annotated[AllReduceConfig | ParameterServerConfig, Field(discriminator="kind")]
