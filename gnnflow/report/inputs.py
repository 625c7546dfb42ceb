"""The values of a report, in plain types, so that a test needs no run.

A missing value is None or empty; the report then says so in words instead of a picture. Nothing here grows with the
graph: histograms, samples and totals only, which keeps the page small for any number of nodes.

Shapes: n sampled rows, C classes or outputs, d embedding width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gnnflow.graph.encodings import EncodedColumn
from gnnflow.graph.facts import RowCounts
from gnnflow.graph.findings import Finding
from gnnflow.graph.labels import LabelKind, of_class
from gnnflow.graph.narrow import ColumnErrors
from gnnflow.graph.run_facts import Compared, Decision, LinkFacts
from gnnflow.graph.score_facts import ColumnFacts, ScoreFacts
from gnnflow.graph.train_labels import UnlearnableLabels
from gnnflow.report.formats import class_name, metric_name
from gnnflow.report.judging import NO_EDGES, Judgement, headline_key, judge

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class RoundRow:
    """One round of a stage: a map over partitions and its exchange. start is in seconds after its stage began."""

    name: str
    start: float
    seconds: float
    tasks: int = 0


@dataclass(frozen=True)
class StageRow:
    """One stage of the run.

    seconds: the time that making its artifact took, from its manifest; where `reused` is true an earlier run spent it,
    and it does not count for this one. counts: the manifest's row counts.
    """

    name: str
    seconds: float
    reused: bool = False
    digest: str = ""
    rounds: Sequence[RoundRow] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TypeRow:
    """One node type of a graph with types. sparse: its features are (index, value) pairs; width 0: it has none."""

    name: str
    num_nodes: int
    feature_width: int = 0
    sparse: bool = False
    quarantined: int = 0


@dataclass(frozen=True)
class RelationRow:
    """One relation of a graph with types, or of a selection. num_targets: the nodes of its target type."""

    name: str
    num_edges: int
    num_targets: int
    max_in_degree: int
    attribute_width: int = 0
    has_weight: bool = False
    quarantined: int = 0

    @property
    def mean_in_degree(self) -> float:
        """In-edges per node of the target type."""
        return self.num_edges / max(self.num_targets, 1)


@dataclass(frozen=True)
class GraphSummary:
    """The graph in figures.

    partitions: their quality in words, where the stage `partition` made them.
    types, relations, target: for a graph with several; feature_width then belongs to the target type.
    target_relation: the relation whose edges are scored, in tasks of edges; target is then its target type.
    selected: the relations of neighbours other than direct ones; num_edges counts instances.
    in_degree_histogram holds (low, high, nodes) with low <= in-degree < high: a bin (0, 1, nodes) for nodes without
    in-edges, then one bin per power of two. num_hubs counts nodes with more than hub_threshold in-edges, where they are
    sampled. reads_all: every in-edge is read, without sampling. split_times: the first time of valid and of test, where
    the split is by time.
    """

    num_nodes: int
    num_edges: int
    feature_width: int = 0
    num_classes: int = 0
    split_counts: Mapping[str, int] = field(default_factory=dict)
    split_times: Mapping[str, str] = field(default_factory=dict)
    in_degree_histogram: Sequence[tuple[int, int, int]] = ()
    hub_threshold: int = 0
    num_hubs: int = 0
    reads_all: bool = False
    max_in_degree: int = 0
    partitions: str = ""
    types: Sequence[TypeRow] = ()
    relations: Sequence[RelationRow] = ()
    selected: Sequence[RelationRow] = ()
    target: str = ""
    target_relation: str = ""


@dataclass(frozen=True)
class BlowUp:
    """The bytes that GraphFlat read and wrote; ratio is bytes_out / bytes_in."""

    bytes_in: int
    bytes_out: int
    ratio: float
    layout: str
    bytes_per_target: float


@dataclass(frozen=True)
class Parity:
    """The parity certificate: random targets scored again by the k-hop path, and the largest difference.

    compared: `like training`, or `all edges` where training used a sample.
    """

    samples: int
    max_difference: float
    limit: float
    compared: Compared = "like training"

    @property
    def passed(self) -> bool:
        """True where the two paths agree; NaN is no agreement."""
        return math.isfinite(self.max_difference) and self.max_difference <= self.limit


@dataclass(frozen=True)
class PredictionSample:
    """Labels and scores of some targets of one split.

    Single-label: labels int [n] (negative = unlabelled, left out), scores float [n, C] probabilities; binary
    tasks may give [n] or [n, 1], the probability of class 1. Multi-label: labels 0/1 [n, C], scores [n, C].
    Regression: both [n]. ids [n] as text and in_degrees [n] of nodes; None where targets are edges.
    """

    labels: Array
    scores: FloatArray
    split: str = "test"
    ids: Sequence[str] | None = None
    in_degrees: Array | None = None


@dataclass(frozen=True)
class EmbeddingSample:
    """Embeddings [n, d] of some nodes, with their labels [n] where they have any."""

    rows: FloatArray
    labels: Array | None = None


@dataclass(frozen=True)
class Audited:
    """The findings of a run's last audit. at: its time."""

    at: str
    findings: Sequence[Finding]


