"""A report is opened from where it lies, and one of a store that is not this machine's from a copy."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import fsspec
import pytest

from gnnflow.cli.opening import open_report
from gnnflow.graph.errors import GnnflowError


def test_a_local_report_is_opened_where_it_lies_and_a_remote_one_as_a_copy(tmp_path: Path, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: not opened.append(url))
    (tmp_path / "a report.html").write_text("here")
    assert open_report(f"{tmp_path}/a report.html") == f"{tmp_path}/a report.html"
    assert opened == [f"file://{tmp_path}/a%20report.html"]
    with fsspec.open("memory://far/report.html", "w") as file:
        file.write("there")
    copy = Path(open_report("memory://far/report.html"))
    assert copy.read_text() == "there"
    assert opened[1] == copy.as_uri()
    copy.unlink()


def test_without_a_browser_the_file_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    with pytest.raises(GnnflowError, match=r"Open this file in one: .*report\.html"):
        open_report(f"{tmp_path}/report.html")
