"""Prints, at the end of a session, which layers which executions cannot run, and why.

A parallel session prints it only where this folder is named (`pytest tests/contracts --numprocesses 2`), because its
main process reads no other conftest. The short summary names the same gaps in any session.
"""

from __future__ import annotations


def pytest_terminal_summary(terminalreporter):
    gaps = {
        (report.nodeid.partition("[")[2].rstrip("]"), report.wasxfail)
        for report in terminalreporter.stats.get("xfailed", [])
        if "contracts/test_executions.py::" in report.nodeid
    }
    if gaps:
        terminalreporter.section("gaps of executions")
        width = max(len(pair) for pair, _ in gaps)
        for pair, reason in sorted(gaps):
            terminalreporter.line(f"{pair:{width}}  {reason}")
