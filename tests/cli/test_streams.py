"""What a daemon, cron or `head` makes of the standard streams is no reason to fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gnnflow.cli.streams import Dropping
from tests.small_graphs import graph_config, write_graph

COMMAND = "from gnnflow.cli import main; main()"


def code_of(arguments: str, how: str, folder: Path) -> int:
    """Return a command's exit code where bash redirects its streams; of a pipeline that of its first command."""
    line = f"{sys.executable} -c '{COMMAND}' {arguments} {how}; exit ${{PIPESTATUS[0]}}"
    return subprocess.run(["bash", "-c", line], cwd=folder, check=False, stdout=subprocess.DEVNULL).returncode


@pytest.mark.parametrize(
    ("how", "code"),
    [("0<&- 1>&- 2>&-", 0), ("2>&1 | true", 141)],
)
def test_closed_streams_are_written_to_nowhere(tmp_path: Path, how: str, code: int) -> None:
    assert code_of("models list", how, tmp_path) == code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code"),
    [("1>&-", 0), ("2>&-", 0), ("0<&- 1>&- 2>&-", 0), ("2>/dev/full", 0), (">/dev/full", 2), ("2>&1 | head -1", 141)],
)
def test_a_run_ends_as_it_would_where_nobody_reads_it(tmp_path: Path, how: str, code: int) -> None:
    write_graph(tmp_path)
    file = tmp_path / "c.yaml"
    file.write_text(graph_config(tmp_path, train={"epochs": 1}).model_dump_json(exclude_none=True))
    assert code_of(f"run {file}", how, tmp_path) == code


def test_what_cannot_be_written_is_dropped() -> None:
    with open("/dev/full", "w", encoding="utf-8", buffering=1) as full:  # noqa: PTH123
        stream = Dropping(full)
        stream.write("a line\n")
        stream.flush()
        assert os.readlink(f"/proc/self/fd/{full.fileno()}") == os.devnull  # noqa: PTH115
        assert stream.encoding == "utf-8"
