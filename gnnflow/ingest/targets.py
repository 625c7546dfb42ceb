"""What a task asks of the tables: which nodes are held out by a draw, which edges are targets, which carry messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnnflow.config import GraphConfig, PairTask, TaskConfig


@dataclass(frozen=True)
class DrawnSplit:
    """The shares of labelled nodes that are held out, by a hash of their ids and a seed."""

    valid: float
    test: float
    seed: int

    @staticmethod
    def of(task: TaskConfig, *, seed: int) -> DrawnSplit | None:
        """Return how a task's nodes are split; None where a column says it, or targets are edges."""
        if task.kind != "node" or task.split.kind == "column":
            return None
        return DrawnSplit(task.split.valid, task.split.test, seed)

    @property
    def text(self) -> str:
        """What is held out, as half a sentence."""
        return f"drawn by id, {self.valid:.0%} of labelled nodes for valid and {self.test:.0%} for test"


@dataclass(frozen=True)
class EdgeTargets:
    """A task of links or of labels of edges, the seed of its random split, and the number of the table of its edges.

    label: the column of labels that the config names, None where none are to be read: such edges are scored alone.
    """

    task: PairTask
    seed: int
    table: int = 0
    label: str | None = "label"

    @staticmethod
    def of(task: TaskConfig, graph: GraphConfig, *, seed: int) -> EdgeTargets | None:
        """Return what a task asks of the edge tables; None where targets are nodes."""
        if task.kind == "node":
            return None
        return EdgeTargets(task, seed, list(graph.edge_tables).index(graph.target_edges), graph.label)

    @property
    def have_labels(self) -> bool:
        """Whether labels are read from the edge table."""
        return self.are_all_edges and self.label is not None

    @property
    def are_all_edges(self) -> bool:
        """Whether what a model gives is of each edge of the table; else it tells edges from pairs that are none."""
        return self.task.kind == "edge"

    @property
    def are_split(self) -> bool:
        """Whether edges are in splits: those that are scored alone are in none, and none is held out."""
        return self.have_labels if self.are_all_edges else self.task.split.kind != "none"

    @property
    def hide_edges(self) -> bool:
        """Whether some edges carry no messages, because they are held out."""
        return self.are_split and not self.held_out_carry

    @property
    def by_column(self) -> bool:
        """Whether a column says which split an edge is in."""
        return self.are_split and self.task.split.kind == "column"

    @property
    def by_time(self) -> bool:
        """Whether the last edges by time are held out."""
        return self.are_split and self.task.split.kind == "time"

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
        return not self.are_all_edges and not self.have_times

    def columns(self, graph: GraphConfig, *, table: int) -> tuple[str, ...]:
        """Return the columns of an edge table that are read for the task: of others than the targets' its times."""
        is_target = table == self.table
        asked = {
            graph.label_column: is_target and self.have_labels,
            graph.split: is_target and self.by_column,
            graph.timestamp: self.have_times,
        }
        return tuple(name for name, is_read in asked.items() if is_read)
