"""Guards: stop a run before it trains on tables that changed too much, and a scoring before it reads such tables.

A retraining DAG has a stage for it; `guards.commands` names the commands that check by themselves.

The reference is the run of the version in service, since its tables are what the model knows: an experiment of the same
name changes nothing. Where nothing is in service it is the last completed run of the name, which
`runs/<name>/latest.json` names. A run's record names its graph store, and the manifest of that holds the counts and
column statistics of nodes. So a check reads a few small documents, and rows only of edges that have columns. A run that
a guard stopped never completes, and so never becomes the reference.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gnnflow import registry
from gnnflow.config.graph_section import tables_by_name
from gnnflow.graph.errors import GuardError, StorageError, listed
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.schema import Relation
from gnnflow.ingest.statistics import TYPE_MARK, Drift, class_drift
from gnnflow.stages.base import Artifact, StageResult
from gnnflow.stages.column_drift import EDGE, column_drifts
from gnnflow.stages.edge_drift import edge_drifts, has_edge_columns
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import committed, read_manifest
from gnnflow.storage.run_folder import latest_run, read_run

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from gnnflow.config import GraphConfig
    from gnnflow.stages.base import StageContext


@dataclass(frozen=True, kw_only=True)
class GuardResult(StageResult):
    """The result of a comparison. previous: the run compared with, "" if there is none; reads: the graph stores.

    figures: `nodes`, `edges` and `label_rate` are relative changes, on typed graphs also `nodes.<type>` and
    `edges.<relation>`; `psi.<column>` is the population stability index of a feature, of an edge's column, or of labels
    that are classes.
    notes: parts that could not be checked.
    """

    previous: str
    reads: tuple[str, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def worst_column(self) -> tuple[str, float] | None:
        """The column that changed most and its index; None if no column was compared."""
        return _worst_column(self.figures)

    def summary(self) -> dict[str, Any]:
        """Return plain values: the comparison, and the column that changed most."""
        worst, psi = self.worst_column or ("", 0.0)
        compared = sum(name.startswith("psi.") for name in self.figures)
        found = {"previous": self.previous, "columns_compared": compared, "worst_column": worst}
        return {**super().summary(), **found, "worst_psi": round(psi, 4), "reads": list(self.reads)}


def _worst_column(figures: Mapping[str, float]) -> tuple[str, float] | None:
    columns = {name.removeprefix("psi."): held for name, held in figures.items() if name.startswith("psi.")}
    return max(columns.items(), key=lambda item: item[1]) if columns else None


@dataclass(frozen=True)
class _Breach:
    """A figure beyond the limit `guards.<key>`. table: the one to look at, "" where it is not known."""

    key: str
    text: str
    table: str = ""


@dataclass(frozen=True)
class _Size:
    """Rows of the graph, of a type or of a relation, now and before. figure: the name of their change."""

    figure: str
    label: str
    now: int
    before: int
    table: str = ""


def check(context: StageContext) -> GuardResult:
    """Compare the config's ingested tables with the tables of the model in service.

    Where none is in service they are compared with the tables of the last completed run of its name.

    Run it after ingest and before train. Without an earlier run everything passes. Raises GuardError naming the column,
    the figure, the limit and a fix, StorageError if ingest has not run.
    """
    begin = time.monotonic()
    context.progress.stage_started("guards")
    ingested = context.artifact("ingest")
    compared = _compare_stores(context, ingested, trains=True)
    seconds = time.monotonic() - begin
    result = GuardResult(
        stage="guards",
        seconds=seconds,
        previous=compared.run,
        reads=tuple(uri for uri in (ingested.uri, compared.store) if uri),
        figures=compared.figures,
        notes=compared.notes,
    )
    context.progress.stage_finished("guards", seconds, reused=False)
    return result


def check_scored(context: StageContext, stored: Artifact) -> None:
    """Compare tables to be scored with the ones of the model in service, where the config asks for it.

    stored: the graph store that holds them, with columns encoded as the model knows them. Raises GuardError.
    """
    if "score" in context.config.guards.commands:
        _compare_stores(context, stored, trains=False)


def is_quick(context: StageContext) -> bool:
    """Return whether guards read a few small documents; columns of edges that changed are read from all their rows."""
    ingested = context.run.artifact("ingest")
    if context.config.guards.psi is None or not committed(ingested):
        return True
    if not has_edge_columns(_store_of(Artifact(ingested, read_manifest(ingested)))):
        return True
    run = _reference(context)
    return run is None or _ingested(run).uri == ingested


@dataclass(frozen=True)
class _Compared:
    run: str = ""
    store: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _store_of(stored: Artifact) -> GraphStore:
    return GraphStore.of(stored.uri, stored.manifest)


def _compare_stores(context: StageContext, now: Artifact, *, trains: bool) -> _Compared:
    """Compare a graph store with the reference and say so. trains: a model is about to learn its labels."""
    compared = _compared(context, now, trains=trains)
    for note in compared.notes:
        context.progress.message(f"guards: {note}")
    worst = _worst_column(compared.figures)
    if worst is not None:
        context.progress.message(f"guards: passed; the column that changed most is {worst[0]}, PSI {worst[1]:.3g}")
    return compared


def _compared(context: StageContext, now: Artifact, *, trains: bool) -> _Compared:
    run = _reference(context)
    if run is None:
        return _Compared(notes=("no earlier run of this name: nothing to compare with",))
    artifact = _ingested(run)
    try:
        artifact.facts(GraphFacts)
    except StorageError:
        note = "another version of gnnflow wrote the last run's graph store: nothing compared"
        return _Compared(run, artifact.uri, notes=(note,))
    return _Compared(run, artifact.uri, _compare(context, now, artifact, run, trains=trains))


def _reference(context: StageContext) -> str | None:
    """Return the run of the version in service, or else the last completed one of the name; None without one."""
    workspace, name = context.config.workspace, context.config.publish.name or context.config.name
    champion = registry.read_aliases(workspace, name).champion
    if champion is not None:
        return registry.read_version(workspace, name, champion).run
    return latest_run(context.run.workspace, context.config.name)


def _ingested(run: str) -> Artifact:
    """Return the graph store that ingest made for an earlier run."""
    uri = read_run(run)["artifacts"]["ingest"]
    if not committed(uri):
        raise GuardError(
            "the last run's graph store is gone, so there is nothing to compare with",
            where=uri,
            fix="Run `gnnflow run CONFIG --set guards.commands=[]` once by hand, and publish it where a model is in "
            "service: its tables become the reference of the next.",
        )
    return Artifact(uri, read_manifest(uri))


def _compare(context: StageContext, now: Artifact, before: Artifact, run: str, *, trains: bool) -> dict[str, float]:
    """Return the figures. Raises GuardError if one is beyond its limit.

    Labels count only where a model is about to learn them: tables that are scored mostly have none.
    """
    config, guards = context.config.graph, context.config.guards
    new, old = (each.facts(GraphFacts) for each in (now, before))
    figures, breaches = (_of_training if trains else _of_scoring)(context, new, old)
    if guards.psi is not None:
        (drifts, gone), (of_edges, gone_of_edges) = column_drifts(new, old), edge_drifts(*map(_store_of, (now, before)))
        drifts, gone = drifts | of_edges, gone + gone_of_edges
        if trains and new.class_counts and old.class_counts:
            drifts[_label_column(config, new)] = class_drift(*_class_counts(old, new))
        figures |= {f"psi.{name}": drift.psi for name, drift in drifts.items()}
        breaches += _psi_breaches(guards.psi, drifts, gone, config, new)
        breaches += _kind_breaches(config, new, old) if trains else []
    if breaches:
        raise _error(breaches, run, config, trains=trains)
    return figures


def _of_training(context: StageContext, new: GraphFacts, old: GraphFacts) -> tuple[dict[str, float], list[_Breach]]:
    """Return the changes of the graph's size and of the share of labels, and the breaches of their limits."""
    config, guards = context.config.graph, context.config.guards
    uris = tables_by_name(config)
    whole = [
        _Size("nodes", "nodes", new.num_nodes, old.num_nodes, uris.get("nodes", "")),
        _Size("edges", "edges", new.num_edges, old.num_edges, uris.get("edges", "")),
    ]
    # if every type and relation is within the limit, so is the whole graph
    parts = _part_sizes(config, new, old)
    rates = _label_rate(new), _label_rate(old)
    figures = {size.figure: _change(size.now, size.before) for size in (*whole, *parts)}
    figures["label_rate"] = _change(*rates)
    breaches = _size_breaches(guards.rows, parts or whole) + _rate_breaches(guards.label_rate, rates, config, new)
    return figures, breaches


