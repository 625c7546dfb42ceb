"""Labels that a model cannot learn, because no training target or every training target has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnflow.graph.errors import TrainingError, listed
from gnnflow.graph.labels import LABEL_KINDS, names_of_classes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gnnflow.graph.facts import GraphFacts
    from gnnflow.graph.labels import LabelKind


@dataclass(frozen=True)
class CountedLabels:
    """Targets by split, all and train targets by class or label, and the classes' names, as in `GraphFacts`.

    largest: the largest class number, -1 where labels are no classes. labelled: all targets with a label.
    """

    label_kind: LabelKind
    splits: Mapping[str, int]
    class_names: tuple[str, ...] = ()
    class_counts: tuple[int, ...] = ()
    train_class_counts: tuple[int, ...] = ()
    largest: int = -1
    labelled: int = 0


@dataclass(frozen=True)
class UnlearnableLabels:
    """The names of the classes (or labels, where a target has several) that cannot be learned.

    absent: no training target has them; classes are listed only where another target has them. universal: every
    training target has them. noun: "class" or "label". are_all: no other label is left to learn.
    """

    absent: tuple[str, ...]
    universal: tuple[str, ...]
    noun: str
    are_all: bool

    @property
    def text(self) -> str:
        """The problem as half a sentence; empty where every label can be learned."""
        some = [("no", self.absent), ("every", self.universal)]
        return " and ".join(f"{which} train row has {self.noun} {listed(names)}" for which, names in some if names)


def unlearnable_labels(graph: GraphFacts | CountedLabels) -> UnlearnableLabels:
    """Return the labels of a graph that a model cannot learn; none where labels were not counted."""
    is_class, counts = LABEL_KINDS[graph.label_kind].is_class, graph.train_class_counts
    total = graph.splits.get("train", 0)
    exists = graph.class_counts if is_class else (1,) * len(counts)
    names = names_of_classes(graph.class_names, len(counts))
    counted = list(zip(names, counts, exists, strict=False)) if total else []
    absent = tuple(name for name, count, held in counted if not count and held)
    universal = tuple(name for name, count, _ in counted if count == total)
    are_all = bool(universal) if is_class else bool(counted) and len(absent) + len(universal) == len(counted)
    return UnlearnableLabels(absent, universal, "class" if is_class else "label", are_all)


_ONE_CLASS = (
    "No other target has another class: write labels of two classes or more. An integer of -1 means no label; where it "
    "is a class, set graph: {classes: distinct}."
)


def check_train_labels(graph: GraphFacts | CountedLabels) -> None:
    """Raise TrainingError where all training targets have one class, or the same labels."""
    found = unlearnable_labels(graph)
    if found.are_all:
        is_only = found.noun == "class" and sum(map(bool, graph.class_counts)) == 1
        fix = "Mark targets with another label as train, or draw the split: task.split: {kind: random}."
        raise TrainingError(
            f"{found.text}: a model learns nothing from {graph.splits['train']:,} targets with the same label",
            where="the train split",
            fix=_ONE_CLASS if is_only else fix,
        )
