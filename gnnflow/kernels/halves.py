"""Logits that are made of one half per node."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Halves(NamedTuple):
    """The logit of an edge and head is LeakyReLU(source [S, H] + target [T, H]), of a negative slope."""

    source: Tensor
    target: Tensor
    slope: float
