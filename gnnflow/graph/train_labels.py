"""Labels that training cannot teach: those that no training target has, and those that every one has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnflow.graph.errors import TrainingError, listed
from gnnflow.graph.labels import LABEL_KINDS

if TYPE_CHECKING:
    from gnnflow.graph.facts import GraphFacts


@dataclass(frozen=True)
class UnlearnableLabels:
    """Names of the classes, or of the labels where a target has several, that cannot be learned.

    absent: those of no training target; of classes only those that another target has. universal: those of every
    training target. noun: what one is called. are_all: nothing else is left to learn.
    """

    absent: tuple[str, ...]
    universal: tuple[str, ...]
    noun: str
    are_all: bool

    @property
    def text(self) -> str:
        """What is wrong, as half a sentence; empty where every label can be learned."""
        some = [("no", self.absent), ("every", self.universal)]
        return " and ".join(f"{which} train row has {self.noun} {listed(names)}" for which, names in some if names)


def unlearnable_labels(graph: GraphFacts) -> UnlearnableLabels:
    """Return the labels of a graph that training cannot teach; none where labels were not counted."""
    is_class, counts = LABEL_KINDS[graph.label_kind].is_class, graph.train_class_counts
    total = graph.splits.get("train", 0)
    exists = graph.class_counts if is_class else (1,) * len(counts)
    names = [*graph.class_names, *map(str, range(len(graph.class_names), len(counts)))]
    counted = list(zip(names, counts, exists, strict=False)) if total else []
    absent = tuple(name for name, count, held in counted if not count and held)
    universal = tuple(name for name, count, _ in counted if count == total)
    are_all = bool(universal) if is_class else bool(counted) and len(absent) + len(universal) == len(counted)
    return UnlearnableLabels(absent, universal, "class" if is_class else "label", are_all)


def check_train_labels(graph: GraphFacts) -> None:
    """Raise TrainingError where training can learn nothing: its targets all have one class, or the same labels."""
    found = unlearnable_labels(graph)
    if found.are_all:
        raise TrainingError(
            f"{found.text}: a model learns nothing from {graph.splits['train']:,} targets with the same label",
            where="the train split",
            fix="Mark targets with another label as train, or draw the split: task.split.kind random.",
        )
