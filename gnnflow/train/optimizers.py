"""torch's optimisers without its compiler, which they import at their first use: a second of every process that trains.

Methods of an optimiser are wrapped so that torch.compile leaves them alone, and the wrappers import `torch._dynamo`
whether or not anything is compiled. Nothing is here, so what they wrap is called.
"""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

import torch

Kind = TypeVar("Kind", bound=torch.optim.Optimizer)

_WRAPPED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def eager(kind: type[Kind]) -> type[Kind]:
    """Return a class of optimisers with the results of another, for training that is not compiled.

    A step is not differentiable: there is no gradient of what it computes.
    """
    methods: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in _WRAPPED}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), {**methods, "__module__": __name__})
