"""The device and the number of threads that torch computes with; settings that make a GPU deterministic."""

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
    """Raise ConfigError if a config names CUDA and torch finds no GPU. where: the key that names it."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"cuda is not allowed on {platform.node()}: {_no_cuda_reason()}", where=where, fix=_FIX)


def find_device(name: Device, *, where: str, number: int = 0) -> torch.device:
    """Return the device that a config names; number chooses among several GPUs, modulo their count.

    where: the key that names it. Raises ConfigError if it is CUDA and torch finds no GPU.
    """
    check_device(name, where=where)
    if name == "cpu" or not torch.cuda.is_available():
        return CPU
    return torch.device("cuda", number % torch.cuda.device_count())


def lock_pages(held: torch.Tensor) -> None:
    """Lock memory of this process, so that GPUs copy it while the processor works. Does nothing without a GPU.

    Raises MachineError if the system does not allow it.
    """
    if not torch.cuda.is_available():
        return
    answer = torch.cuda.cudart().cudaHostRegister(held.data_ptr(), held.nbytes, 0)  # type: ignore[no-untyped-call]
    if int(answer):
        raise MachineError(
            f"{held.nbytes >> 20} MiB of memory cannot be locked for the GPU ({answer})",
            where="train.device",
            fix="Raise the limit of locked memory (ulimit -l), or set train.scratch to a folder.",
        )


def unlock_pages(held: torch.Tensor) -> None:
    """Unlock memory that `lock_pages` locked."""
    if torch.cuda.is_available():
        torch.cuda.cudart().cudaHostUnregister(held.data_ptr())  # type: ignore[no-untyped-call]


def card_id(device: torch.device) -> str:
    """Return the identifier of a GPU, unique over all machines; empty for the CPU."""
    return "" if device.type == "cpu" else str(torch.cuda.get_device_properties(device).uuid)


def described(device: torch.device) -> str:
    """Return the name of a GPU, as results report it; empty for the CPU."""
    return "" if device.type == "cpu" else f"cuda ({torch.cuda.get_device_name(device)})"


_FIX = "Set it to cpu or auto, or run where torch is a build for CUDA and nvidia-smi shows a GPU."


def _no_cuda_reason() -> str:
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA"
    return f"torch {torch.__version__} finds no GPU (CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES')})"


@contextmanager
def computing_on(device: torch.device, *, where: str) -> Iterator[None]:
    """Make a device the current one within a block; running out of its memory raises MachineError with a fix.

    where: the key that named the device. Does nothing for a CPU. cuBLAS gets a workspace of a fixed size, by an
    environment variable: torch needs it to be deterministic.
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


@contextmanager
def compute_threads(number: int) -> Iterator[None]:
    """Compute with this number of threads within a block, whatever OMP_NUM_THREADS says."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