@dataclass(frozen=True, kw_only=True)
class ReportInputs:
    """Everything `render_report` shows.

    metrics, baseline: with the flat keys of metrics.json (`test.accuracy`, `test.accuracy_low`); baseline is the same
    classifier trained without edges. baselines: the others by name, with the same keys. cautions: sentences about what
    makes the headline say less than it seems to. curves: one mapping per epoch: `epoch`, `train_loss`,
    `valid_<metric>`..., `seconds`. profiles: one per rank: `seconds` per epoch and of its parts (`wait_seconds` and
    others). metric: the one that chose the best epoch; where it is empty the first test metric is the headline.
    metric_class, decision, losses: see `TrainFacts`.
    task: the `task.kind`. streamed: training read the graph from files (`train.memory`). unread: columns of edge
    attributes that the model does not read. large: columns of large numbers, by the key that would scale them. tables:
    the rows of each table, with the quarantined ones by reason. unlearnable: labels of no or every training target.
    encodings: the encoded columns of each table; column_errors: of each table with columns in fewer bytes. constant,
    link_facts, scores: see `TrainFacts`. confusion [C, C]: counts of all targets of `scores.split` by label and
    prediction; None where there are none. columns: the importance of columns. alike: sentences about targets that only
    degrees tell apart. audit: None where none was made. config: of the run, so that advice does not name settings that
    it has.
    """

    name: str
    run_uri: str
    config_yaml: str
    metrics: Mapping[str, float]
    stages: Sequence[StageRow]
    graph: GraphSummary
    label_kind: LabelKind = "single"
    task: str = "node"
    metric: str = ""
    metric_class: str = ""
    decision: Decision | None = None
    blow_up: BlowUp | None = None
    curves: Sequence[Mapping[str, float]] = ()
    best_epoch: int | None = None
    losses: Mapping[str, float] = field(default_factory=dict)
    profiles: Sequence[Mapping[str, float]] = ()
    streamed: bool = False
    baseline: Mapping[str, float] | None = None
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    cautions: Sequence[str] = ()
    predictions: PredictionSample | None = None
    predictions_uri: str = ""
    class_names: Sequence[str] = ()
    embeddings: EmbeddingSample | None = None
    parity: Parity | None = None
    sent: str = ""
    tables: Mapping[str, RowCounts] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    unread: Sequence[str] = ()
    large: Mapping[str, Sequence[str]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    unlearnable: UnlearnableLabels | None = None
    constant: str = ""
    alike: Sequence[str] = ()
    link_facts: LinkFacts | None = None
    scores: ScoreFacts | None = None
    confusion: Array | None = None
    columns: ColumnFacts | None = None
    audit: Audited | None = None
    encodings: Mapping[str, Sequence[EncodedColumn]] = field(default_factory=dict)
    column_errors: Mapping[str, ColumnErrors] = field(default_factory=dict)

    @property
    def quarantined(self) -> dict[str, int]:
        """Quarantined rows of each table."""
        return {name: rows.rows_quarantined for name, rows in self.tables.items()}

    def setting(self, key: str) -> Any:
        """Return the config's value of a key such as `train.lr`; None where it has none."""
        value: Any = self.config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    @property
    def spent_seconds(self) -> float:
        """Seconds this run took; reused stages cost it nothing."""
        return sum(stage.seconds for stage in self.stages if not stage.reused)

    @property
    def saved_seconds(self) -> float:
        """Seconds that reused stages took in an earlier run."""
        return sum(stage.seconds for stage in self.stages if stage.reused)

    @property
    def headline_key(self) -> str | None:
        """The headline's metric: the configured one on test, else on valid, else the first."""
        return headline_key(self.metrics, self.metric)

    @property
    def every_baseline(self) -> dict[str, Mapping[str, float]]:
        """The metrics of all baselines by name, the classifier without edges first."""
        return {**({} if self.baseline is None else {NO_EDGES: self.baseline}), **self.baselines}

    @property
    def judgement(self) -> Judgement | None:
        """The comparison of the headline's score with the best baseline's."""
        return judge(self.metrics, self.every_baseline, self.headline_key)

    def metric_name(self, key: str) -> str:
        """Return a metric's name, with the class that it is of where `task.decide` names one."""
        named = class_name([self.metric_class], 0) if self.metric_class else ""
        return metric_name(key) + of_class(key, named)

    def class_name(self, index: int) -> str:
        """Return the name of a class without Unicode's controls of direction, or its number."""
        return class_name(self.class_names, index)
