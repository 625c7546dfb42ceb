"""The report of a run, gathered from its manifests and predictions."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow import registry
from gnnflow.config.yaml_text import write_yaml
from gnnflow.graph.facts import FlatFacts, GraphFacts, RelationFacts, SelectFacts
from gnnflow.graph.findings import Finding
from gnnflow.graph.labels import LABEL_COLUMN, LABEL_KINDS, SPLIT_COLUMN
from gnnflow.graph.made_features import DEGREE_FEATURES
from gnnflow.graph.run_facts import InferFacts, TrainFacts
from gnnflow.graph.schema import UNTYPED, Relation
from gnnflow.graph.splits import SPLITS
from gnnflow.graph.train_labels import unlearnable_labels
from gnnflow.partition.run import BALANCE
from gnnflow.report.inputs import (
    Audited,
    BlowUp,
    EmbeddingSample,
    GraphSummary,
    Parity,
    PredictionSample,
    RelationRow,
    ReportInputs,
    RoundRow,
    StageRow,
    TypeRow,
)
from gnnflow.report.judging import NO_EDGES, PREFIX, baselines_in, cautions, headline_key
from gnnflow.stages.base import Artifact
from gnnflow.stages.partition import text_of
from gnnflow.stages.target_checks import alike_types
from gnnflow.storage.columns import to_matrix, to_numpy
from gnnflow.storage.documents import read_document
from gnnflow.storage.filesystem import exists, join, read_json
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import read_manifest
from gnnflow.storage.run_folder import AUDIT, PREDICTIONS, REPORT, files_of, read_metrics, read_run, write_record
from gnnflow.storage.tables import read_artifact_table
from gnnflow.storage.verified import is_whole
from gnnflow.storage.writing import FileEntry, write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.graph.labels import LabelKind
    from gnnflow.graph.run_facts import Parity as CertificateFacts
    from gnnflow.storage.manifest import Manifest


_SAMPLE_ROWS = 20_000
_EMBEDDING_ROWS = 2_000


def report_of(run: str, *, workspace: str) -> str:
    """Return the path of a run's report; a missing or damaged one is made again.

    run: as `registry.find_run` reads it. Raises StorageError if there is no such run.
    """
    uri = registry.find_run(run, workspace=workspace)
    listed = next((entry for entry in files_of(uri, read_run(uri)) if entry.name == REPORT), None)
    if not (is_whole(uri, listed) if listed else exists(join(uri, REPORT))):
        renew_report(uri)
    return join(uri, REPORT)


def renew_report(uri: str) -> None:
    """Make the report of a completed run again, and list it in the record."""
    record = read_run(uri)
    files = {entry.name: entry for entry in files_of(uri, record)}
    is_listed = REPORT in files
    files[REPORT] = write_report(uri, record, read_metrics(uri))
    if is_listed:
        write_record(uri, record, [*files.values()])


def write_report(uri: str, record: Mapping[str, Any], metrics: Mapping[str, float]) -> FileEntry:
    """Render and commit a run's report, and return its entry. record: the content of run.json."""
    from gnnflow.report.render import render_report

    return write_atomic(join(uri, REPORT), render_report(report_inputs(uri, record, metrics)).encode())


