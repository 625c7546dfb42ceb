"""The `infer` section: what GraphInfer scores and how it proves that it scored the trained model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gnnflow.config.base import Integer, Section
from gnnflow.graph.splits import Split


class InferConfig(Section):
    """Layer-wise scoring of the whole graph or a part of it."""

    targets: Literal["all"] | Annotated[tuple[Split, ...], Field(min_length=1)] = Field(
        "all", description="all, or a list of splits such as [test]; fewer targets prune the rounds."
    )
    embeddings: bool = Field(default=False, description="Also write the last layer's embedding of each target.")
    parity_samples: Integer = Field(
        256,
        ge=0,
        description="Targets scored again by the k-hop path, over the same neighbours; above 1e-4 the run is refused. "
        "0 compares nothing, and such a run cannot be published.",
    )
    device: Literal["same", "auto", "cpu", "cuda"] = Field(
        "same",
        description="Where slices are computed: same is what train.device says; the others are as there. The "
        "certificate scores its targets on the CPU, whatever computed the predictions.",
    )
    sampling: Literal["same", "none"] = Field(
        "same",
        description="same uses the neighbours training saw; none uses every in-edge, in both paths of the certificate.",
    )
