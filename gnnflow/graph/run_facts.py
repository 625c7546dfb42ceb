"""The facts of training and scoring: frozen values that are JSON in their manifests.

Facts of earlier stages are in `gnnflow.graph.facts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from gnnflow.graph.score_facts import ColumnFacts, ScoreFacts

Figures = dict[str, int | float]
Compared = Literal["like training", "all edges", "nothing"]

READER_PARTS = ("read", "decode", "build", "sums")
"""Parts of a training reader's work: reading and verifying files, decoding, building blocks, first-layer sums."""
TRAINER_PARTS = ("wait", "forward", "backward", "exchange", "update")
"""Parts of the trainer's work: waiting for a batch, then its step. exchange: with other ranks, including waits."""
STAGE_PARTS = ("transform", "gather_sum", "mirrors", "reduce", "apply")
"""Stages of a global-batch step's layers (NN-TGAR, GraphTheta): parts of the forward and the backward pass.

mirrors: waiting for rows and gradients of other ranks; reduce: merging states, joining relations.
"""
READER_WAIT = "reader_wait"
"""The idle time of the reader: enough batches, or all batches of the epoch, are ready."""


def has_reader(profile: Mapping[str, float]) -> bool:
    """Return whether a reader prepared batches during training; not where all batches are kept."""
    return any(profile.get(f"{part}_seconds", 0.0) > 0 for part in READER_PARTS)


def has_stages(profile: Mapping[str, float]) -> bool:
    """Return whether a profile has the stages of layers, which ranks compute together."""
    return f"{STAGE_PARTS[0]}_seconds" in profile


@dataclass(frozen=True)
class RankAttempt:
    """One attempt of ranks to train together. lost: the rank that was lost and how; empty where none was."""

    ranks: int
    lost: str = ""


HIDE_EVENTS = (
    "If such a node is made together with the edge (an order of the purchase), it reveals the answer, and the figures "
    "are worthless. Give its edge tables graph.timestamp (the edge's own, where such a node has none) and set "
    "task.split.earlier_only: true, which hides later nodes and edges; or leave these tables out of graph.edges."
)
"""The fix where events reveal links."""


@dataclass(frozen=True)
class LinkFacts:
    """A comparison of held-out links with the pairs that they are ranked among.

    split, links: the split and the number of compared links. candidates: the number of pairs for each link, drawn from
    `nodes` nodes. share: the expected share of candidates that are edges; filtered: these are left out. events: for
    each node type that reveals links, the share of links and of random pairs that one of its nodes joins.
    """

    split: str
    links: int
    candidates: int
    nodes: int
    share: float
    filtered: bool
    events: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def events_text(self) -> str:
        """The types that reveal links, as a sentence without a full stop; empty where there are none."""
        return "; ".join(
            f"a node of type {name} joins both ends of {links:.1%} of the {self.split} edges and of {chance:.1%} of "
            "random pairs"
            for name, (links, chance) in self.events.items()
        )

    @property
    def text(self) -> str:
        """The candidates, as half a sentence."""
        left_out = ", which are left out" if self.filtered else ""
        text = f"{self.share:.1%} of the pairs that {self.split} edges are ranked among are edges too{left_out}"
        if self.are_repeated:
            text += f", and {self.candidates:,} candidates are drawn from {self.nodes:,} nodes, so many are repeated"
        return text

    @property
    def are_repeated(self) -> bool:
        """True where there are fewer nodes than candidates."""
        return self.nodes < self.candidates


@dataclass(frozen=True)
class Decision:
    """The rule that makes decisions of probabilities, chosen on the valid split.

    rule: how it was chosen, in words. positive: the class that targets are decided for or against; None where one of
    more than two classes is decided for each target.
    threshold: the lowest probability of `positive` that is decided for, a float32 number between two probabilities of
    valid; None where there is none, and `why` says so, and where classes are decided.
    costs [C][C]: of deciding a class (column) for a target of another (row); the class of least expected cost is
    decided, without costs the likeliest. scale, offsets [C]: what makes the model's probabilities fit valid before
    costs are expected, see `class_decisions.decided_classes`.
    """

    rule: str
    threshold: float | None
    why: str = ""
    positive: int | None = 1
    costs: tuple[tuple[float, ...], ...] = ()
    scale: float = 1.0
    offsets: tuple[float, ...] = ()

    @staticmethod
    def read(held: Mapping[str, Any]) -> Decision:
        """Return a decision from a document of JSON."""
        lists = {
            "costs": tuple(map(tuple, held.get("costs", ()))),
            "offsets": tuple(held.get("offsets", ())),
        }
        return Decision(**{**held, **lists})

    def as_document(self) -> dict[str, Any]:
        """Return plain values, without the later fields where they say nothing: older models have the same bytes."""
        early = {"rule": self.rule, "threshold": self.threshold, "why": self.why}
        later = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in early}
        usual = Decision("", None)
        return early | {name: value for name, value in later.items() if value != getattr(usual, name)}

    def tell(self, positive: str = "1") -> str:
        """Return the decision as a sentence without a full stop. positive: the name of its class."""
        if self.positive is None:
            if not self.costs:
                return "the likeliest class is decided"
            how = self.why or "by probabilities that are fitted to valid"
            return f"the class of least expected cost is decided, {how}"
        if self.threshold is None:
            return f"no threshold: {self.why}"
        return (
            f"class {positive} is decided from a probability of {self.threshold:.4g} on, "
            f"chosen on valid for {self.rule}"
        )


