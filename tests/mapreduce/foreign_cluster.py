"""A Dask cluster that others started: processes of its own, with or without gnnflow."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import distributed

from tests.conftest import REPOSITORY
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

# Without `site` the editable install of gnnflow is not found; everything else is where Dask is.
_WITHOUT_SITE = "import sys; sys.path.append({packages!r}); from distributed.cli.dask_{part} import main; main()"
_PACKAGES = str(Path(distributed.__file__).parents[1])
_START_SECONDS = 60


class ForeignCluster:
    """A scheduler and workers, each with modules of its own. port: of a scheduler that runs already."""

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.port = port or free_port()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start_scheduler(self, *, modules: Path | None = REPOSITORY) -> None:
        """modules: a folder with a gnnflow, None for none."""
        self._start("scheduler", "scheduler", modules, "--host", "127.0.0.1", "--port", str(self.port))
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.1)
        raise TimeoutError(self.log("scheduler"))

    def start_worker(
        self, name: str, *, modules: Path | str | None = REPOSITORY, resources: str = "", port: int = 0
    ) -> None:
        """resources: as `dask worker --resources` takes them. port: of the worker, any by default."""
        offered = ("--resources", resources) if resources else ()
        offered += ("--worker-port", str(port))
        options = ("--name", name, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
        self._start(name, "worker", modules, self.address, *options, *offered, "--local-directory", str(self.folder))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def _start(self, name: str, part: str, modules: Path | str | None, *options: str) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        if modules is not None:
            environment["PYTHONPATH"] = str(modules)
        code = _WITHOUT_SITE.format(packages=_PACKAGES, part=part)
        extra = ("--dashboard-address", "127.0.0.1:0") if part == "scheduler" else ()
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-S", "-c", code, *options, *extra],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
            )


@contextlib.contextmanager
def foreign_cluster(folder: Path, *, port: int | None = None) -> Iterator[ForeignCluster]:
    """Yield a cluster of which nothing is started, and stop what was. port: of a scheduler that runs already."""
    cluster = ForeignCluster(folder, port=port)
    try:
        yield cluster
    finally:
        cluster.stop()


def another_version(folder: Path) -> Path:
    """Return a folder whose gnnflow is an older one."""
    package = folder / "older" / "gnnflow"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "0.0.9"\n')
    return package.parent


def another_torch(folder: Path) -> str:
    """Return the folders of our gnnflow and of a note that torch is an older one."""
    note = folder / "note" / "torch-1.0.0.dist-info"
    note.mkdir(parents=True)
    (note / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0.0\n")
    return os.pathsep.join(map(str, (note.parent, REPOSITORY)))
