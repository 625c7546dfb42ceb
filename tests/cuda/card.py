"""The card that tests compute on, or the processor where Triton's interpreter stands in for one."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import torch

IS_THERE = torch.cuda.is_available()
IS_INTERPRETED = (
    not IS_THERE and os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
)
CARD = torch.device("cuda" if IS_THERE else "cpu")
NEED_NONE = frozenset({Path(__file__).with_name("test_compiled.py")})
# files whose tests ask of a card nothing but to run our programs
INTERPRETED = frozenset({Path(__file__).with_name("test_kernels.py")})
