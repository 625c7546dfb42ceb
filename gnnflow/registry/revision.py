"""The git revision of the folder a config lies in."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SECONDS = 10


def git_revision(config_uri: str) -> str | None:
    """Return the commit a config file was read at, `-dirty` appended where files differ from it.

    None where the file is not on this machine, not in a checkout, or git is not installed.
    """
    folder = Path(config_uri).expanduser().absolute().parent
    if not config_uri or "://" in config_uri or not folder.is_dir():
        return None
    # --exclude keeps tags out of the answer: it is always a whole commit id.
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603 - a fixed command; only the folder varies
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
