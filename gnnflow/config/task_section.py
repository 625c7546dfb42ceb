"""The `task` section: the targets that are labelled and scored.

A union tagged by `kind`. docs/decisions/0009-links.md says what it changes in each stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from gnnflow.config.base import Fraction, Integer, Number, Section, problem
from gnnflow.config.decide_section import DECIDE, AutoDecision, DecideConfig, positive_of
from gnnflow.graph.labels import LabelKind


class DotDecoder(Section):
    """The inner product of the two ends' embeddings."""

    kind: Literal["dot"] = Field("dot", description="The inner product of the two ends' embeddings.")


class DistMultDecoder(Section):
    """An inner product whose columns have learned weights."""

    kind: Literal["distmult"] = Field("distmult", description="An inner product with a learned weight per column.")


class MLPDecoder(Section):
    """A hidden layer over both ends."""

    kind: Literal["mlp"] = Field("mlp", description="A hidden layer over both ends: direction counts.")
    hidden: Integer = Field(64, ge=1, le=1_000_000, description="Width of the decoder's hidden layer.")


DecoderConfig = Annotated[DotDecoder | DistMultDecoder | MLPDecoder, Field(discriminator="kind")]
EdgeDecoderConfig = Annotated[DistMultDecoder | MLPDecoder, Field(discriminator="kind")]

_VALID = "Share of the edges that choose the best epoch."
_TEST = "Share of the edges that are scored at the end."
_CUT = (
    "Edges have times (graph.timestamp): each is scored from earlier edges alone, in every layer. kind: time always "
    "does so."
)


class _HeldOut(Section):
    """Shares for validation and test."""

    valid: Fraction
    test: Fraction

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if self.valid + self.test >= 1:
            raise problem(
                f"valid and test are {self.valid + self.test:g} of all, and none is left to train on",
                key="test",
                fix="Lower one of them.",
            )
        return self


class _Shares(_HeldOut):
    """Shares of the edges that are held out."""

    valid: Fraction = Field(0.05, description=_VALID)
    test: Fraction = Field(0.1, description=_TEST)


class RandomSplit(_Shares):
    """Splits by a hash of the edge's two ends: both directions of an edge are in one split."""

    kind: Literal["random"] = Field("random", description="By a hash of seed and ends; both directions go together.")
    earlier_only: bool = Field(default=False, description=_CUT)


class TimeSplit(_Shares):
    """The last edges by time are test, those before them valid, the others train."""

    kind: Literal["time"] = Field(
        "time",
        description="By graph.timestamp: the last edges are test, those before them valid. Each is scored from earlier "
        "edges alone. Edges of one time are in one split.",
    )

    @property
    def earlier_only(self) -> bool:
        """True: each edge is scored from earlier edges alone."""
        return True


class StratifiedSplit(_Shares):
    """Splits by the ranks of the ends' hashes within each class: exact shares, and every class in every split."""

    kind: Literal["stratified"] = Field(
        "stratified",
        description="By the ranks of hashes of seed and ends within each class: shares are exact, and a class of three "
        "edges or more between different ends is in every split. Both directions go together where their labels are "
        "equal. An edge may change its split when others come.",
    )
    earlier_only: bool = Field(default=False, description=_CUT)


class ColumnSplit(Section):
    """Splits from a column of the edge table."""

    kind: Literal["column"] = Field(
        "column",
        description="The edge table's column graph.split says train, valid or test; an edge with null carries messages "
        "and is not a target.",
    )
    earlier_only: bool = Field(default=False, description=_CUT)


class AutoSplit(Section):
    """Splits from a column where the edge table has one, else by time or random ones."""

    kind: Literal["auto"] = Field(
        "auto",
        description="column where the edge table has the column graph.split, or graph.split is set; else time, where "
        "graph.timestamp is set or its column holds dates or timestamps, and train.strategy can hide later edges; else "
        "random. A run records the kind that it took.",
    )
    earlier_only: bool = Field(default=False, description=_CUT)