def _of_scoring(context: StageContext, new: GraphFacts, old: GraphFacts) -> tuple[dict[str, float], list[_Breach]]:
    """Return the changes of the tables' rows, and the breaches of their limit.

    The graphs themselves differ by design: a run hides held-out edges from its model, and a scoring hides none.
    """
    uris, sizes = tables_by_name(context.config.graph), []
    for table in sorted({*new.tables, *old.tables}):
        now, before = (graph.tables[table].rows_out if table in graph.tables else 0 for graph in (new, old))
        label = f"rows of {table.replace('/', ' ', 1)}"
        sizes.append(_Size(table.replace("/", ".", 1), label, now, before, uris.get(table, "")))
    figures = {size.figure: _change(size.now, size.before) for size in sizes}
    return figures, _size_breaches(context.config.guards.rows, sizes)


def _part_sizes(config: GraphConfig, new: GraphFacts, old: GraphFacts) -> list[_Size]:
    """Return the sizes of every type and relation of either graph; none if one of the graphs is untyped."""
    if not new.types or not old.types:
        return []
    tables = {str(relation): uri for relation, uri in config.edge_tables.items()}
    types = [{each.name: each.num_nodes for each in graph.types} for graph in (new, old)]
    relations = [{each.name: each.num_edges for each in graph.relations} for graph in (new, old)]
    # reversed relations have as many edges as the relations that ingest made them from
    parsed = {Relation.parse(name) for held in relations for name in held}
    turned = {str(each.reversed) for each in parsed if each is not None} - set(tables)
    return [
        *_sizes("nodes", "nodes of type", types, config.node_tables, names={*types[0], *types[1]}),
        *_sizes("edges", "edges of", relations, tables, names={*relations[0], *relations[1]} - turned),
    ]


