"""The core compiled for one instruction set at a time: each gives the bits of the one that is installed, for all."""

from __future__ import annotations

import ast
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gnnflow.kernels import Csr, Halves, binary_cross_entropy, gated_sum, segment_max, softmax_sums, weighted_sum
from gnnflow.kernels.core import kernels
from gnnflow.native.library import load

SOURCES = Path(__file__).resolve().parents[2] / "native"
CPU = Path("/proc/cpuinfo")
# from the narrowest; of those that a processor knows the installed core takes the last
SETS = {"sse2": "-mno-avx", "avx2": "-mavx2", "avx512f": "-mavx512f"}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or platform.machine() != "x86_64" or shutil.which("gcc") is None,
        reason="needs gcc on an x86-64 Linux",
    ),
]


def compiled(flag, folder):
    """Compile the core with the build's flags and one more."""
    build = ast.parse((SOURCES / "build.py").read_text())
    (flags,) = (
        ast.literal_eval(each.value)
        for each in build.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "FLAGS"
    )
    made = folder / f"core{flag}.so"
    sources = sorted(map(str, SOURCES.glob("*.c")))
    subprocess.run(["gcc", *flags, flag, "-shared", "-DFOR_EVERY_PROCESSOR=", "-o", str(made), *sources], check=True)
    return load(made)


def uses_core(module):
    return getattr(module, "kernels", None) is kernels


def results():
    """Everything that the core computes on floats, over rows of every kind and of widths that end in every block."""
    generator = torch.Generator().manual_seed(0)
    degree = (torch.rand(200, generator=generator) ** 8 * 150).long()
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    csr = Csr(offsets, torch.randint(150, (int(offsets[-1]),), generator=generator), 150)
    logits = torch.randn(90, 121, generator=generator)
    found = [binary_cross_entropy(logits, torch.ones_like(logits))]
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for heads, width in ((1, 1), (1, 3), (2, 6), (3, 9), (2, 21), (4, 64), (1, 121)):
            value = torch.randn(150, heads, width, generator=generator)
            value[:9] *= 1e-6  # subnormal in float16
            value = value.to(dtype).requires_grad_()
            logit = torch.randn(csr.num_edges, heads, generator=generator).requires_grad_()
            attended, largest = softmax_sums(csr, logit, value), segment_max(csr, logit.detach(), value)
            sums = weighted_sum(csr, logit, value), weighted_sum(csr, None, value)
            loss = (attended.mean + sum(sums) + largest.clamp(-9, 9)).float().square().sum()
            gradients = torch.autograd.grad(loss + attended.denominator.square().sum(), [value, logit])
            halves = [torch.randn(rows, heads, generator=generator).requires_grad_() for rows in (150, 200)]
            mean = softmax_sums(csr, Halves(*halves, 0.2), value).mean
            gradients += torch.autograd.grad(mean.float().square().sum(), [value, *halves])
            found += [*attended, *sums, largest, mean, *gradients]
    for width in (1, 16, 21):
        given = [torch.randn(rows, width, generator=generator).requires_grad_() for rows in (200, 150, 150)]
        gated = gated_sum(csr, *given, torch.rand(csr.num_edges, generator=generator))
        found += [gated, *torch.autograd.grad(gated.square().sum(), given)]
    return found


def test_every_instruction_set_gives_the_same_bits(tmp_path, monkeypatch):
    assert kernels() is not None
    installed, known = results(), CPU.read_text().split()
    narrower = [name for name in SETS if name in known][:-1]
    if not narrower:
        pytest.skip("this processor knows one of the instruction sets alone")
    users = [module for name, module in sys.modules.items() if name.startswith("gnnflow.") and uses_core(module)]
    for name in narrower:
        library = compiled(SETS[name], tmp_path)
        for module in users:
            monkeypatch.setattr(module, "kernels", lambda library=library: library)
        assert all(torch.equal(*pair) for pair in zip(results(), installed, strict=True)), name
