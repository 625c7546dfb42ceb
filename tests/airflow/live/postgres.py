"""A PostgreSQL server of Debian's package, for one test."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "postgres"


def find_binaries() -> Path | None:
    """Return the folder of initdb and postgres; Debian keeps them off the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: int(file.parts[-3]))
    where = shutil.which("initdb")
    return found[-1].parent if found else Path(where).resolve().parent if where else None


@contextlib.contextmanager
def postgres(binaries: Path) -> Iterator[str]:
    """Run a server with an empty database and yield its SQLAlchemy URL."""
    # The server refuses to run as root, and its user must reach the folder: not below pytest's own, which is private,
    # and where tests make their temporary files.
    as_user = ["runuser", "-u", USER, "--"] if os.geteuid() == 0 else []
    folder, port = Path(tempfile.mkdtemp(prefix="gnnflow-postgres-", dir="/tmp" if as_user else None)), free_port()
    if as_user:
        shutil.chown(folder, USER)
    data = folder / "data"
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    control = [*as_user, str(binaries / "pg_ctl"), "-D", str(data), "-w"]
    log = ["-l", str(folder / "log"), "-o", options]

    def call(*command: str) -> None:
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)

    try:
        call(*as_user, str(binaries / "initdb"), "-D", str(data), "-U", USER, "-A", "trust", "--no-sync")
        call(*control, *log, "start")
        yield f"postgresql+psycopg2://{USER}@127.0.0.1:{port}/postgres"
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            call(*control, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)
