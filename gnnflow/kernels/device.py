"""Where torch computes: the device that a config names, and what makes a card compute the same bits every time."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gnnflow.config import Device
from gnnflow.graph.errors import ConfigError, MachineError

CPU = torch.device("cpu")


def check_device(name: Device, *, where: str) -> None:
    """Raise ConfigError where a config names CUDA and torch sees no card. where: the key that names it."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"cuda is not allowed on {platform.node()}: {_why_none()}", where=where, fix=_FIX)


def find_device(name: Device, *, where: str, number: int = 0) -> torch.device:
    """Return the device that a config names: of several cards the one of this number, counted round them.

    where: the key that names it. Raises ConfigError where that is CUDA and torch sees no card.
    """
    check_device(name, where=where)
    if name == "cpu" or not torch.cuda.is_available():
        return CPU
    return torch.device("cuda", number % torch.cuda.device_count())


def lock_pages(held: torch.Tensor) -> None:
    """Lock memory of this process, from and to which cards then copy beside the processor. Nothing where is no card.

    Raises MachineError where the system does not allow it.
    """
    if not torch.cuda.is_available():
        return
    answer = torch.cuda.cudart().cudaHostRegister(held.data_ptr(), held.nbytes, 0)  # type: ignore[no-untyped-call]
    if int(answer):
        raise MachineError(
            f"{held.nbytes >> 20} MiB of memory cannot be locked for the card ({answer})",
            where="train.device",
            fix="Raise the limit of locked memory (ulimit -l), or set train.scratch to a folder.",
        )


def unlock_pages(held: torch.Tensor) -> None:
    """Give locked memory free for the system to move."""
    if torch.cuda.is_available():
        torch.cuda.cudart().cudaHostUnregister(held.data_ptr())  # type: ignore[no-untyped-call]


def card_id(device: torch.device) -> str:
    """Return what tells a card from all others, on any machine; empty for the CPU."""
    return "" if device.type == "cpu" else str(torch.cuda.get_device_properties(device).uuid)


def described(device: torch.device) -> str:
    """Return what a result says of the device it was computed on: nothing of the CPU, the name of a card."""
    return "" if device.type == "cpu" else f"cuda ({torch.cuda.get_device_name(device)})"


_FIX = "Set it to cpu or auto, or run where torch is a build for CUDA and nvidia-smi shows a card."


def _why_none() -> str:
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA"
    return f"torch {torch.__version__} sees no card (CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES')})"


@contextmanager
def computing_on(device: torch.device, *, where: str) -> Iterator[None]:
    """Make a device the current one and its memory's end an error that says what to do, for the length of a block.

    where: the key that named the device. On a CPU nothing changes. cuBLAS is given a workspace of a fixed size, without
    which torch refuses to be deterministic: an environment variable, since torch reads no other.
    """
    if device.type == "cpu":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        with torch.cuda.device(device):
            yield
    except torch.OutOfMemoryError as error:
        raise MachineError(
            f"the memory of {described(device)} is full ({str(error).splitlines()[0]})",
            where=where,
            fix="Lower train.batch_size or train.prefetch, raise graph.partitions for scoring, or set it to cpu.",
        ) from error