def report_inputs(uri: str, record: Mapping[str, Any], metrics: Mapping[str, float]) -> ReportInputs:
    """Return what a run's report shows. record: the content of run.json."""
    artifacts = {stage: Artifact(artifact, read_manifest(artifact)) for stage, artifact in record["artifacts"].items()}
    stored = artifacts[record["store"]]
    graph, trained = stored.facts(GraphFacts), artifacts["train"].facts(TrainFacts)
    store = GraphStore.of(stored.uri, stored.manifest)
    table = _sample(store, artifacts["infer"], targets=record["config"]["infer"]["targets"])
    # older facts have none
    metric, baselines = trained.metric or record["config"]["train"]["metric"], baselines_in(metrics)
    own = {key: value for key, value in metrics.items() if not key.startswith(PREFIX)}
    return ReportInputs(
        name=record["name"],
        run_uri=uri,
        config_yaml=write_yaml(record["config"]),
        metrics=own,
        stages=[_stage_row(stage, artifact.manifest, record) for stage, artifact in artifacts.items()],
        graph=replace(_graph(graph, artifacts["select"].facts(SelectFacts)), partitions=_partitions(record, stored)),
        label_kind=graph.label_kind,
        task=record["config"].get("task", {}).get("kind", "node"),
        class_names=graph.class_names,
        metric=metric,
        metric_class=trained.metric_class,
        decision=trained.decision,
        blow_up=_blow_up(artifacts),
        curves=trained.history,
        best_epoch=trained.best_epoch,
        losses=trained.losses,
        profiles=trained.profiles,
        streamed=record["config"]["train"].get("memory") is not None,
        baseline=baselines.pop(NO_EDGES, None),
        baselines=baselines,
        cautions=cautions(
            trained,
            headline_key(own, metric),
            label_kind=graph.label_kind,
            split_counts=graph.splits,
            class_names=graph.class_names,
        ),
        predictions=_predictions(table, graph.label_kind),
        predictions_uri=join(uri, PREDICTIONS),
        embeddings=_embeddings(table),
        parity=_parity(artifacts["infer"].facts(InferFacts).parity),
        sent=artifacts["infer"].facts(InferFacts).sent.text,
        unread=_unread(record["config"]),
        large=graph.large_columns,
        tables=graph.tables,
        encodings={name: [each for each in columns if each.is_told] for name, columns in graph.encodings.items()},
        column_errors=graph.column_errors,
        unlearnable=unlearnable_labels(graph),
        constant=trained.constant,
        alike=_alike(graph, record["config"]),
        link_facts=trained.link_facts,
        scores=trained.scores,
        confusion=_confusion(trained, graph.label_kind),
        columns=artifacts["infer"].facts(InferFacts).columns,
        config=record["config"],
        audit=_audit(uri),
        versions={**stored.manifest.versions, **artifacts["train"].manifest.versions},
    )


def _audit(uri: str) -> Audited | None:
    """Return the findings of the run's last audit; None where none was made."""
    where = join(uri, AUDIT)
    if not exists(where):
        return None
    held = read_document(where, fix="Delete it: `gnnflow audit RUN` writes it again.")
    return Audited(held["at"], [Finding(**each) for each in held["findings"]])


def _confusion(trained: TrainFacts, label_kind: LabelKind) -> Array | None:
    """Return the counts of all targets of the scores' split by label and prediction, where classes are not many."""
    if trained.scores is None or not LABEL_KINDS[label_kind].is_class:
        return None
    counts = trained.confusion.get(trained.scores.split)
    return np.array(counts) if counts else None


