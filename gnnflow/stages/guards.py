"""Guards: stop a scheduled run before it trains on tables that are not what they were.

The reference is the last completed run of the same name: `runs/<name>/latest.json` names it, its record names its
graph store, and that manifest holds the counts and column statistics, so checking reads three small documents and no
rows. A run that a guard stopped never completes and so never becomes the reference.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import GuardError, StorageError
from gnnflow.graph.facts import GraphFacts
from gnnflow.ingest.drift import Drift, drift_of
from gnnflow.stages.base import Artifact, StageResult
from gnnflow.storage.manifest import committed, read_manifest
from gnnflow.storage.run_folder import latest_run, read_run

if TYPE_CHECKING:
    from gnnflow.config import GuardsConfig
    from gnnflow.stages.base import StageContext

_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class GuardResult(StageResult):
    """What was compared. previous is the run compared with, "" where there is none; reads are the graph stores.

    figures: `nodes`, `edges` and `label_rate` are relative changes, `psi.<column>` the column's index. notes say what
    could not be checked.
    """

    previous: str
    reads: tuple[str, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def worst_column(self) -> tuple[str, float] | None:
        """The column that moved most and its index; None where no column was compared."""
        columns = {name.removeprefix("psi."): held for name, held in self.figures.items() if name.startswith("psi.")}
        return max(columns.items(), key=lambda item: item[1]) if columns else None

    def summary(self) -> dict[str, Any]:
        """Return what was compared, and the column that moved most."""
        worst, psi = self.worst_column or ("", 0.0)
        compared = sum(name.startswith("psi.") for name in self.figures)
        found = {"previous": self.previous, "columns_compared": compared, "worst_column": worst}
        return {**super().summary(), **found, "worst_psi": round(psi, 4), "reads": list(self.reads)}


@dataclass(frozen=True)
class _Breach:
    key: str
    text: str


def check(context: StageContext) -> GuardResult:
    """Compare the config's ingested tables with those of the last completed run of its name.

    Run it after ingest and before train. Without an earlier run everything passes. Raises GuardError naming the column,
    the figure, the limit and what to do, StorageError where ingest has not run.
    """
    begin = time.monotonic()
    context.progress.stage_started("guards")
    ingested = context.artifact("ingest")
    compared = _compared(context, ingested.facts(GraphFacts))
    for note in compared.notes:
        context.progress.message(f"guards: {note}")
    seconds = time.monotonic() - begin
    result = GuardResult(
        stage="guards",
        seconds=seconds,
        previous=compared.run,
        reads=tuple(uri for uri in (ingested.uri, compared.store) if uri),
        figures=compared.figures,
        notes=compared.notes,
    )
    if result.worst_column is not None:
        name, psi = result.worst_column
        context.progress.message(f"guards: passed; the column that moved most is {name}, PSI {psi:.3g}")
    context.progress.stage_finished("guards", seconds, reused=False)
    return result


def is_quick(_: StageContext) -> bool:
    """Say yes: guards read three small documents."""
    return True


@dataclass(frozen=True)
class _Compared:
    run: str = ""
    store: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _compared(context: StageContext, now: GraphFacts) -> _Compared:
    run = latest_run(context.run.workspace, context.config.name)
    if run is None:
        return _Compared(notes=("no earlier run of this name: nothing to compare with",))
    artifact = _ingested(run)
    try:
        before = artifact.facts(GraphFacts)
    except StorageError:
        note = "another version of gnnflow wrote the last run's graph store: nothing compared"
        return _Compared(run, artifact.uri, notes=(note,))
    return _Compared(run, artifact.uri, _compare(context, now, before, run))


def _ingested(run: str) -> Artifact:
    """Return the graph store that ingest made for an earlier run."""
    uri = read_run(run)["artifacts"]["ingest"]
    if not committed(uri):
        raise GuardError(
            "the last run's graph store is gone, so nothing can be compared with it",
            where=uri,
            fix="Run `gnnflow run CONFIG` once by hand: it becomes the reference of the next.",
        )
    return Artifact(uri, read_manifest(uri))


def _compare(context: StageContext, new: GraphFacts, old: GraphFacts, run: str) -> dict[str, float]:
    """Return the figures. Raises GuardError where one is beyond its limit."""
    guards = context.config.guards
    figures = {
        "nodes": _change(new.num_nodes, old.num_nodes),
        "edges": _change(new.num_edges, old.num_edges),
        "label_rate": _change(_label_rate(new), _label_rate(old)),
    }
    breaches = _count_breaches(guards, figures, new, old)
    if guards.psi is not None:
        drifts, gone = _drifts(new, old)
        figures |= {f"psi.{name}": drift.psi for name, drift in drifts.items()}
        breaches += _psi_breaches(guards.psi, drifts, gone)
    if breaches:
        raise _error(breaches, run, str(context.config.graph.nodes))
    return figures


def _change(new: float, old: float) -> float:
    """Return the relative change; from nothing to something is 1."""
    return new / old - 1 if old else float(new > 0)


def _label_rate(graph: GraphFacts) -> float:
    return graph.labelled / max(graph.num_nodes, 1)


def _count_breaches(guards: GuardsConfig, figures: dict[str, float], new: GraphFacts, old: GraphFacts) -> list[_Breach]:
    found = []
    sizes = {"nodes": (new.num_nodes, old.num_nodes), "edges": (new.num_edges, old.num_edges)}
    for what, (now, before) in sizes.items():
        if guards.rows is not None and abs(figures[what]) > guards.rows:
            counts = f"{now:,} {what}, {before:,} before"
            found.append(_Breach("rows", f"{counts}: {figures[what]:+.1%}, and {guards.rows:.1%} is allowed"))
    if guards.label_rate is not None and abs(figures["label_rate"]) > guards.label_rate:
        rates = f"{_label_rate(new):.2%} of the nodes have a label, {_label_rate(old):.2%} before"
        text = f"{rates}: {figures['label_rate']:+.1%}, and {guards.label_rate:.1%} is allowed"
        found.append(_Breach("label_rate", text))
    return found


def _drifts(new: GraphFacts, old: GraphFacts) -> tuple[dict[str, Drift], list[str]]:
    """Return the drift of each column both have, and the names of those that only one has."""
    after, before = ({column.name: column for column in each.columns} for each in (new, old))
    shared = [name for name in after if name in before]
    only_one = [name for name in (*before, *after) if name not in before or name not in after]
    return {name: drift_of(before[name], after[name]) for name in shared}, only_one


def _psi_breaches(limit: float, drifts: dict[str, Drift], only_one: list[str]) -> list[_Breach]:
    found = []
    if only_one:
        found.append(_Breach("psi", f"the feature columns are others than before: {_listed(only_one)}"))
    over = {name: drift for name, drift in drifts.items() if drift.psi > limit + drift.chance}
    worst = sorted(over, key=lambda name: -over[name].psi)
    for name in worst[:1]:
        chance = f" (of which {over[name].chance:.3g} may be chance)" if over[name].chance > limit / 10 else ""
        text = f"column {name} has moved: PSI {over[name].psi:.3g}{chance}, and {limit:.3g} is allowed"
        found.append(_Breach("psi", text + (f"; over it are also {_listed(worst[1:])}" if worst[1:] else "")))
    return found


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _error(breaches: list[_Breach], run: str, nodes: str) -> GuardError:
    keys = " and ".join(f"guards.{key}" for key in dict.fromkeys(breach.key for breach in breaches))
    return GuardError(
        f"compared with {run}: {'; '.join(breach.text for breach in breaches)}",
        where=nodes,
        fix=f"Look at the tables. If the change is meant, raise {keys} for one run (null turns it off): "
        "the next run is compared with that one.",
    )
