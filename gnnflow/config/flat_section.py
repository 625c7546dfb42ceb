"""The `flat` section: how far GraphFlat reaches from each target, and how its shards are laid out."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from gnnflow.config.base import Integer, Section, problem


class FlatConfig(Section):
    """Neighbourhoods as GraphFeatures."""

    hops: Integer | None = Field(
        None,
        ge=1,
        le=16,
        description="How far neighbourhoods reach: at least model.layers, which is what null means. One GraphFlat "
        "serves models of every depth up to it.",
    )
    shard_size: Integer = Field(
        8192, ge=1, description="Most targets per shard; fewer where their neighbourhoods would take above 512 MiB."
    )
    layout: Literal["shared", "inline"] = Field(
        "shared",
        description="shared stores a node's features once per shard, inline once per target (as AGL does).",
    )
    targets: Literal["labelled", "all"] = Field(
        "labelled", description="Which nodes get a neighbourhood: those with a label and a split, or all."
    )

    @model_validator(mode="before")
    @classmethod
    def _keys_that_moved(cls, raw: Any) -> Any:
        for key in ("sampling", "hub_threshold"):
            if isinstance(raw, dict) and key in raw:
                raise problem(
                    f"neighbours are selected for all stages at once, so it is neighbors.{key} now",
                    key=key,
                    fix=f"Move it: `neighbors: {{{key}: ...}}`.",
                )
        return raw
