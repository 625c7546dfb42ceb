"""What survives a kill: one object that holds model, best model, updater and cursor, replaced as a whole.

The object is the sha256 of what follows, then a safetensors file whose metadata carries the JSON part: tensors and
counters can never be of two different moments, on a local disk or an object store alike, and a changed bit is found
before training goes on from it. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from safetensors import SafetensorError
from safetensors import torch as safetensors_torch
from torch import Tensor

from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import exists, read_bytes, write_atomic

_STATE = "state"
_HEADER_LENGTH = struct.Struct("<Q")
_DIGEST_BYTES = 32
_AGAIN = "The file is damaged or of another version of gnnflow: delete it and train again."
_GROUPS = ("model", "best", "updater")


@dataclass(frozen=True)
class Checkpoint:
    """A moment of training.

    `digest` identifies the fit, `state` is JSON, the rest are tensors by name.
    """

    digest: str
    state: dict[str, Any]
    model: Mapping[str, Tensor]
    best: Mapping[str, Tensor]
    updater: Mapping[str, Tensor]


def write_checkpoint(uri: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint in one atomic step, replacing the one before."""
    tensors = {
        f"{group}/{name}": tensor.detach().contiguous()
        for group in _GROUPS
        for name, tensor in getattr(checkpoint, group).items()
    }
    text = json.dumps({"digest": checkpoint.digest, "state": checkpoint.state})
    content = safetensors_torch.save(tensors, metadata={_STATE: text})
    write_atomic(uri, hashlib.sha256(content).digest() + content)


def read_checkpoint(uri: str) -> Checkpoint | None:
    """Return the checkpoint, or None where there is none. Raises StorageError where it cannot be understood."""
    if not exists(uri):
        return None
    held = read_bytes(uri)
    expected, content = held[:_DIGEST_BYTES], held[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != expected:
        raise StorageError("not a checkpoint (its content is not what was written)", where=uri, fix=_AGAIN)
    try:
        (length,) = _HEADER_LENGTH.unpack_from(content)
        header = json.loads(content[_HEADER_LENGTH.size : _HEADER_LENGTH.size + length])
        stored = json.loads(header["__metadata__"][_STATE])
        groups: dict[str, dict[str, Tensor]] = {group: {} for group in _GROUPS}
        for name, tensor in safetensors_torch.load(content).items():
            group, _, rest = name.partition("/")
            groups[group][rest] = tensor
        return Checkpoint(stored["digest"], stored["state"], **groups)
    except (SafetensorError, struct.error, ValueError, KeyError) as error:
        raise StorageError(f"not a checkpoint ({error})", where=uri, fix=_AGAIN) from error
