"""Seconds of NN-TGAR's stages (GraphTheta, section 4) in a pass over the layers, forward and backward.

A layer says where one stage ends and the next begins, by the tensors that go over. In the backward pass the gradients
of these tensors say it again, in the other direction. That takes 0.08 ms in a step of three layers, whatever the size
of the graph. On a graphics card the times are of launching the work, since nothing waits for its end.

`gnnflow.graph.run_facts.STAGE_PARTS` names the stages.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from time import perf_counter_ns
from typing import Any, Protocol

from torch import Tensor
from torch.autograd import Variable

_engine: Any = Variable._execution_engine  # noqa: SLF001 - the only way to hear of a backward pass's end

_OUTSIDE = ""
"""What is no layer's: input rows, head, loss, optimiser."""


class Stages(Protocol):
    """Hears where a pass is."""

    def enter(self, stage: str, *, over: Iterable[Tensor] = (), back: str = _OUTSIDE) -> None:
        """Note that a stage begins in the forward pass. over: tensors that go into it.

        Where the backward pass has the gradient of one of these, it enters stage `back`.
        """

    def leave(self, *, over: Iterable[Tensor], back: str) -> None:
        """Note that the layers are done. over: the tensors that the rest of the model reads."""


class Untimed:
    """Hears nothing."""

    def enter(self, stage: str, *, over: Iterable[Tensor] = (), back: str = _OUTSIDE) -> None:
        """Do nothing."""

    def leave(self, *, over: Iterable[Tensor], back: str) -> None:
        """Do nothing."""


UNTIMED = Untimed()


class StageClock:
    """Counts the seconds of each stage."""

    def __init__(self) -> None:
        self._spent: dict[str, int] = {}
        self._stage, self._since = _OUTSIDE, 0

    def enter(self, stage: str, *, over: Iterable[Tensor] = (), back: str = _OUTSIDE) -> None:
        """Count the time so far to the stage that was, and go on with this one."""
        self._switch(stage)
        self._hook_gradients(over, partial(self._switch, back))

    def leave(self, *, over: Iterable[Tensor], back: str) -> None:
        """Count nothing from here until the backward pass comes back."""
        self._switch(_OUTSIDE)
        self._hook_gradients(over, partial(self._begin_back, back))

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage so far, as `<stage>_seconds`."""
        return {f"{stage}_seconds": spent / 1e9 for stage, spent in self._spent.items()}

    def _switch(self, stage: str) -> None:
        now = perf_counter_ns()
        if self._stage:
            self._spent[self._stage] = self._spent.get(self._stage, 0) + now - self._since
        self._stage, self._since = stage, now

    def _begin_back(self, stage: str) -> None:
        self._switch(stage)
        # The first layer ends with the gradients of weights, which nothing comes after.
        _engine.queue_callback(partial(self._switch, _OUTSIDE))

    @staticmethod
    def _hook_gradients(over: Iterable[Tensor], then: Any) -> None:
        for tensor in over:
            # of the node, not of the tensor, which would take twice as long
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(lambda _: then())