class NoSplit(Section):
    """No split, for tables that a published model scores."""

    kind: Literal["none"] = Field(
        "none",
        description="No edge is held out: every edge carries messages and no column is read for splits or times. Only "
        "for scoring with a published model, which does so with any split; a model cannot be trained.",
    )

    @property
    def earlier_only(self) -> bool:
        """False: no edge is a target."""
        return False


SplitConfig = Annotated[
    AutoSplit | RandomSplit | StratifiedSplit | ColumnSplit | TimeSplit, Field(discriminator="kind")
]
LinkSplitConfig = Annotated[RandomSplit | ColumnSplit | TimeSplit | NoSplit, Field(discriminator="kind")]

_PER_EDGE = "Negative pairs for each edge of a training step."
_POOL = "Nodes in each shard that negatives are drawn from."
_EVALUATION = "Pairs that an edge of the valid or test split is ranked against, the same in every epoch."
_FILTERED = (
    "Whether an edge of valid or test is ranked against pairs that are no known edge only (filtered ranking). A "
    "process that scores then holds 8 bytes per edge of the sources that it scores."
)


class UniformNegatives(Section):
    """Every node is equally likely to be the false target of an edge."""

    kind: Literal["uniform"] = Field("uniform", description="Every node is equally likely.")
    per_edge: Integer = Field(1, ge=1, le=10_000, description=_PER_EDGE)
    pool: Integer = Field(1024, ge=2, le=1_000_000, description=_POOL)
    evaluation: Integer = Field(100, ge=1, le=100_000, description=_EVALUATION)
    filtered: bool = Field(default=False, description=_FILTERED)


class DegreeNegatives(Section):
    """Nodes with many in-edges are likelier: harder negatives."""

    kind: Literal["degree"] = Field("degree", description="By in-degree to a power; nodes without in-edges are left.")
    power: Number = Field(0.75, gt=0, le=10, description="Power of the in-degree (Mikolov et al., 2013).")
    per_edge: Integer = Field(1, ge=1, le=10_000, description=_PER_EDGE)
    pool: Integer = Field(1024, ge=2, le=1_000_000, description=_POOL)
    evaluation: Integer = Field(100, ge=1, le=100_000, description=_EVALUATION)
    filtered: bool = Field(default=False, description=_FILTERED)


class InBatchNegatives(Section):
    """The targets of other edges of the step, which need no further rows."""

    kind: Literal["in_batch"] = Field(
        "in_batch", description="Targets of the step's other edges; scoring draws from the pool, uniformly."
    )
    per_edge: Integer = Field(1, ge=1, le=10_000, description=_PER_EDGE)
    pool: Integer = Field(1024, ge=2, le=1_000_000, description=_POOL)
    evaluation: Integer = Field(100, ge=1, le=100_000, description=_EVALUATION)
    filtered: bool = Field(default=False, description=_FILTERED)


NegativesConfig = Annotated[UniformNegatives | DegreeNegatives | InBatchNegatives, Field(discriminator="kind")]


class NodeColumnSplit(Section):
    """Splits from a column of the node table."""

    kind: Literal["column"] = Field(
        "column",
        description="The node table's column graph.split says train, valid or test; a node with null is scored alone.",
    )


class _NodeShares(_HeldOut):
    """Shares of the labelled nodes that are held out."""

    valid: Fraction = Field(0.1, description="Share of the labelled nodes that choose the best epoch.")
    test: Fraction = Field(0.2, description="Share of the labelled nodes that are scored at the end.")


class NodeRandomSplit(_NodeShares):
    """Splits by a hash of the node's id, so that a node stays in its split when the tables grow."""

    kind: Literal["random"] = Field(
        "random",
        description="By a hash of seed and id: every labelled node is in a split, and stays there when others come.",
    )


class NodeStratifiedSplit(_NodeShares):
    """Splits by the ranks of hashes within each class: exact shares, and every class in every split."""

    kind: Literal["stratified"] = Field(
        "stratified",
        description="By the ranks of hashes within each class: shares are exact, and a class of three nodes or more is "
        "in every split. A node may change its split when others come.",
    )


