"""Sources of training steps: the seam between the loop and a strategy.

The loop (`fit.py`) knows epochs, the best weights and checkpoints. What a step computes on, whether shards,
communities or a rank's partition, is known to the source of the configured strategy alone.

A new strategy is a folder with a `Source`, as `minibatch/` is, named by a row of `gnnflow.config.pipelines`. It has to
provide:

1. `Steps`: any step of any epoch when it is asked for, a function of (seed, epoch, step, rank), and so are its draws
   after `seed`. A killed run resumes at any step and ends on the same weights.
2. As many steps in every epoch and on every rank, because ranks wait for each other in the updater. Where the
   strategy's row says that ranks are joint, its source is opened with an exchange (`OpenJointSource`), and a step's
   outputs and gradients are computed by all ranks together.
3. Outputs that depend on the weights alone, for every target of a split, in the same order each time: of several
   ranks (`TrainJob.share`) each gives its part, and the parts in rank order are the whole.
4. Where any rank may compute any batch (`updater.stealing`), the steps of other ranks' shares too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from torch import Tensor

from gnnflow.executions.row_exchange import Exchange
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.layers import FeatureTensors
from gnnflow.layers.model import Model
from gnnflow.train.ahead import read_ahead
from gnnflow.train.job import TrainJob
from gnnflow.train.outputs import Outputs
from gnnflow.train.state import Row


class Step(Protocol):
    """One step of one rank: B targets to compute on, C outputs."""

    @property
    def targets(self) -> IntArray:
        """Dense ids of the step's targets [B]."""

    @property
    def labels(self) -> Array:
        """Labels of the step's targets as MiniBatch has them; unlabelled ones do not count."""

    @property
    def features(self) -> FeatureTensors:
        """Input features of the rows that the step computes on, its targets first: stored when the loss is NaN."""

    def seed(self) -> None:
        """Make the random draws that follow a function of (seed, epoch, step, rank); see `seed_step`."""

    def logits(self, model: Model) -> Tensor:
        """Return the outputs of the step's targets [B, C], in the order of `labels`, with their gradient."""


class DealtBatch(NamedTuple):
    """One batch of an epoch by its place in the plan: the share that it was dealt to, and its step there."""

    share: int
    step: int


class Steps(Protocol):
    """The steps of one rank, any of them when it is asked for. Leaving the `with` block closes files."""

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps, the same in every epoch and on every rank."""

    def step(self, epoch: int, number: int, *, share: int | None = None) -> Step:
        """Return a step of an epoch; share: the rank whose step it is, draws included, None where it is this one."""

    @property
    def ahead(self) -> int:
        """Number of steps that a thread makes ready; 0 where ranks make them together."""
        return 0

    def is_held(self, epoch: int, number: int, *, share: int | None = None) -> bool:
        """Return whether a step is in memory, so that a thread would cost more than making it."""
        return False

    def steps(self, epoch: int, *, since: int) -> Generator[Step, None, None]:
        """Yield step `since` and all later steps of an epoch, read ahead. One epoch is iterated at a time."""
        return read_ahead(
            lambda number: self.step(epoch, number),
            range(since, self.steps_per_epoch),
            ahead=self.ahead,
            is_held=lambda number: self.is_held(epoch, number),
        )

    def close(self) -> None:
        """Release memory and files; a source without any has nothing to do."""
        return

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release memory and files."""
        self.close()


class Source(Steps, Protocol):
    """The steps and outputs of one strategy on one rank."""

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have targets, in the order of SPLITS."""

    def outputs(self, model: Model, split: str) -> Outputs:
        """Return the model's outputs for this rank's targets of a split that has any. Leaves training mode.

        No step of an epoch may be under way.
        """

    def train_labels(self) -> Iterable[Array]:
        """Yield the labels of this rank's part of the train split: what class weights are counted over."""

    def spent(self) -> Row:
        """Return the seconds that making batches ready has taken so far, by part: `READER_PARTS`.

        A source that computes layers together with other ranks adds their stages: `STAGE_PARTS`.
        """


class OpenJointSource(Protocol):
    """Opens the source of a strategy whose ranks compute one step together."""

    def __call__(self, job: TrainJob, *, edges: bool, exchange: Exchange | None = None) -> Source:
        """Return this rank's part; exchange: with the other ranks, None where there is one."""


class OpenSource(Protocol):
    """Opens the source of a strategy."""

    def __call__(self, job: TrainJob, *, edges: bool) -> Source:
        """Return the source of a job; `edges=False` gives the same targets in the graph without its edges."""