@dataclass(frozen=True)
class TrainFacts:
    """The course of training: metrics, one row of figures per epoch, and confusion counts by split.

    Epochs count from 1. attempts: of several ranks, in order; empty where training was one process. profiles: for each
    rank, the seconds per epoch of each part of its work (`<part>_seconds`), without the first epoch. device: the name
    of the card; empty for the CPU. constant: as half a sentence, the one prediction for every target of the last split,
    where their labels differ; otherwise empty. metric: the one that chose the best epoch, also where
    `train.metric` is auto; empty in older manifests. metric_class: the class that `task.decide` names, which areas
    under curves are of; empty where they are of class 1, or means over classes. decision: how classes are decided,
    where targets have one each. scores: of the last split; None in older manifests. losses: of train and valid with the
    weights that are kept, both without dropout; train_loss in the history is with it. Empty in older manifests.
    """

    metrics: Figures
    best_epoch: int
    history: tuple[Figures, ...]
    confusion: dict[str, list[list[int]] | list[list[list[int]]]]
    attempts: tuple[RankAttempt, ...] = ()
    profiles: tuple[Figures, ...] = ()
    device: str = ""
    constant: str = ""
    link_facts: LinkFacts | None = None
    metric: str = ""
    metric_class: str = ""
    decision: Decision | None = None
    scores: ScoreFacts | None = None
    losses: Figures = field(default_factory=dict)


@dataclass(frozen=True)
class BaselineFacts:
    """The scores of the baselines, as `<baseline>.<split>.<metric>`, on the model's targets or some of them.

    train_rows: training rows that trees learned from; for links, edges that were counted. scored: the scored targets of
    each split. left_out: by baseline, why it has no score. candidates: the pairs that each held-out link is ranked
    among, itself included; 0 where nodes are scored.
    """

    metrics: Figures
    train_rows: int
    scored: dict[str, int]
    left_out: dict[str, str] = field(default_factory=dict)
    candidates: int = 0


@dataclass(frozen=True)
class Parity:
    """The parity certificate: random targets scored again by the k-hop path, and the largest difference.

    compared: the neighbours of both paths. `like training`: training's neighbours, its sample or every in-edge;
    `all edges`: every in-edge, where training used a sample; `nothing`: no target was scored again, and max_difference
    is None.
    """

    samples: int
    max_difference: float | None
    limit: float
    compared: Compared

    @property
    def holds(self) -> bool | None:
        """True where scores agree; None where no target was scored again."""
        return None if self.max_difference is None else self.max_difference <= self.limit  # NaN does not

    @property
    def text(self) -> str:
        """The outcome of the comparison, as a sentence."""
        if self.max_difference is None:
            return "no target was scored again by the k-hop path"
        sampled = self.compared != "like training"
        over = "all edges, where training used a sample" if sampled else "the neighbours used in training"
        return (
            f"{self.samples:,} random targets were scored again from {over}: "
            f"scores differ by at most {self.max_difference:.1e}, and {self.limit:.0e} is allowed"
        )


@dataclass(frozen=True)
class Sent:
    """The data that partitions sent each other between slices, before compression.

    sends: one per layer, relation and pair of partitions of which one reads rows of the other; as_states: the sends of
    partial states. row_bytes: the bytes of all sends as rows; saved_bytes: the bytes that states saved.
    """

    sends: int = 0
    as_states: int = 0
    row_bytes: int = 0
    saved_bytes: int = 0

    @property
    def text(self) -> str:
        """The sends as half a sentence; empty where there were none."""
        if not self.sends:
            return ""
        if not self.as_states:
            return f"rows in each of {self.sends:,} sends between partitions, {_mib(self.row_bytes)}"
        less = f"{_mib(self.row_bytes - self.saved_bytes)} instead of {_mib(self.row_bytes)}"
        return f"partial states in {self.as_states:,} of {self.sends:,} sends between partitions, else rows: {less}"


def _mib(number: int) -> str:
    return f"{number / 2**20:,.1f} MiB"


@dataclass(frozen=True)
class InferFacts:
    """The results of scoring: metrics, the parity certificate, and the data sent between partitions.

    model: the digest of the training that made the weights; "" in older manifests. columns: the importance of columns
    to the model; None where another graph is scored, and in older manifests.
    """

    metrics: Figures
    parity: Parity
    sent: Sent = Sent()
    model: str = ""
    columns: ColumnFacts | None = None


@dataclass(frozen=True)
class RecommendFacts:
    """Lists of the best items of each user, and their metrics over all items.

    metrics: by `<split>.<metric>`, by third of the items as `<split>.<third>.<metric>`, and with `popularity.` before
    it for the list of the most popular items. rows: of all lists. evaluated: users with held-out links of each split.
    repeats: held-out links that are seen as well, so that a list without seen items cannot have them; not counted.
    model: the digest of the training that made the decoder.
    """

    metrics: Figures
    top: int
    exclude_seen: bool
    users: int
    items: int
    rows: int
    evaluated: dict[str, int]
    repeats: int
    model: str