class NodeTimeSplit(_NodeShares):
    """The last nodes by time are test, those before them valid, the others train."""

    kind: Literal["time"] = Field(
        "time",
        description="By a column of times: the last labelled nodes are test, those before them valid. Nodes of one "
        "time are in one split. Edges are not hidden by it.",
    )
    column: str = Field(
        min_length=1,
        description="Node table column with a node's time, as graph.timestamp has an edge's; nodes without a label "
        "need none.",
    )


class NodeAutoSplit(Section):
    """Splits from a column where the table has one, else random ones."""

    kind: Literal["auto"] = Field(
        "auto",
        description="column where the node table has the column graph.split, or graph.split is set; else random, with "
        "its default shares. A run records the kind that it took.",
    )


NodeSplitConfig = Annotated[
    NodeAutoSplit | NodeColumnSplit | NodeRandomSplit | NodeStratifiedSplit | NodeTimeSplit,
    Field(discriminator="kind"),
]


class NodeTask(Section):
    """Labels of nodes."""

    kind: Literal["node"] = Field("node", description="Labels of nodes are learned and scored.")
    split: NodeSplitConfig = Field(
        NodeAutoSplit(), description="Division of the labelled nodes into train, valid and test."
    )
    decide: DecideConfig = Field(AutoDecision(), description=DECIDE)


class LinkTask(Section):
    """Pairs of nodes that are edges."""

    kind: Literal["link"] = Field("link", description="Which pairs of nodes are edges is learned and scored.")
    decoder: DecoderConfig = Field(DotDecoder(), description="How a pair is scored from two embeddings.")
    width: Integer = Field(64, ge=1, le=1_000_000, description="Width of the embeddings that pairs are scored from.")
    split: LinkSplitConfig = Field(RandomSplit(), description="Division of the edges into train, valid and test.")
    negatives: NegativesConfig = Field(UniformNegatives(), description="How negative pairs are drawn.")
    messages: ClassVar[bool] = False
    """An edge never carries messages where it is scored, since its existence is the answer."""


class EdgeTask(Section):
    """Labels of edges."""

    kind: Literal["edge"] = Field("edge", description="Labels of edges (graph.label of the edge table) are learned.")
    decoder: EdgeDecoderConfig = Field(
        MLPDecoder(), description="How an edge is scored from two embeddings; mlp reads its attributes too."
    )
    width: Integer = Field(64, ge=1, le=1_000_000, description="Width of the embeddings that edges are scored from.")
    split: SplitConfig = Field(AutoSplit(), description="Division of the edges into train, valid and test.")
    messages: bool = Field(
        default=True,
        description="Whether an edge carries messages where it is scored. false: each edge is scored as if it were not "
        "in the graph yet, so edges of valid and test carry no messages, and an edge of train none for its own score.",
    )
    decide: DecideConfig = Field(AutoDecision(), description=DECIDE)


def _tag(value: Any) -> str | None:
    """Return the tag of the union's member that reads a value, by default `node`; None for no mapping."""
    return value.get("kind", "node") if isinstance(value, Mapping) else getattr(value, "kind", None)


TaskConfig = Annotated[
    Annotated[NodeTask, Tag("node")] | Annotated[LinkTask, Tag("link")] | Annotated[EdgeTask, Tag("edge")],
    Field(discriminator=Discriminator(_tag)),
]
PairTask = LinkTask | EdgeTask
"""The tasks whose targets are pairs of nodes."""


def decide_of(task: NodeTask | LinkTask | EdgeTask) -> DecideConfig:
    """Return the rule for decisions between classes; links have none."""
    return AutoDecision() if isinstance(task, LinkTask) else task.decide


def measured_class(task: NodeTask | LinkTask | EdgeTask, label_kind: LabelKind, names: Sequence[str]) -> int | None:
    """Return the class that areas under curves are of: the named one, or class 1 of two; None: the mean over classes.

    names: of all classes. Raises TrainingError where the task names another class.
    """
    return positive_of(decide_of(task), names) if label_kind == "single" else None