def _sizes(
    figure: str, label: str, counts: Sequence[Mapping[str, int]], tables: Mapping[str, str], *, names: AbstractSet[str]
) -> Iterator[_Size]:
    """Yield the sizes of these types or relations. counts: rows now, and rows before, by name."""
    now, before = counts
    for name in sorted(names):
        yield _Size(f"{figure}.{name}", f"{label} {name}", now.get(name, 0), before.get(name, 0), tables.get(name, ""))


def _change(new: float, old: float) -> float:
    """Return the relative change; 1 from zero to any positive number."""
    return new / old - 1 if old else float(new > 0)


def _label_rate(graph: GraphFacts) -> float:
    """Return the share of labelled targets: of edges, or of nodes of the target type."""
    if graph.targets == "edges":
        return graph.labelled / max(sum(graph.splits.values()), 1)
    nodes = graph.types[graph.target_type].num_nodes if graph.types else graph.num_nodes
    return graph.labelled / max(nodes, 1)


def _size_breaches(limit: float | None, sizes: list[_Size]) -> list[_Breach]:
    found = []
    for size in sizes:
        change = _change(size.now, size.before)
        if limit is not None and abs(change) > limit:
            text = f"{size.now:,} {size.label}, {size.before:,} before: {change:+.1%}, and {limit:.1%} is allowed"
            found.append(_Breach("rows", text, size.table))
    return found


