"""The `flat` section: how far GraphFlat reaches from each target and what it keeps on the way."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gnnflow.config.base import Integer, Section

Fanout = Annotated[tuple[Annotated[Integer, Field(ge=1)], ...], Field(min_length=1)]
_FANOUT = "In-edges kept per node, one number per hop: [15, 10] keeps 15 of a target's and 10 of each of theirs."


class NoSampling(Section):
    """Keep every in-edge."""

    kind: Literal["none"] = Field("none", description="Keep every in-edge.")


class UniformSampling(Section):
    """Keep a uniform sample without replacement."""

    kind: Literal["uniform"] = Field("uniform", description="Every in-edge is equally likely to be kept.")
    fanout: Fanout = Field(description=_FANOUT)


class WeightedSampling(Section):
    """Keep a sample without replacement in proportion to edge weights."""

    kind: Literal["weighted"] = Field("weighted", description="Heavier in-edges are likelier to be kept.")
    fanout: Fanout = Field(description=_FANOUT)


class TopKSampling(Section):
    """Keep the heaviest in-edges."""

    kind: Literal["top_k"] = Field("top_k", description="The heaviest in-edges are kept.")
    fanout: Fanout = Field(description=_FANOUT)


Sampling = Annotated[
    NoSampling | UniformSampling | WeightedSampling | TopKSampling,
    Field(discriminator="kind"),
]


class FlatConfig(Section):
    """Neighbourhoods as GraphFeatures."""

    hops: Integer | None = Field(
        None, ge=1, le=16, description="How far neighbourhoods reach; null means model.layers."
    )
    sampling: Sampling = Field(NoSampling(), description="Which in-edges are kept.")
    hub_threshold: Integer = Field(
        10_000, ge=1, description="In-degree above which a node's edges are split over several reducers."
    )
    shard_size: Integer = Field(8192, ge=1, description="Targets per shard.")
    layout: Literal["shared", "inline"] = Field(
        "shared",
        description="shared stores a node's features once per shard, inline once per target (as AGL does).",
    )
    targets: Literal["labelled", "all"] = Field(
        "labelled", description="Which nodes get a neighbourhood: those with a label and a split, or all."
    )
