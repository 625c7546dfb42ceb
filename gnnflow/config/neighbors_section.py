"""The `neighbors` section: which neighbours a node aggregates, and how many of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gnnflow.config.base import Integer, Section

Fanout = Annotated[tuple[Annotated[Integer, Field(ge=1)], ...], Field(min_length=1)]
Fanouts = Fanout | Annotated[dict[str, Fanout], Field(min_length=1)]
_FANOUT = (
    "In-edges kept per node, one number per hop from the targets outward: [15, 10] keeps 15 of a target's and 10 of "
    "each of theirs. In a typed graph of each relation, or {source__relation__target: list} naming every one."
)


class NoSampling(Section):
    """Keep every in-edge."""

    kind: Literal["none"] = Field("none", description="Keep every in-edge.")


class UniformSampling(Section):
    """Keep a uniform sample without replacement. Sums over it are scaled by in-degree / edges kept."""

    kind: Literal["uniform"] = Field("uniform", description="Every in-edge is equally likely to be kept.")
    fanout: Fanouts = Field(description=_FANOUT)


class WeightedSampling(Section):
    """Keep a sample without replacement in proportion to edge weights; sums scale each edge by how likely it was."""

    kind: Literal["weighted"] = Field("weighted", description="Heavier in-edges are likelier to be kept.")
    fanout: Fanouts = Field(description=_FANOUT)


class TopKSampling(Section):
    """Keep the heaviest in-edges."""

    kind: Literal["top_k"] = Field(
        "top_k", description="The heaviest in-edges are kept and the others ignored: sums are not scaled."
    )
    fanout: Fanouts = Field(description=_FANOUT)


Sampling = Annotated[
    NoSampling | UniformSampling | WeightedSampling | TopKSampling,
    Field(discriminator="kind"),
]


class NeighborsConfig(Section):
    """The neighbours of each node. Other kinds than direct in-neighbours make this a union tagged by `kind`."""

    kind: Literal["direct"] = Field("direct", description="direct: the nodes with an edge to it.")
    sampling: Sampling = Field(NoSampling(), description="Which in-edges are kept.")
    hub_threshold: Integer = Field(
        10_000,
        ge=1,
        description="In-degree above which a node's edges are sampled by several reducers. Does not change results, "
        "and does nothing without sampling, where every in-edge is read.",
    )
