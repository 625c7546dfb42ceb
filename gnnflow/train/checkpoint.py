"""Writes checkpoints: one object that holds model, best model, updater and cursor, replaced as a whole.

The object is the sha256 of what follows, then a safetensors file whose metadata carries the JSON part: tensors and
counters can never be of two different moments, on a local disk or an object store alike, and a changed bit is found
before training goes on from it. Nothing is unpickled.

The file is put together here and not by safetensors' own writer, which holds Python's lock while it copies: training
would stand still while a thread writes. What is written is read by safetensors.

A `CheckpointWriter` writes in a thread: training waits for a copy in memory, not for a disk or network. At most one
write is under way and at most one checkpoint waits; a newer one takes the place of one that waits. So memory holds two
copies of what is written at most, and a store slower than the checkpoints come is given the newest.
"""

from __future__ import annotations

import hashlib
import json
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors_torch
from torch import Tensor

from gnnflow.graph.arrays import Array
from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import exists, read_bytes
from gnnflow.storage.writing import replace_file

_STATE = "state"
_HEADER_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 8
_DIGEST_BYTES = 32
_AGAIN = "The file is damaged or of another version of gnnflow: training begins again."
_GROUPS = ("model", "best", "updater")
# How the format calls what torch holds.
_NAMES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class CheckpointError(StorageError):
    """A checkpoint is there and cannot be used."""


@dataclass(frozen=True)
class Checkpoint:
    """A moment of training.

    `digest` identifies the fit, `state` is what JSON can hold, the rest are tensors by name.
    """

    digest: str
    state: dict[str, Any]
    model: Mapping[str, Tensor]
    best: Mapping[str, Tensor]
    updater: Mapping[str, Tensor]


def write_checkpoint(uri: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint in one atomic step, replacing the one before."""
    # every tensor by its name in the file
    parts = {f"{group}/{name}": tensor for group in _GROUPS for name, tensor in getattr(checkpoint, group).items()}
    header = _header(parts, json.dumps({"digest": checkpoint.digest, "state": checkpoint.state}))
    content = np.empty(_DIGEST_BYTES + len(header) + sum(part.nbytes for part in parts.values()), np.uint8)
    place = _DIGEST_BYTES
    for piece in (np.frombuffer(header, np.uint8), *map(_bytes_of, parts.values())):
        content[place : place + len(piece)] = piece
        place += len(piece)
    digest = hashlib.sha256(content.data[_DIGEST_BYTES:]).digest()
    content[:_DIGEST_BYTES] = np.frombuffer(digest, np.uint8)
    replace_file(uri, content.data)


def _header(parts: Mapping[str, Tensor], state: str) -> bytes:
    """Return what precedes the tensors' bytes in a safetensors file: the length of a JSON object, and the object."""
    described: dict[str, Any] = {"__metadata__": {_STATE: state}}
    start = 0
    for name, part in parts.items():
        stop = start + part.nbytes
        described[name] = {"dtype": _NAMES[part.dtype], "shape": list(part.shape), "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(described).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return _HEADER_LENGTH.pack(len(text)) + text


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors, which stay as they are whatever training does next.

    NumPy copies, because torch divides so short a work over its threads and waits for them: 310 ms instead of 40 for
    160 MB where other programs have the cores.
    """
    return {
        name: torch.from_numpy(_bytes_of(tensor).copy()).view(tensor.dtype).reshape(tensor.shape)
        for name, tensor in tensors.items()
    }


def _bytes_of(tensor: Tensor) -> Array:
    """Return a tensor's values as bytes: its own memory, where that is contiguous."""
    return tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy()


def read_checkpoint(uri: str) -> Checkpoint | None:
    """Return the checkpoint, or None where there is none. Raises CheckpointError where it cannot be understood."""
    if not exists(uri):
        return None
    held = read_bytes(uri)
    expected, content = held[:_DIGEST_BYTES], held[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != expected:
        raise CheckpointError("not a checkpoint (its content is not what was written)", where=uri, fix=_AGAIN)
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
        raise CheckpointError(f"not a checkpoint ({error})", where=uri, fix=_AGAIN) from error


class CheckpointWriter:
    """Writes checkpoints to one URI in a thread. Leaving the `with` block waits until the newest is whole.

    A write that fails is raised in the loop: by the next `put` or `check`, or at the end of the block. If the block
    itself fails, its error is raised, since it came first.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._change = threading.Condition()
        self._waiting: Checkpoint | None = None
        self._closing = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="gnnflow-checkpoints", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what is under way and what waits, and end the thread."""
        with self._change:
            self._closing = True
            self._change.notify()
        self._thread.join()
        if error is None:
            self.check()

    def put(self, checkpoint: Checkpoint) -> None:
        """Copy a checkpoint's model and updater, have it written, and return. `best` is taken as it is: a copy already.

        Raises what an earlier write raised.
        """
        self.check()
        taken = replace(checkpoint, model=copied(checkpoint.model), updater=copied(checkpoint.updater))
        with self._change:
            self._waiting = taken
            self._change.notify()

    def check(self) -> None:
        """Raise what an earlier write raised."""
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while (checkpoint := self._next()) is not None:
            try:
                write_checkpoint(self._uri, checkpoint)
            except Exception as error:  # noqa: BLE001 - whatever it is, the loop raises it
                self._failure = error
                return

    def _next(self) -> Checkpoint | None:
        """Wait for a checkpoint and return it, or None at the end."""
        with self._change:
            self._change.wait_for(lambda: self._waiting is not None or self._closing)
            taken, self._waiting = self._waiting, None
            return taken
