"""The `train.schedule` section: how the learning rate changes while training goes on.

A union tagged by `kind`. Rates are shares of `train.lr`, times are epochs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gnnflow.config.base import Integer, Number, Section

_WARMUP = "Epochs in which the rate rises from near 0 to train.lr, in equal parts per update; 0.5 is half an epoch."


class ConstantSchedule(Section):
    """The same rate in every update."""

    kind: Literal["constant"] = Field("constant", description="train.lr in every update.")


class LinearSchedule(Section):
    """A rise to `train.lr`, then that."""

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
