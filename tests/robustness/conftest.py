"""Prints, at the end of a session, how the odd inputs, the damages and the kills of this folder ended.

A parallel session prints it only where this folder is named, because its main process reads no other conftest.
"""

from __future__ import annotations

from collections import Counter


def pytest_terminal_summary(terminalreporter):
    families: dict[str, Counter[str]] = {}
    ends: dict[str, Counter[str]] = {"damages": Counter(), "kills": Counter(), "faults of S3": Counter()}
    for end in ("passed", "failed"):
        for report in terminalreporter.stats.get(end, []):
            told = dict(report.user_properties)
            if "family" in told:
                how = told["must"] if end == "passed" else "wrong"
                families.setdefault(told["family"], Counter())[how] += 1
            for name, counted in ends.items():
                counted.update(told.get(name, {}))
    lines = [
        f"{family:12} {found['refused']:5} refused, {found['accepted']:4} accepted, {found['either']:3} either, "
        f"{found['wrong']:4} wrong"
        for family, found in sorted(families.items())
    ]
    lines += [f"{name}: {dict(counted)}" for name, counted in ends.items() if counted]
    if lines:
        terminalreporter.section("robustness")
        for line in lines:
            terminalreporter.line(line)
