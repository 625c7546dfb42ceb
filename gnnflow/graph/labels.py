"""What a node's label is: one class, several labels at once, a number, or nothing."""

from __future__ import annotations

from typing import Literal

LabelKind = Literal["single", "multi", "regression", "none"]

UNLABELLED = -1
"""The class number of a node without a label."""
