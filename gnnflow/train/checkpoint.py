"""What survives a kill: one object that holds model, best model, optimiser and cursor, replaced as a whole.

The object is a safetensors file whose metadata carries the JSON part, so tensors and counters can never be of
two different moments, on a local disk or an object store alike. Nothing is unpickled.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors_torch
from torch import Tensor

from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import exists, read_bytes, write_atomic

_STATE = "state"
_HEADER_LENGTH = struct.Struct("<Q")
_GROUPS = ("model", "best", "optimizer")


@dataclass(frozen=True)
class Checkpoint:
    """A moment of training.

    `request` identifies what is trained, `state` is JSON, the rest are tensors by name.
    """

    request: str
    state: dict[str, Any]
    model: Mapping[str, Tensor]
    best: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]


def write_checkpoint(uri: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint in one atomic step, replacing the one before."""
    tensors = {
        f"{group}/{name}": tensor.detach().contiguous()
        for group in _GROUPS
        for name, tensor in getattr(checkpoint, group).items()
    }
    text = json.dumps({"request": checkpoint.request, "state": checkpoint.state})
    write_atomic(uri, safetensors_torch.save(tensors, metadata={_STATE: text}))


def read_checkpoint(uri: str) -> Checkpoint | None:
    """Return the checkpoint, or None where there is none. Raises StorageError where it is damaged."""
    if not exists(uri):
        return None
    content = read_bytes(uri)
    try:
        (length,) = _HEADER_LENGTH.unpack_from(content)
        header = json.loads(content[_HEADER_LENGTH.size : _HEADER_LENGTH.size + length])
        stored = json.loads(header["__metadata__"][_STATE])
        tensors = safetensors_torch.load(content)
    except (SafetensorError, struct.error, ValueError, KeyError) as error:
        raise StorageError(
            f"not a checkpoint ({error})", where=uri, fix="The file is damaged: delete it and train again."
        ) from error
    groups: dict[str, dict[str, Tensor]] = {group: {} for group in _GROUPS}
    for name, tensor in tensors.items():
        group, _, rest = name.partition("/")
        groups[group][rest] = tensor
    return Checkpoint(stored["request"], stored["state"], groups["model"], groups["best"], groups["optimizer"])


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's state as named tensors, without what the config says."""
    state = optimizer.state_dict()["state"]
    return {f"{place}/{name}": tensor for place, tensors in state.items() for name, tensor in tensors.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put named tensors back into a freshly built optimiser of the same parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        place, _, name = key.partition("/")
        state.setdefault(int(place), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
