"""The `publish` and `guards` sections: what promotes a model, and what stops a run before it trains one.

Neither changes what a stage computes, so no fingerprint covers them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gnnflow.config.base import Number, Section
from gnnflow.graph.labels import Metric

ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class PublishConfig(Section):
    """How a model is registered and compared with the one in service."""

    name: ModelName | None = Field(None, description="Name in the registry; null means the config's name.")
    metric: Metric | None = Field(
        None,
        description="Metric on the test split, where a model must match or beat the champion; null: train.metric.",
    )
    incomparable: Literal["keep", "promote"] = Field(
        "keep",
        description="What happens where the champion cannot be scored on this graph: keep it in service, or promote.",
    )


class GuardsConfig(Section):
    """How far the tables may be from those of the last completed run; null turns a guard off."""

    rows: Annotated[Number, Field(gt=0)] | None = Field(
        0.5, description="Largest relative change of the number of nodes or of edges: 0.5 allows half to 1.5 times."
    )
    label_rate: Annotated[Number, Field(gt=0)] | None = Field(
        0.2, description="Largest relative change of the share of nodes with a label."
    )
    psi: Annotated[Number, Field(gt=0)] | None = Field(
        0.25, description="Largest population stability index of a feature column, or of the classes of labels."
    )
