"""A task's demands on the tables: random splits of nodes, edges that are targets, edges that carry messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gnnflow.config.task_section import (
    NodeAutoSplit,
    NodeColumnSplit,
    RandomSplit,
    StratifiedSplit,
    TimeSplit,
)

if TYPE_CHECKING:
    from gnnflow.config import GraphConfig, PairTask, TaskConfig
    from gnnflow.sampling.pairs import SplitBounds

_DIVIDED = {
    "time": "by time (graph.timestamp), each edge scored from earlier ones",
    "random": "drawn by ends",
    "stratified": "drawn by ends within each class",
}


@dataclass(frozen=True)
class DrawnSplit:
    """The shares of labelled nodes, or of edges, that are held out: by hashes of ids and a seed or by times.

    column, unit: of the nodes' times, and their meaning as `gnnflow.ingest.times` returns it. groups: for a split by
    ranks the first keys of valid and test of each class, or of all nodes, ascending by class; empty before they are
    found.
    """

    valid: float
    test: float
    seed: int
    kind: Literal["random", "stratified", "time"] = "random"
    column: str = ""
    unit: str = ""
    groups: SplitBounds = ()

    @staticmethod
    def of(task: TaskConfig, *, seed: int) -> DrawnSplit | None:
        """Return the split of a task's nodes that is made; None where a column has it, or targets are edges."""
        if task.kind != "node" or isinstance(task.split, NodeAutoSplit | NodeColumnSplit):
            return None
        split = task.split
        column = split.column if split.kind == "time" else ""
        return DrawnSplit(split.valid, split.test, seed, split.kind, column)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that splits follow from, besides ids and labels."""
        return (self.column,) if self.column else ()

    @property
    def text(self) -> str:
        """The held-out shares, as half a sentence."""
        shares = f"{self.valid:.0%} of labelled nodes for valid and {self.test:.0%} for test"
        if self.kind == "time":
            return f"by time (column {self.column!r}), {shares}"
        how = "by id within each class" if self.kind == "stratified" else "by id"
        return f"drawn {how}, {shares}; no column is read for them (task.split)"


@dataclass(frozen=True)
class EdgeTargets:
    """A task of links or edge labels, the seed of its random split, and the number of its edge table.

    label: the label column that the config names; None where edges are only scored.
    """

    task: PairTask
    seed: int
    table: int = 0
    label: str | None = "label"

    @staticmethod
    def of(task: TaskConfig, graph: GraphConfig, *, seed: int) -> EdgeTargets | None:
        """Return a task's demands on the edge tables; None where targets are nodes."""
        if task.kind == "node":
            return None
        label = None if graph.label is None else graph.of_targets(edges=True).label_column
        return EdgeTargets(task, seed, list(graph.edge_tables).index(graph.target_edges), label)

    @property
    def have_labels(self) -> bool:
        """True where labels are read from the edge table."""
        return self.are_all_edges and self.label is not None

    @property
    def are_all_edges(self) -> bool:
        """True where a model labels every edge of the table; else it predicts links."""
        return self.task.kind == "edge"

    @property
    def are_split(self) -> bool:
        """True where edges are in splits; edges that are only scored are in none."""
        return self.have_labels if self.are_all_edges else self.task.split.kind != "none"

    @property
    def hide_edges(self) -> bool:
        """True where held-out edges carry no messages."""
        return self.are_split and not self.held_out_carry

    @property
    def by_column(self) -> bool:
        """True where a column names the splits of edges."""
        return self.are_split and self.task.split.kind == "column"

    @property
    def by_time(self) -> bool:
        """True where the last edges by time are held out."""
        return self.are_split and self.task.split.kind == "time"

    @property
    def by_hash(self) -> bool:
        """True where the hash of an edge's ends says its split."""
        return self.are_split and self.task.split.kind == "random"

    @property
    def drawn(self) -> DrawnSplit | None:
        """The shares of a split by ranks (`gnnflow.ingest.splits`); None where the split is another."""
        split = self.task.split
        if not self.are_split or not isinstance(split, StratifiedSplit | TimeSplit):
            return None
        return DrawnSplit(split.valid, split.test, self.seed, split.kind)

    @property
    def text(self) -> str:
        """The held-out shares of labelled edges, as half a sentence; empty where a column has them."""
        split = self.task.split
        if not self.have_labels or not isinstance(split, RandomSplit | StratifiedSplit | TimeSplit):
            return ""
        shares = f"{split.valid:.0%} of labelled edges for valid and {split.test:.0%} for test"
        return f"{_DIVIDED[split.kind]}, {shares} (task.split)"

    @property
    def have_times(self) -> bool:
        """True where edges have times, and each is scored from earlier edges alone."""
        return self.task.split.earlier_only

    @property
    def held_out_carry(self) -> bool:
        """True where edges of valid and test carry messages."""
        return self.task.kind == "edge" and self.task.messages

    @property
    def hides_copies(self) -> bool:
        """True where other edges between the ends of a held-out edge carry no messages."""
        return not self.held_out_carry and not self.have_times

    @property
    def are_pairs(self) -> bool:
        """True where parallel edges are one target; edges with labels or times are each a target."""
        return not self.are_all_edges and not self.have_times

    def columns(self, graph: GraphConfig, *, table: int) -> tuple[str, ...]:
        """Return the columns of an edge table that the task needs: only times where it has no targets."""
        is_target, graph = table == self.table, graph.of_relation(list(graph.edge_tables)[table])
        asked = {
            graph.label_column: is_target and self.have_labels,
            graph.split_column: is_target and self.by_column,
            graph.time_column: self.have_times,
        }
        return tuple(name for name, is_read in asked.items() if is_read)
