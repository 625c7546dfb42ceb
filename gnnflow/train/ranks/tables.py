"""A parameter that is looked up by rows, at its server: a step moves the rows of its batches, not the table.

A dense optimiser moves every row in every step: where a step has not read a row its gradient is zero, and momentum and
weight decay move it all the same. Here such a row is left as it is, and takes the steps that it missed when it is next
read or stepped: by the same optimiser, one after the other, each at its own learning rate. So the weights that anyone
sees equal the dense optimiser's to rounding, unlike the weights of `torch.optim.SparseAdam`, which skips these steps.

Without weight decay a row that was never read has nothing to take, and of a long absence only as many steps as momentum
needs to fade below rounding. With it every step counts, so the whole table catches up every CATCH_UP_STEPS steps, at
the cost that a dense optimiser has in each.

What this saves is bytes, not the server's processor: a missed step is taken row by row later, not in one pass now.
Of 1M x 16 numbers, 20,000 rows a step and no weight decay, a dense Adam's step took 27 ms of processor time; 40 steps
by rows took 24 ms each and 28 ms for catching up at their end, which grows until momentum has faded (one thread, on a
machine with other work).

Shapes: F rows of the table, R rows of a step, W columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gnnflow.config import TrainConfig
from gnnflow.train.objective import build_optimizer

CATCH_UP_STEPS = 128
_FADED = 1e-9


class RowTable:
    """One table [F, W] and its rows' optimiser state, each row as far as it has been asked for."""

    def __init__(self, weight: Tensor, config: TrainConfig) -> None:
        self._weight = weight
        self._config = config
        self._lagging = nn.Parameter(weight[:0].clone())
        self._optimizer = build_optimizer(nn.ParameterList([self._lagging]), config)
        self._state: dict[str, Tensor] = {}
        self._begun = 0  # steps before the first that is known here
        self._rates: list[float] = []  # of each step since
        self._taken = torch.zeros(len(weight), dtype=torch.int64)
        self._touched = torch.zeros(len(weight), dtype=torch.bool)

    @property
    def num_steps(self) -> int:
        """The number of steps that the table has taken."""
        return self._begun + len(self._rates)

    def rows(self, rows: Tensor) -> Tensor:
        """Return the weights [R, W] of distinct rows, after all steps so far."""
        self._catch_up(rows)
        return self._weight[rows]

    def whole(self) -> Tensor:
        """Return the table after all steps so far."""
        self._catch_up(torch.arange(len(self._weight)))
        return self._weight

    def lend(self, rows: Tensor, parameter: nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
        """Put distinct rows, and their state, into an optimiser's parameter, which is to be stepped."""
        self._catch_up(rows)
        parameter.data = self._weight[rows]
        _place(optimizer, parameter, {name: kept[rows] for name, kept in self._state.items()}, step=self.num_steps)

    def store_rows(self, rows: Tensor, parameter: nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
        """Store the stepped rows that were lent."""
        self._weight[rows] = parameter.detach()
        for name, stepped in _per_row(optimizer, parameter).items():
            if name not in self._state:
                self._state[name] = torch.zeros_like(self._weight)
            self._state[name][rows] = stepped
        self._rates.append(optimizer.param_groups[0]["lr"])
        self._touched[rows] = True
        self._taken[rows] = self.num_steps
        if self._config.weight_decay and len(self._rates) % CATCH_UP_STEPS == 0:
            self.whole()

    def state(self) -> dict[str, Tensor]:
        """Return the state that a dense optimiser would have: of the whole table, after all steps so far."""
        self._catch_up(torch.arange(len(self._weight)))
        if not self._state:
            return {}
        return {**self._state, "step": torch.tensor(float(self.num_steps))}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put back what `state` returned."""
        self._state = {name: kept.clone() for name, kept in state.items() if name != "step"}
        self._begun, self._rates = int(state.get("step", torch.tensor(0.0))), []
        self._taken.fill_(self._begun)
        self._touched = sum((kept != 0).any(1) for kept in self._state.values()) > torch.zeros_like(self._taken)

    def _catch_up(self, rows: Tensor) -> None:
        """Apply to rows the steps that they missed."""
        horizon = self._horizon()
        lagging = self._taken[rows] < self.num_steps
        if not self._config.weight_decay:
            lagging &= self._touched[rows]
        behind = rows[lagging & (horizon > 0)]
        if not len(behind):
            return
        # rows that have taken fewest steps first [B], and how many each has
        taken, order = self._taken[behind].sort()
        behind = behind[order]
        weight, state = self._weight[behind], {name: kept[behind] for name, kept in self._state.items()}
        steps = torch.arange(int(taken[0]), self.num_steps)
        # the rows that a step is missed by, and that momentum still moves: a run of them for each step
        starts = torch.searchsorted(taken, steps - min(horizon, self.num_steps + 1), right=True).tolist()
        stops = torch.searchsorted(taken, steps, right=True).tolist()
        for step, start, stop in zip(steps.tolist(), starts, stops, strict=True):
            if start < stop:
                self._replay(step, weight[start:stop], {name: kept[start:stop] for name, kept in state.items()})
        self._fade(state, (self.num_steps - taken - horizon).clamp(min=0) if horizon < math.inf else None)
        self._weight[behind] = weight
        for name, kept in state.items():
            self._state[name][behind] = kept
        self._taken[behind] = self.num_steps

    def _replay(self, step: int, weight: Tensor, state: dict[str, Tensor]) -> None:
        """Take one step of a gradient of zero, in place."""
        self._lagging.data = weight
        self._lagging.grad = torch.zeros_like(weight)
        _place(self._optimizer, self._lagging, state, step=step)
        self._optimizer.param_groups[0]["lr"] = self._rates[step - self._begun]
        self._optimizer.step()

    def _fade(self, state: dict[str, Tensor], steps: Tensor | None) -> None:
        """Shrink averages by steps [B] that are not worth replaying."""
        if steps is None or not steps.any():
            return
        for name, beta in zip(("exp_avg", "exp_avg_sq"), self._optimizer.param_groups[0]["betas"], strict=True):
            state[name] *= torch.pow(torch.tensor(beta, dtype=torch.float64), steps)[:, None].float()

    def _horizon(self) -> float:
        """Return how many steps without a gradient are worth replaying."""
        if self._config.weight_decay:
            return math.inf
        betas = self._optimizer.param_groups[0].get("betas")
        return 0 if betas is None else math.ceil(math.log(_FADED) / math.log(betas[0] / math.sqrt(betas[1])))


def _place(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, state: dict[str, Tensor], *, step: int) -> None:
    """Make this an optimiser's state of a parameter; none before the first step, as the optimiser itself begins."""
    optimizer.state[parameter] = {**state, "step": torch.tensor(float(step))} if state else {}


def _per_row(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, Tensor]:
    """Return an optimiser's state of a parameter that has the parameter's shape."""
    held = optimizer.state[parameter]
    return {name: kept for name, kept in held.items() if isinstance(kept, Tensor) and kept.shape == parameter.shape}
