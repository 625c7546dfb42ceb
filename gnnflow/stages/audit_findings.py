"""An audit of a completed run, and what its checks read of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gnnflow.config import Config, config_from_dict
from gnnflow.graph.facts import SelectFacts
from gnnflow.graph.findings import Finding, Verdict
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import read_facts, read_manifest
from gnnflow.storage.run_folder import read_run


@dataclass(frozen=True)
class Audit:
    """The findings about a run, in the order of the checks. not_kept: why they are not stored with the run."""

    run: str
    findings: tuple[Finding, ...]
    not_kept: str = ""

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The findings of checks that do not hold."""
        return tuple(each for each in self.findings if each.verdict == "broken")

    def lines(self) -> Iterator[str]:
        """Yield the lines that a person reads: a table of the checks, and the number of each verdict."""
        for each in self.findings:
            yield from each.lines()
        verdicts = [each.verdict for each in self.findings]
        counts: dict[str, Verdict] = {"hold": "holds", "broken": "broken", "not checked": "not checked"}
        told = ", ".join(f"{verdicts.count(kind)} {word}" for word, kind in counts.items())
        yield ""
        yield f"{len(verdicts)} checks: {told}"
        if self.not_kept:
            yield f"not kept with the run: {self.not_kept}"

    def summary(self) -> dict[str, Any]:
        """Return plain values."""
        return {"run": self.run, "broken": len(self.broken), "findings": [vars(each) for each in self.findings]}


@dataclass(frozen=True)
class AuditedRun:
    """A completed run. base: the store that the tables became; store: with the selection's relations, if any.

    sample: the artifact of a sample of the in-edges of `base`; empty where none was kept.
    """

    uri: str
    config: Config
    artifacts: dict[str, str]
    base: GraphStore
    store: GraphStore
    selected: SelectFacts
    sample: str

    @staticmethod
    def of(run: str) -> AuditedRun:
        """Return the run in a folder. Raises StorageError where it or its graph is not there."""
        record = read_run(run)
        artifacts: dict[str, str] = record["artifacts"]
        written, select = artifacts[record["store"]], artifacts["select"]
        selected = read_facts(select, read_manifest(select), SelectFacts)
        base = GraphStore.of(written, read_manifest(written))
        return AuditedRun(
            run,
            config_from_dict(record["config"]),
            artifacts,
            base,
            base.selected(select, selected.relations),
            selected,
            select if selected.kept is not None else "",
        )
