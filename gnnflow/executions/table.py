"""The executions there are: what each sees, who uses it, and which layers it cannot run, with the reason.

`check_model` reads the table before the first stage runs; `tests/contracts` runs every layer on every row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gnnflow.config.train_section import TrainConfig, is_streamed, pipeline_of
from gnnflow.executions.streamed import streaming_obstacle
from gnnflow.graph.errors import LayerError
from gnnflow.layers import Layer, Model


@dataclass(frozen=True)
class Execution:
    """One row: `supports` returns None for a layer the execution runs, else the reason why it does not.

    scores: whether every run scores with it. Which strategy trains on it is `gnnflow.config.pipelines`.
    """

    name: str
    sees: str
    delivers_by: str
    scores: bool
    supports: Callable[[Layer], str | None]


def _every_layer(layer: Layer) -> None:
    """Return None: the plain definition runs every layer."""


def _self_message_merges(layer: Layer) -> str | None:
    # A self message that cannot be one more edge of the block is a state, which is merged into the edges' state.
    apart = not layer.uses_coefficients or layer.levels.instance.scaled_by_sample
    if layer.include_self and apart and not layer.levels.instance.mergeable:
        kind = type(layer.levels.instance).__name__
        return f"include_self merges a message of the node's own, and states of {kind} do not merge"
    return None


EXECUTIONS: dict[str, Execution] = {
    row.name: row
    for row in (
        Execution(
            name="reference",
            sees="the whole graph in memory",
            delivers_by="indexing",
            scores=False,
            supports=_every_layer,
        ),
        Execution(
            name="minibatch",
            sees="one pruned block per layer",
            delivers_by="the block, as one part",
            scores=False,
            supports=_self_message_merges,
        ),
        Execution(
            name="clusterbatch",
            sees="a few clusters with their boundary, in one block",
            delivers_by="the block, as one part, with a mask on the targets",
            scores=False,
            supports=_self_message_merges,
        ),
        Execution(
            name="globalbatch",
            sees="the whole graph, spread over ranks",
            delivers_by="rows exchanged between ranks, while edges between own rows are aggregated",
            scores=False,
            supports=_self_message_merges,
        ),
        Execution(
            name="streamed",
            sees="a chunk of edges between two intervals of nodes, the rest in files",
            delivers_by="reading chunk after chunk; a target interval's state stays until it is whole",
            scores=False,
            supports=streaming_obstacle,
        ),
        Execution(
            name="sliced",
            sees="one layer over one partition per task",
            delivers_by="rows sent between rounds, then the block of a partition, as one part",
            scores=True,
            supports=_self_message_merges,
        ),
    )
}


def executions_of(train: TrainConfig) -> tuple[str, ...]:
    """Return the names of the executions that a run needs: the one that it trains on and those that score."""
    scoring = (row.name for row in EXECUTIONS.values() if row.scores)
    return ("streamed" if is_streamed(train) else pipeline_of(train).execution, *scoring)


def check_model(model: Model, *, names: Sequence[str]) -> None:
    """Raise LayerError where one of the named executions cannot run one of the model's layers."""
    for index in range(model.num_layers):
        layer = model.relations(index).layer(0)  # all relations have layers of one class
        for name in names:
            reason = EXECUTIONS[name].supports(layer)
            if reason is not None:
                raise LayerError(
                    f"layer {index + 1}, {type(layer).__name__}, cannot run on the execution {name}: {reason}",
                    where="model.kind",
                    fix="Change the layer: docs/layers.md says what executions need of one.",
                )
