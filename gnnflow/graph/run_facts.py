"""What training and scoring tell of how they went: frozen values that are JSON in their manifests.

Facts of the artifacts before them are in `gnnflow.graph.facts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Figures = dict[str, int | float]
Compared = Literal["like training", "all edges", "nothing"]

READER_PARTS = ("read", "decode", "build", "sums")
"""Parts of a training reader's work: reading and verifying files, decoding, building blocks, first-layer sums."""
TRAINER_PARTS = ("wait", "forward", "backward", "exchange", "update")
"""Parts of the trainer's: waiting for a batch, then its step. exchange: with other ranks, waiting for them included."""
STAGE_PARTS = ("transform", "gather_sum", "mirrors", "reduce", "apply")
"""Stages of a global-batch step's layers, forward and backward: NN-TGAR (GraphTheta). Of forward and backward, a part.

mirrors: waiting for rows of other ranks, and for their gradients; reduce: merging states, joining relations.
"""
READER_WAIT = "reader_wait"
"""The rest of the reader's time: enough batches are ready, or all of the epoch."""


def has_reader(profile: Mapping[str, float]) -> bool:
    """Return whether batches were made ready beside computing; none were where all of them are kept."""
    return any(profile.get(f"{part}_seconds", 0.0) > 0 for part in READER_PARTS)


def has_stages(profile: Mapping[str, float]) -> bool:
    """Return whether a profile is of layers that ranks compute together, whose stages were timed."""
    return f"{STAGE_PARTS[0]}_seconds" in profile


@dataclass(frozen=True)
class RankAttempt:
    """Ranks that trained together until they were done, or one was lost: then `lost` says which and how."""

    ranks: int
    lost: str = ""


HIDE_EVENTS = (
    "If such a node is made together with the edge (an order of the purchase), it tells the answer, and the figures "
    "are worth nothing. Give its edge tables graph.timestamp (the edge's own, where such a node has none) and set "
    "task.split.earlier_only: true, which hides what is not before the edge; or leave these tables out of graph.edges."
)
"""What to do where events tell of links."""


@dataclass(frozen=True)
class LinkFacts:
    """How held-out links compare with the pairs that they are ranked among.

    split and links: how many of which were looked at. candidates: how many each is ranked among, drawn of so many
    nodes. share: of the candidates that are edges themselves, to be expected; filtered: these are left out. events: of
    each type of node that tells of links the share of links, and of random pairs, that one of its nodes joins.
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
        """What tells of links, as a sentence without its end; empty where nothing does."""
        return "; ".join(
            f"a node of type {name} joins both ends of {links:.1%} of the {self.split} edges and of {chance:.1%} of "
            "random pairs"
            for name, (links, chance) in self.events.items()
        )

    @property
    def text(self) -> str:
        """What candidates are, as half a sentence."""
        left_out = ", which are left out" if self.filtered else ""
        text = f"{self.share:.1%} of the pairs that {self.split} edges are ranked among are edges too{left_out}"
        if self.are_repeated:
            text += f", and {self.candidates:,} candidates are drawn of {self.nodes:,} nodes, so that many come again"
        return text

    @property
    def are_repeated(self) -> bool:
        """Whether there are fewer nodes than candidates."""
        return self.nodes < self.candidates


@dataclass(frozen=True)
class TrainFacts:
    """How training went: flat metrics, one row of figures per epoch, and confusion counts by split.

    Epochs count from 1.
    attempts: how several ranks fared, in order; empty where training was one process. profiles: of each rank, the
    seconds per epoch of each part of its work (`<part>_seconds`), of the epochs after the first. device: what it
    computed on, by its name; empty for the CPU. constant: as half a sentence, what the model predicts for every target
    of the last split, where that is one prediction and the labels differ. link_facts: of links.
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


@dataclass(frozen=True)
class Parity:
    """The parity certificate: random targets scored again by the k-hop path, and the largest difference.

    compared: the neighbours both paths scored over. `like training`: those training saw, its sample or every in-edge;
    `all edges`: every in-edge, where training saw a sample; `nothing`: no target was scored again, and max_difference
    is None.
    """

    samples: int
    max_difference: float | None
    limit: float
    compared: Compared

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
    """What partitions sent each other between slices, by count, before compression.

    sends: once per layer, relation and pair of partitions of which one reads rows of the other; as_states: those of
    them that were partial states. row_bytes: of all of them as rows; saved_bytes: how much fewer were sent.
    """

    sends: int = 0
    as_states: int = 0
    row_bytes: int = 0
    saved_bytes: int = 0

    @property
    def text(self) -> str:
        """What was sent, as half a sentence; empty where nothing was counted."""
        if not self.sends:
            return ""
        if not self.as_states:
            return f"rows in each of {self.sends:,} sends between partitions, {_mib(self.row_bytes)}"
        less = f"{_mib(self.row_bytes - self.saved_bytes)} instead of {_mib(self.row_bytes)}"
        return f"partial states in {self.as_states:,} of {self.sends:,} sends between partitions, rows else: {less}"


def _mib(number: int) -> str:
    return f"{number / 2**20:,.1f} MiB"


@dataclass(frozen=True)
class InferFacts:
    """How scoring went: flat metrics, what the certificate compared, and what partitions sent each other.

    model: the digest of the training whose weights scored; "" in manifests that do not say it.
    """

    metrics: Figures
    parity: Parity
    sent: Sent = Sent()
    model: str = ""
