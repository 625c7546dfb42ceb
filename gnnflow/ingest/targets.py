"""What a task whose targets are edges asks of the edge table, and which edges carry messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnnflow.config import GraphConfig, PairTask, TaskConfig


@dataclass(frozen=True)
class EdgeTargets:
    """A task of links or of labels of edges, and the seed of its random split."""

    task: PairTask
    seed: int

    @staticmethod
    def of(task: TaskConfig, *, seed: int) -> EdgeTargets | None:
        """Return what a task asks of the edge table; None where targets are nodes."""
        return None if task.kind == "node" else EdgeTargets(task, seed)

    @property
    def have_labels(self) -> bool:
        """Whether the edge table has labels; else what is learned is which pairs are edges."""
        return self.task.kind == "edge"

    @property
    def by_column(self) -> bool:
        """Whether a column says which split an edge is in."""
        return self.task.split.kind == "column"

    @property
    def have_times(self) -> bool:
        """Whether edges have times, and each is scored from earlier ones alone."""
        return self.task.split.earlier_only

    @property
    def held_out_carry(self) -> bool:
        """Whether edges of valid and test carry messages."""
        return self.task.kind == "edge" and self.task.messages

    @property
    def hides_copies(self) -> bool:
        """Whether other edges between the ends of a held-out one carry no messages: where times do not tell them."""
        return not self.held_out_carry and not self.have_times

    @property
    def are_pairs(self) -> bool:
        """Whether parallel edges are one target; with labels or times of their own each is one."""
        return not self.have_labels and not self.have_times

    def columns(self, graph: GraphConfig) -> tuple[str, ...]:
        """Return the columns of the edge table that are read for the task."""
        asked = {graph.label: self.have_labels, graph.split: self.by_column, graph.timestamp: self.have_times}
        return tuple(name for name, is_read in asked.items() if is_read)
