"""Holds one parameter server's part of a model, and steps it with the gradients that ranks push.

Parameters are dealt to servers whole, about as many bytes to each. A server's dense ones travel as one array, one after
the other; tables that are looked up by rows do not (`tables.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor, nn

from gnnflow.config import TrainConfig
from gnnflow.graph.arrays import Array, FloatArray, IntArray
from gnnflow.train.ranks.tables import RowTable
from gnnflow.train.source import DealtBatch
from gnnflow.train.updater import LocalUpdater

State = dict[str, Array]


@dataclass(frozen=True)
class RowGradients:
    """Gradients [R, W] of distinct rows [R] of a table, ascending."""

    rows: IntArray
    gradients: FloatArray


@dataclass(frozen=True)
class Push:
    """One rank's part of a step: gradients of a server's dense parameters, one after the other, and which there are.

    tables: the gradients of each of its tables, None where the batch read none of it.
    fit, step: which push of the rank this is: each step of each model that it trains makes one.
    loss: the mean over num_targets labelled targets; weight: what that mean was divided by. rate: the learning rate,
    where it is another than the config's. version: of the weights that the gradients were computed with. batch: which
    of the epoch's batches this was, where ranks take them from a queue.
    """

    rank: int
    step: int
    gradients: FloatArray
    present: Array
    loss: float
    weight: float
    num_targets: int
    rate: float | None = None
    tables: tuple[RowGradients | None, ...] = ()
    version: int = 0
    batch: DealtBatch | None = None
    fit: int = 0


class Shard:
    """Some parameters and their optimiser. tables: how many of the parameters, the last ones, are looked up by rows."""

    def __init__(self, parameters: Sequence[FloatArray], train: TrainConfig, *, tables: int = 0) -> None:
        self._parameters = nn.ParameterList([torch.tensor(each) for each in parameters])
        self._updater = LocalUpdater(self._parameters, train)
        self._num_dense = len(parameters) - tables
        self._bounds = bounds_of([tuple(each.shape) for each in parameters[: self._num_dense]])
        self._tables = [RowTable(each.detach(), train) for each in self._looked_up]
        for each in self._looked_up:
            each.data = each.data[:0]

    @property
    def _looked_up(self) -> list[nn.Parameter]:
        """The tables' rows of the last step, which stand for the tables in the optimiser."""
        return list(self._parameters)[self._num_dense :]

    def step(self, pushes: Sequence[Push]) -> None:
        """Step with the mean of the pushes' gradients, weighed and in their order."""
        if pushes[0].rate is not None:
            self._updater.set_rate(pushes[0].rate)
        total = sum(each.weight for each in pushes) or 1.0
        mean = np.zeros(self._bounds[-1], np.float32)
        for each in pushes:
            mean += each.gradients * np.float32(each.weight)
        mean /= np.float32(total)
        present = np.any([each.present for each in pushes], axis=0)
        # The gradient of the sum of parameters times constants is those constants, to the bit.
        parts = zip(self._parameters, self._bounds, self._bounds[1:], present, strict=False)
        products = [
            (parameter * torch.from_numpy(mean[start:stop]).view_as(parameter)).sum()
            for parameter, start, stop, there in parts
            if there
        ]
        lent = self._lent(pushes, total)
        products += [(self._looked_up[place] * gradients).sum() for place, (_, gradients) in lent.items()]
        if products:
            self._updater.step(torch.stack(products).sum())
        for place, (rows, _) in lent.items():
            self._tables[place].store_rows(rows, self._looked_up[place], self._updater.optimizer)

    def _lent(self, pushes: Sequence[Push], total: float) -> dict[int, tuple[Tensor, Tensor]]:
        """Put the rows that the pushes touch into the optimiser; return them with their mean gradients by table."""
        lent = {}
        for place, table in enumerate(self._tables):
            there = [(each.tables[place], each.weight) for each in pushes]
            given = [(found, weight) for found, weight in there if found is not None]
            if not given:
                continue
            rows = np.unique(np.concatenate([found.rows for found, _ in given]))
            mean = np.zeros((len(rows), given[0][0].gradients.shape[1]), np.float32)
            for found, weight in given:
                mean[np.searchsorted(rows, found.rows)] += found.gradients * np.float32(weight)
            mean /= np.float32(total)
            table.lend(torch.from_numpy(rows), self._looked_up[place], self._updater.optimizer)
            lent[place] = torch.from_numpy(rows), torch.from_numpy(mean)
        return lent

    def weights(self) -> FloatArray:
        """Return all dense parameters, one after the other."""
        dense = list(self._parameters)[: self._num_dense]
        return np.concatenate([np.empty(0, np.float32), *(each.detach().numpy().ravel() for each in dense)])

    def rows(self, wanted: Sequence[IntArray]) -> list[FloatArray]:
        """Return distinct rows of each table."""
        return [table.rows(torch.tensor(rows)).numpy() for table, rows in zip(self._tables, wanted, strict=True)]

    def whole_tables(self) -> list[FloatArray]:
        """Return the tables."""
        return [table.whole().numpy() for table in self._tables]

    def state(self) -> State:
        """Return the optimiser's state by name, with the state of tables as a dense optimiser would hold it."""
        dense = {
            name: kept for name, kept in self._updater.state().items() if int(name.split("/")[0]) < self._num_dense
        }
        for place, table in enumerate(self._tables, self._num_dense):
            dense |= {f"{place}/{name}": kept for name, kept in table.state().items()}
        return {name: tensor.numpy() for name, tensor in dense.items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Put back what `state` returned."""
        self._updater.restore({name: torch.tensor(array) for name, array in state.items()})
        for place, table in enumerate(self._tables):
            table.restore(self._updater.optimizer.state.pop(self._looked_up[place], {}))


def bounds_of(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """Return where each of some arrays begins, and the last ends, when they lie one after the other."""
    return list(accumulate((int(np.prod(shape)) for shape in shapes), initial=0))


def dealt(parameters: Sequence[Tensor], num_servers: int) -> list[list[int]]:
    """Return the numbers of the parameters of each server, about as many bytes each: the largest are dealt first."""
    held: list[list[int]] = [[] for _ in range(num_servers)]
    sizes = [0] * num_servers
    for number in sorted(range(len(parameters)), key=lambda number: (-parameters[number].numel(), number)):
        server = sizes.index(min(sizes))
        held[server].append(number)
        sizes[server] += parameters[number].numel()
    return [sorted(numbers) for numbers in held if numbers]


@dataclass
class Part:
    """One server's part of a model: its parameters here, and their places in the array that is sent."""

    parameters: list[nn.Parameter]
    bounds: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.bounds = bounds_of([tuple(each.shape) for each in self.parameters])

    def gradients(self) -> tuple[FloatArray, Array]:
        """Return the gradients, one after the other, and which there are."""
        content = np.zeros(self.bounds[-1], np.float32)
        for parameter, start, stop in zip(self.parameters, self.bounds, self.bounds[1:], strict=False):
            if parameter.grad is not None:
                content[start:stop] = parameter.grad.detach().cpu().numpy().ravel()
        return content, np.array([parameter.grad is not None for parameter in self.parameters])

    def take(self, weights: FloatArray) -> None:
        """Put weights into the parameters."""
        with torch.no_grad():
            for parameter, start, stop in zip(self.parameters, self.bounds, self.bounds[1:], strict=False):
                parameter.copy_(torch.from_numpy(weights[start:stop]).view_as(parameter))
