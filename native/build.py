"""Compile the native core beside the module that loads it: part of the package's build, so of `pip install` too.

Without a compiler the package is built without it: gnnflow then computes with torch's kernels, and says so once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = Path("gnnflow/native/_native.so")
FLAGS = (
    "-O3",
    "-std=gnu11",
    "-Wall",
    "-ffp-contract=off",  # a fused product and sum would round otherwise than a processor without it
    "-fno-trapping-math",  # nobody asks for floating-point exceptions; choices then run in lanes on every processor
    "-mprefer-vector-width=512",
    "-fPIC",
    "-pthread",
)


def compile_core(root: Path = ROOT) -> bool:
    """Compile the library and return whether that was possible; why not is written to stderr."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        print("gnnflow: no C compiler, so its native kernels are left out", file=sys.stderr)  # noqa: T201
        return False
    # Beside its name first: a process that has the old library loaded keeps it.
    made = root / LIBRARY.with_suffix(".tmp")
    flags = [flag for flag in FLAGS if not flag.startswith("-m") or sysconfig.get_platform().endswith("x86_64")]
    try:
        _compile([compiler, *flags], sorted((root / "native").glob("*.c")), made)
    except subprocess.CalledProcessError as error:
        print(f"gnnflow: its native kernels could not be compiled:\n{error.stderr}", file=sys.stderr)  # noqa: T201
        return False
    made.replace(root / LIBRARY)
    return True


def is_current(root: Path = ROOT) -> bool:
    """Return whether the library is newer than everything that it is compiled from, this file included."""
    library = root / LIBRARY
    return library.is_file() and library.stat().st_mtime > max(
        source.stat().st_mtime for source in (root / "native").iterdir() if source.is_file()
    )


def _compile(compiler: Sequence[str], sources: Sequence[Path], made: Path) -> None:
    """Compile the sources beside each other, on all cores, and link them. Raises CalledProcessError."""

    def run(*arguments: str) -> None:
        subprocess.run([*compiler, *arguments], capture_output=True, text=True, check=True)  # noqa: S603

    with TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = [str(Path(folder, source.stem).with_suffix(".o")) for source in sources]
        list(pool.map(lambda source, of: run("-c", str(source), "-o", of), sources, objects))
        run("-shared", *objects, "-o", str(made))


class NativeHook(BuildHookInterface[Any]):
    """Adds the library to a wheel, then one for this platform alone, and leaves it in a checkout that is installed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files of the wheel are collected.

        A checkout's library that is newer than its sources is kept: a second environment of it takes the same file.
        """
        if self.target_name != "wheel":
            return
        if not (version == "editable" and is_current(Path(self.root))) and not compile_core(Path(self.root)):
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        if version != "editable":
            build_data["force_include"][str(Path(self.root) / LIBRARY)] = str(LIBRARY)