def _alike(graph: GraphFacts, config: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each type of targets whose nodes have the same inputs but for their degrees."""
    if not graph.types or config.get("neighbors", {}).get("kind", "direct") != "direct":
        return []
    relation, schema = Relation.parse(graph.target_relation), graph.schema
    names = [graph.target] if relation is None else dict.fromkeys((relation.source, relation.target))
    return alike_types(
        schema,
        [schema.types.index(name) for name in names],
        config["model"]["layers"],
        informed={
            number
            for number, each in enumerate(graph.types)
            if each.features is not None and graph.columns_read.get(f"nodes/{each.name}") != DEGREE_FEATURES
        },
        bring={number for number, each in enumerate(graph.relations) if each.attribute_width},
    )


def _unread(config: Mapping[str, Any]) -> list[str]:
    """Return the edge attributes that the model does not read; none for a user's layer, which may read them."""
    task, kind = config.get("task", {}), config["model"]["kind"]
    by_decoder = task.get("kind") == "edge" and task["decoder"]["kind"] == "mlp"
    if kind == "gat_e" or ":" in kind or ":" in config.get("neighbors", {}).get("kind", "") or by_decoder:
        return []
    named = config["graph"].get("edge_features", [])
    return list(dict.fromkeys(chain.from_iterable(named.values()) if isinstance(named, dict) else named))


def _stage_row(stage: str, manifest: Manifest, record: Mapping[str, Any]) -> StageRow:
    rounds = [
        RoundRow(row["name"], row["start"], row["seconds"], row["tasks"]) for row in manifest.timings.get("rounds", [])
    ]
    seconds = manifest.timings.get("seconds", sum(row.seconds for row in rounds))
    counts = {"rows in": manifest.rows_in, "rows out": manifest.rows_out, "quarantined": manifest.rows_quarantined}
    return StageRow(stage, seconds, record["reused"][stage], manifest.digest, rounds, counts)


def _parity(found: CertificateFacts) -> Parity | None:
    """Return the certificate; None if nothing was compared."""
    if found.max_difference is None:
        return None
    return Parity(found.samples, found.max_difference, found.limit, found.compared)


def _blow_up(artifacts: Mapping[str, Artifact]) -> BlowUp | None:
    """Return the bytes that GraphFlat read and wrote; None if the strategy has no GraphFlat."""
    if "flat" not in artifacts:
        return None
    flat = artifacts["flat"].facts(FlatFacts)
    return BlowUp(layout=flat.layout, **asdict(flat.blow_up))


def _graph(graph: GraphFacts, selected: SelectFacts) -> GraphSummary:
    bins = [(0, 1, graph.degree_bins[0])]
    bins += [(2 ** (power - 1), 2**power, count) for power, count in enumerate(graph.degree_bins) if power > 0]
    reads_all = selected.kind == "direct" and selected.kept is None
    return GraphSummary(
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        feature_width=graph.features.width,
        num_classes=graph.num_classes if LABEL_KINDS[graph.label_kind].has_classes else 0,
        split_counts=graph.splits,
        split_times=graph.split_times,
        in_degree_histogram=bins,
        hub_threshold=0 if reads_all else selected.hub_threshold,
        num_hubs=selected.num_hubs,
        reads_all=reads_all,
        max_in_degree=graph.max_in_degree,
        types=_types(graph),
        relations=_relations(graph, graph.relations),
        selected=_relations(graph, selected.relations),
        target=graph.target,
        target_relation=graph.target_relation,
    )


def _partitions(record: Mapping[str, Any], stored: Artifact) -> str:
    """Return a sentence about the quality of partitions; empty if ingest made them."""
    if record["store"] == "ingest":
        return ""
    figures = read_json(join(stored.uri, BALANCE))
    # an artifact of an earlier version lacks some figures
    return f"{record['config']['partition']['kind']}: {text_of(figures)}" if "before" in figures else ""


def _types(graph: GraphFacts) -> list[TypeRow]:
    return [
        TypeRow(
            each.name,
            each.num_nodes,
            0 if each.features is None else each.features.width,
            each.features is not None and each.features.kind == "sparse",
            _quarantined(graph, f"nodes/{each.name}"),
        )
        for each in graph.types
    ]


def _relations(graph: GraphFacts, relations: Sequence[RelationFacts]) -> list[RelationRow]:
    """Return rows of the graph's relations, or of the selected ones."""
    nodes = {each.name: each.num_nodes for each in graph.types} or {UNTYPED.types[0]: graph.num_nodes}
    return [
        RelationRow(
            each.name,
            each.num_edges,
            nodes[each.name.rpartition("__")[2]],
            each.max_in_degree,
            each.attribute_width,
            each.has_weight,
            _quarantined(graph, f"edges/{each.name}"),
        )
        for each in relations
    ]


def _quarantined(graph: GraphFacts, table: str) -> int:
    """Return the number of rows set aside in a table; 0 for reversed relations, which have no table."""
    return graph.tables[table].rows_quarantined if table in graph.tables else 0


def _sample(store: GraphStore, scored: Artifact, *, targets: str | Sequence[str]) -> pa.Table:
    """Return predictions joined with labels and splits, from as few partitions as give enough rows.

    targets: infer.targets of the run.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    label = ["label"] if LABEL_KINDS[store.facts.label_kind].has_labels else []
    pieces: list[pa.Table] = []
    for entry in scored.manifest.files:
        partition = int(entry.name.rsplit("-", 1)[-1].split(".")[0])
        predicted = read_artifact_table(scored.uri, entry.name)
        # the store has labels as numbers
        known_already = {LABEL_COLUMN, SPLIT_COLUMN} & set(predicted.column_names)
        predicted = predicted.drop_columns(sorted(known_already))
        if label and store.facts.targets == "edges":
            from gnnflow.infer.pairs import scored_edges  # imports torch, which reports on nodes do not need

            known = store.pairs(partition, ["split", *label])
            known = known.append_column("labelled", pa.array(to_numpy(known["split"]) >= 0))
            rows = scored_edges(known, targets if isinstance(targets, str) else tuple(map(SPLITS.index, targets)))
        else:
            columns = ["id", "split", "labelled", "in_degree", *label]
            known = store.nodes(partition, columns, node_type=store.facts.target_type)
            if "type" in predicted.column_names:  # embeddings of both ends of edges: the report shows one type
                predicted = predicted.filter(pc.equal(predicted["type"], store.schema.types[store.facts.target_type]))
            rows = _rows_of(known, predicted)
            degrees = known["in_degree"].combine_chunks().take(pa.array(rows))
            predicted = predicted.append_column("in_degree", degrees)
        for name in ("split", "labelled", *label):
            predicted = predicted.append_column(name, known[name].combine_chunks().take(pa.array(rows)))
        pieces.append(predicted)
        if sum(piece.num_rows for piece in pieces) >= _SAMPLE_ROWS:
            break
    return pa.concat_tables(pieces).combine_chunks()


def _rows_of(nodes: pa.Table, predicted: pa.Table) -> IntArray:
    """Return each prediction's row in the node table."""
    import pyarrow.compute as pc

    ids = predicted["id"].combine_chunks()
    return to_numpy(pc.index_in(ids, value_set=nodes["id"].combine_chunks().cast(ids.type)))


def _predictions(table: pa.Table, label_kind: LabelKind) -> PredictionSample | None:
    """Return labels and scores of the test split, or of the valid split if no test target was scored."""
    import pyarrow as pa

    splits, labelled = to_numpy(table["split"]), to_numpy(table["labelled"])
    for split in ("test", "valid"):
        rows = np.flatnonzero((splits == SPLITS.index(split)) & labelled)
        if len(rows):
            break
    else:
        return None
    column = table["label"].combine_chunks()
    traits = LABEL_KINDS[label_kind]
    labels = to_matrix(column) if traits.is_list else to_numpy(column)
    scores = table[traits.columns[-1]]
    scores = to_matrix(scores) if traits.has_classes else to_numpy(scores)
    if "in_degree" not in table.column_names:
        return PredictionSample(labels[rows], scores[rows], split)
    degrees = table["in_degree"].combine_chunks()
    listed = to_matrix(degrees, np.int64).sum(1) if pa.types.is_nested(degrees.type) else to_numpy(degrees)
    ids = [str(each) for each in table["id"].take(pa.array(rows)).to_pylist()]
    return PredictionSample(labels[rows], scores[rows], split, ids, listed[rows])


def _embeddings(table: pa.Table) -> EmbeddingSample | None:
    import pyarrow as pa

    if "embedding" not in table.column_names:
        return None
    rows = np.linspace(0, table.num_rows - 1, min(_EMBEDDING_ROWS, table.num_rows)).astype(np.int64)
    labels = (
        to_numpy(table["label"])[rows]
        if "label" in table.column_names and not pa.types.is_nested(table["label"].type)
        else None
    )
    return EmbeddingSample(to_matrix(table["embedding"])[rows], labels)
