"""The `neighbors` section: the neighbours that a node aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, SerializerFunctionWrapHandler, Tag, model_serializer

from gnnflow.config.base import OWN_SPELLING, Column, Integer, Section, tag_of
from gnnflow.graph.schema import GraphSchema, Relation

Fanout = Annotated[tuple[Annotated[Integer, Field(ge=1)], ...], Field(min_length=1)]
Fanouts = Fanout | Annotated[dict[str, Fanout], Field(min_length=1)]
_FANOUT = (
    "In-edges kept per node, one number per hop from the targets outward: [15, 10] keeps 15 of a target's and 10 of "
    "each of theirs. In a typed graph one list holds for each relation; {source__relation__target: list} gives each "
    "relation its own, and names every one."
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


DEFAULT_KIND = "direct"
OWN_KIND = "package.module:function"


def _target_types(schema: GraphSchema) -> list[str]:
    """Return the types that are the target of some relation, by name."""
    return sorted({each.target for each in schema.relations})


def _same_type(schema: GraphSchema, name: str) -> dict[Relation, int]:
    """Return a relation of one leaf from each type to itself, for the target types of relations."""
    return {Relation(each, name, each): 1 for each in _target_types(schema)}


class _Selected(Section):
    """Neighbours other than direct ones: all selected neighbours are aggregated, none is sampled again.

    Each kind's `relations(schema)` names the relations that replace the graph's own, and the number of leaves of an
    instance of each.
    """

    @property
    def sampling(self) -> NoSampling:
        """No sampling."""
        return NoSampling()


class DirectNeighbors(Section):
    """The nodes with an edge to it."""

    kind: Literal["direct"] = Field("direct", description="The nodes with an edge to it.")
    sampling: Sampling = Field(NoSampling(), description="Which in-edges are kept.")
    hub_threshold: Integer = Field(
        10_000,
        ge=1,
        description="In-degree above which several tasks share a node's edges: where they are sampled, which changes "
        "no result, and where GraphInfer adds up every in-edge, which changes last bits.",
    )

    def relations(self, schema: GraphSchema) -> dict[Relation, int]:
        """Return the graph's own relations, each edge from one node."""
        return dict.fromkeys(schema.relations, 1)


def relation_of(path: tuple[str, ...]) -> Relation:
    """Return the relation of the paths along a list of node types."""
    return Relation(path[-1], "-".join(path), path[0])


class WalkNeighbors(_Selected):
    """The nodes that random walks from a node visit most."""

    kind: Literal["walks"] = Field(
        "walks",
        description="The nodes of its type that random walks along in-edges visit most, weighted by their share of "
        "the visits (PinSage).",
    )
    walks: Integer = Field(10, ge=1, le=1000, description="Walks from each node.")
    length: Integer = Field(
        3, ge=1, le=100, description="Steps of a walk; one that reaches a node without in-edges ends."
    )
    top_k: Integer = Field(10, ge=1, le=1000, description="Nodes kept of each node, the most visited.")
    by: Literal["uniform", "weight"] = Field(
        "uniform",
        description="How a step chooses among the in-edges of the current node: uniformly, or by their weights; an "
        "edge of a relation without weights weighs 1.",
    )

    @model_serializer(mode="wrap")
    def _omit_later_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A key that was added later: at its default it does not change earlier fingerprints.
        values: dict[str, Any] = handler(self)
        return {key: value for key, value in values.items() if key != "by" or value != "uniform"}

    def relations(self, schema: GraphSchema) -> dict[Relation, int]:
        """Return a relation from each type to itself, for the target types of relations."""
        return _same_type(schema, self.kind)


class MetapathNeighbors(_Selected):
    """The paths to a node that follow a list of node types."""

    kind: Literal["metapaths"] = Field(
        "metapaths",
        description="The paths that lead to it along lists of node types; a relation for each list (MAGNN).",
    )
    paths: tuple[Annotated[tuple[Column, ...], Field(min_length=2, max_length=8)], ...] = Field(
        min_length=1,
        description="Lists of node types, each from the node outward: [movie, director, movie] gives a movie the "
        "movies of its directors, with the director between them.",
    )
    max_instances: Integer = Field(
        100, ge=1, le=100_000, description="Paths kept of each node and list, chosen evenly; each step keeps as many."
    )

    def relations(self, _: GraphSchema) -> dict[Relation, int]:
        """Return a relation per list; leaves are all nodes of a path but the first."""
        return {relation_of(path): len(path) - 1 for path in self.paths}


class AnchorNeighbors(_Selected):
    """The nearest members of random sets of nodes."""

    kind: Literal["anchors"] = Field(
        "anchors", description="The nearest member of each of many random sets of nodes, the anchor sets (P-GNN)."
    )
    copies: Integer = Field(
        1, ge=1, le=64, description="Anchor sets of each size; sizes are a half, a quarter and so on of all nodes."
    )
    distance: Integer = Field(3, ge=1, le=64, description="How many hops away a member may be.")

    def relations(self, schema: GraphSchema) -> dict[Relation, int]:
        """Return a relation from each type to itself, for the target types of relations."""
        return _same_type(schema, self.kind)


class RingNeighbors(_Selected):
    """The nodes at each distance."""

    kind: Literal["rings"] = Field(
        "rings", description="The nodes at each distance, a relation per distance (JK-Net as FlexGraph has it)."
    )
    distance: Integer = Field(2, ge=1, le=16, description="The largest distance in hops.")
    max_nodes: Integer = Field(
        1000, ge=1, le=100_000, description="Nodes kept of each node and distance, chosen evenly."
    )

    def relations(self, schema: GraphSchema) -> dict[Relation, int]:
        """Return a relation per distance, of each type to each that so many steps back may reach."""
        found: dict[Relation, int] = {}
        for root in _target_types(schema):
            ends = {root}
            for ring in range(1, self.distance + 1):
                ends = {each.source for each in schema.relations if each.target in ends}
                found |= {Relation(end, f"ring{ring}", root): 1 for end in ends}
        return found


class OwnNeighbors(_Selected):
    """Neighbours that a user's own function selects."""

    kind: str = Field(
        pattern=f"^{OWN_SPELLING.pattern}$",
        examples=[OWN_KIND],
        description=f"A function of your own, written as {OWN_KIND}: docs/neighbors.md.",
    )
    options: dict[str, Any] = Field({}, description="Keyword arguments for the function.")

    def relations(self, _: GraphSchema) -> None:
        """Return None: the relations are known after the function has run."""


def _tag(value: Any) -> str | None:
    """Return the tag of the union's member that reads a value; None for no mapping."""
    kind = value.get("kind", DEFAULT_KIND) if isinstance(value, Mapping) else getattr(value, "kind", None)
    return None if kind is None else tag_of(kind, own=OWN_KIND)


NeighborsConfig = Annotated[
    Annotated[DirectNeighbors, Tag("direct")]
    | Annotated[WalkNeighbors, Tag("walks")]
    | Annotated[MetapathNeighbors, Tag("metapaths")]
    | Annotated[AnchorNeighbors, Tag("anchors")]
    | Annotated[RingNeighbors, Tag("rings")]
    | Annotated[OwnNeighbors, Tag(OWN_KIND)],
    Field(discriminator=Discriminator(_tag)),
]
