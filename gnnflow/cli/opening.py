"""`gnnflow report RUN --open`: shows a report in the browser."""

from __future__ import annotations

import tempfile
import webbrowser
from pathlib import Path

from gnnflow.graph.errors import GnnflowError
from gnnflow.storage.filesystem import absolute, is_local, read_bytes


def open_report(uri: str) -> str:
    """Open a report in the browser and return the file that it shows: of a remote report, a temporary copy.

    Raises GnnflowError where there is no browser.
    """
    file = Path(absolute(uri)) if is_local(uri) else _copied(uri)
    if not webbrowser.open(file.as_uri()):
        raise GnnflowError("no browser was found here", where="--open", fix=f"Open this file in one: {file}")
    return str(file)


def _copied(uri: str) -> Path:
    with tempfile.NamedTemporaryFile(prefix="gnnflow-report-", suffix=".html", delete=False) as file:
        file.write(read_bytes(uri))
    return Path(file.name)