def _rate_breaches(
    limit: float | None, rates: tuple[float, float], config: GraphConfig, graph: GraphFacts
) -> list[_Breach]:
    change = _change(*rates)
    if limit is None or abs(change) <= limit:
        return []
    typed = config.schema.is_typed and config.target is not None
    of = f"{graph.targets} of type {config.target}" if typed else graph.targets
    text = f"{rates[0]:.2%} of the {of} have a label, {rates[1]:.2%} before: {change:+.1%}, and {limit:.1%} is allowed"
    return [_Breach("label_rate", text, _labelled_table(config, graph))]


def _labelled_table(config: GraphConfig, graph: GraphFacts) -> str:
    if graph.targets == "edges":
        return config.edge_tables[config.target_edges]
    return config.node_tables[config.schema.types[config.target_type]]


def _label_column(config: GraphConfig, graph: GraphFacts) -> str:
    return config.of_targets(edges=graph.targets == "edges").label_column


def _class_counts(*graphs: GraphFacts) -> Iterator[dict[Hashable, int]]:
    """Yield each graph's number of targets per class; classes go by name if all graphs name them, else by number."""
    named = all(graph.class_names for graph in graphs)
    for graph in graphs:
        names: dict[int, Hashable] = dict(enumerate(graph.class_names)) if named else {}
        yield {names.get(number, number): held for number, held in enumerate(graph.class_counts)}


def _kind_breaches(config: GraphConfig, new: GraphFacts, old: GraphFacts) -> list[_Breach]:
    if new.label_kind == old.label_kind or not (new.labelled and old.labelled):
        return []
    text = f"labels are of the kind {new.label_kind}, {old.label_kind} before"
    return [_Breach("psi", text, _labelled_table(config, new))]


def _psi_breaches(
    limit: float, drifts: dict[str, Drift], only_one: list[str], config: GraphConfig, graph: GraphFacts
) -> list[_Breach]:
    found = []
    if only_one:
        text = f"the columns differ from those before: {listed(only_one)}"
        found.append(_Breach("psi", text, _table_of(only_one[0], config)))
    over = {name: drift for name, drift in drifts.items() if drift.psi > limit + drift.chance}
    worst = sorted(over, key=lambda name: -over[name].psi)
    for name in worst[:1]:
        chance = f" (of which {over[name].chance:.3g} may be chance)" if over[name].chance > limit / 10 else ""
        text = f"column {name} has changed: PSI {over[name].psi:.3g}{chance}, and {limit:.3g} is allowed"
        also = f"; also over the limit: {listed(worst[1:])}" if worst[1:] else ""
        table = _labelled_table(config, graph) if name == _label_column(config, graph) else _table_of(name, config)
        found.append(_Breach("psi", text + also, table))
    return found


def _table_of(column: str, config: GraphConfig) -> str:
    """Return the table of a counted column, whose name includes its relation, and on a typed graph its type."""
    owner, _, name = column.partition(TYPE_MARK)
    tables = tables_by_name(config)
    places = [f"edges/{owner}", f"nodes/{owner}", *(["edges"] if name and owner == EDGE else []), "nodes"]
    return next((tables[each] for each in places if each in tables), "")


def _error(breaches: list[_Breach], run: str, config: GraphConfig, *, trains: bool) -> GuardError:
    keys = " and ".join(f"guards.{key}" for key in dict.fromkeys(breach.key for breach in breaches))
    tables = list(dict.fromkeys(breach.table for breach in breaches if breach.table))
    once, then = "one scoring (null turns it off)", ", or publish a model of these tables"
    if trains:
        once = "one run (null turns it off)"
        then = ": the next run is compared with that one where its model goes into service, or where none is"
    return GuardError(
        f"compared with {run}: {'; '.join(breach.text for breach in breaches)}",
        where=listed(tables),
        fix=f"Look at the tables. If the change is intended, raise {keys} for {once}{then}.",
    )
