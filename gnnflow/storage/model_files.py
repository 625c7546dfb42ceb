"""The names of a saved model's files, for those that copy or link to them. `layers/saved.py` reads and writes them."""

from __future__ import annotations

WEIGHTS = "model.safetensors"
DESCRIPTION = "model.json"
MODEL_FILES = (WEIGHTS, DESCRIPTION)
