"""Activations between layers, by their names in the config."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from gnnflow.kernels import elu

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": functional.relu, "elu": elu}
