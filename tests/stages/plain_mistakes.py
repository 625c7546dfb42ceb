"""First mistakes with one table of nodes and one of edges: a row for each."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.csv import write_csv

from tests.stages.mistakes import (
    HALVES,
    IDS,
    NUMBERS,
    ROWS,
    SPLIT,
    Mistake,
    both,
    column,
    edge_table,
    empty,
    left_out,
    node_table,
    put,
    renamed,
    row_twice,
    without,
)

_LINKS = both(put("task.kind", "link"), put("train.metric", "mrr"))
_UNIFORM = {"kind": "uniform", "fanout": [5, 5]}
_FLOATS = both(
    column("nodes", "id", [float(number) for number in NUMBERS]),
    column("edges", "src", NUMBERS),
    column("edges", "dst", NUMBERS[1:] + NUMBERS[:1]),
)


def _mixed(folder: Path) -> None:
    (folder / "mixed.d").mkdir()
    pq.write_table(node_table(), folder / "mixed.d" / "part.parquet")
    (folder / "mixed.d" / "part.csv").write_text("id,age\nu0,1\n")


def _two_tables(folder: Path) -> None:
    (folder / "two.d").mkdir()
    pq.write_table(node_table(), folder / "two.d" / "b.parquet")
    pq.write_table(edge_table(IDS, IDS), folder / "two.d" / "a.parquet")


def _no_table(folder: Path) -> None:
    (folder / "empty.d").mkdir()
    (folder / "empty.d" / "readme.md").write_text("to come")


PLAIN_MISTAKES: dict[str, Mistake] = {
    # keys
    "a key in the wrong section": Mistake(
        ("epochs: unknown key", "elsewhere: train.epochs"),
        put("epochs", 3),
        mended=both(left_out("epochs"), put("train.epochs", 3)),
    ),
    "a misspelt key": Mistake(
        ("train.epohcs", "Did you mean 'epochs'?"),
        put("train.epohcs", 3),
        mended=both(left_out("train.epohcs"), put("train.epochs", 3)),
    ),
    "a word of PyG": Mistake(
        ("train.num_neighbors: unknown key", "Write it as neighbors.sampling.fanout."),
        put("train.num_neighbors", [5, 5]),
        mended=both(left_out("train.num_neighbors"), put("neighbors.sampling", _UNIFORM)),
    ),
    "a misspelt kind": Mistake(
        ("model.kind", "Did you mean 'gat'?"), put("model.kind", "gatt"), mended=put("model.kind", "gat")
    ),
    "a kind as its authors write it": Mistake(
        ("model.kind: 'GraphSAGE' is not allowed", "Did you mean 'sage'?"),
        put("model.kind", "GraphSAGE"),
        mended=put("model.kind", "sage"),
    ),
    "a misspelt section": Mistake(
        ("nme: unknown key", "Did you mean 'name'?"),
        both(left_out("name"), put("nme", "first")),
        mended=both(left_out("nme"), put("name", "first")),
    ),
    "a target of a graph without types": Mistake(
        ("graph.target: 'dst' is not known: graph.nodes is one table", "Leave it out."),
        put("graph.target", "dst"),
        mended=left_out("graph.target"),
    ),
    "a key of another kind": Mistake(
        ("where model.kind is gcn", "with heads: gat,"), put("model.heads", 2), mended=put("model.kind", "gat")
    ),
    "a key of another strategy": Mistake(
        ("train.batch_size: unknown key where train.strategy is global-batch", "Kinds with batch_size: mini-batch"),
        put("train", {"strategy": "global-batch", "batch_size": 8}),
        mended=put("train.strategy", "mini-batch"),
    ),
    "a word for a number": Mistake(
        ("train.epochs: 'ten' is not allowed", "a whole number"), put("train.epochs", "ten")
    ),
    "a batch of nothing": Mistake(("train.batch_size: 0 is not allowed", "at least 1"), put("train.batch_size", 0)),
    "more ranks than workers": Mistake(
        ("train.workers", "Set cluster.workers to 4"), put("train.workers", 4), mended=put("cluster.workers", 4)
    ),
    "more fan-outs than layers": Mistake(
        ("neighbors.sampling.fanout: [5, 5, 5] is not allowed: must have 2 numbers", "or change model.layers"),
        put("neighbors.sampling", {"kind": "uniform", "fanout": [5, 5, 5]}),
        mended=put("model.layers", 3),
    ),
    "heads that do not divide": Mistake(
        ("model.heads: 3 heads do not divide hidden", "Choose hidden as a multiple"),
        put("model", {"kind": "hgt", "hidden": 10, "heads": 3}),
        mended=put("model.hidden", 12),
    ),
    "no name": Mistake(("name: required but missing", "Name of the experiment"), left_out("name")),
    "a metric of other labels": Mistake(
        ("train.metric: mae is not defined for single", "accuracy"),
        put("train.metric", "mae"),
        mended=put("train.metric", "accuracy"),
    ),
    "decisions by no rule": Mistake(
        ("task.decide.kind: 'topk' is not allowed", "top_k"),
        put("task.decide", {"kind": "topk", "k": 3}),
        mended=put("task.decide.kind", "top_k"),
    ),
    "decisions by a part of the costs": Mistake(
        ("task.decide.miss: cost needs miss or costs", "for one class against the others"),
        put("task.decide", {"kind": "cost", "false_alarm": 2}),
    ),
    "decisions between three classes": Mistake(
        ("task.decide.positive: precision decides for one class, and the labels are of 3 classes",),
        put("task.decide", {"kind": "precision", "at_least": 0.9}),
        column("nodes", "label", [0, 1, 2, 1] * (ROWS // 4)),
        mended=left_out("task.decide"),
    ),
    "decisions for a class that is not there": Mistake(
        ("task.decide.positive: '7' is not a class of the labels (0, 1)", "as the label column does"),
        put("task.decide", {"kind": "f1", "positive": 7}),
        mended=put("task.decide.positive", 1),
    ),
    "decisions between numbers": Mistake(
        ("task.decide.kind: top_k decides between classes, and does not support regression labels",),
        both(put("train.metric", "mae"), put("task.decide", {"kind": "top_k", "k": 3})),
        column("nodes", "label", HALVES),
        mended=left_out("task.decide"),
    ),
    "classes as a key of the task": Mistake(
        ("task.classes: unknown key", "elsewhere: graph.classes"), put("task.classes", 2), mended=left_out("task")
    ),
    "shares in percent": Mistake(
        ("task.split.test: 20 is not allowed", "less than 1"),
        put("task.split", {"kind": "random", "valid": 0.3, "test": 20}),
        mended=put("task.split.test", 0.2),
    ),
    "a variable that is not set": Mistake(
        ("graph.nodes: the environment variable GNNFLOW_NO_SUCH is not set", "${GNNFLOW_NO_SUCH:-default}"),
        put("graph.nodes", "${GNNFLOW_NO_SUCH}/nodes.parquet"),
    ),
    "a secret in a URL": Mistake(
        ("graph.nodes: 's3://...@bucket/nodes.parquet' holds a user and password", "through the environment"),
        put("graph.nodes", "s3://AKIA:secret@bucket/nodes.parquet"),
    ),
    "a model that is not published": Mistake(
        ("no model 'payments'", "gnnflow publish CONFIG"), put("graph.scaled_as", "payments")
    ),
    "a workspace that is a file": Mistake(
        ("notes/runs: the workspace cannot be written",),
        put("workspace", "notes/runs"),
        files=lambda folder: (folder / "notes").write_text("") and None,
        mended=put("workspace", "runs"),
    ),
    "a device that is not there": Mistake(
        ("train.device: 'gpu' is not allowed", "'cuda'"), put("train.device", "gpu"), mended=put("train.device", "auto")
    ),
    "ends under other words": Mistake(
        ("graph.source: unknown key. Did you mean 'src'?",),
        put("graph.source", "payer"),
        renamed("edges", "src", "payer"),
        mended=both(left_out("graph.source"), put("graph.src", "payer")),
    ),
    # files
    "a missing file": Mistake(
        ("accounts.parquet: no such table", "Give a file, a folder or a glob"), put("graph.nodes", "accounts.parquet")
    ),
    "a folder without tables": Mistake(
        ("empty.d: no such table (1 files there",), put("graph.nodes", "empty.d"), files=_no_table
    ),
    "a folder of two formats": Mistake(
        ("mixed.d: holds part.csv and part.parquet", "a glob such as *.parquet"),
        put("graph.nodes", "mixed.d"),
        files=_mixed,
        mended=put("graph.nodes", "mixed.d/*.parquet"),
    ),
    "a folder of two tables": Mistake(
        ("b.parquet: has columns", "with the same columns"),
        put("graph.nodes", "two.d"),
        files=_two_tables,
        mended=put("graph.nodes", "two.d/b.parquet"),
    ),
    "a separator that is not there": Mistake(
        ("nodes.csv: no ';' is in its first line", "Leave the separator out of graph.formats"),
        both(put("graph.nodes", "nodes.csv"), put("graph.formats.nodes.separator", ";")),
        files=lambda folder: write_csv(node_table(), folder / "nodes.csv"),
        mended=left_out("graph.formats"),
    ),
    "a file of another program": Mistake(
        ("n.sav: unknown table format", ".csv"),
        put("graph.nodes", "n.sav"),
        files=lambda folder: (folder / "n.sav").write_bytes(b"PK") and None,
    ),
    "an empty table": Mistake(("nodes.parquet: the table has no rows", "Check graph.nodes."), spoil=empty("nodes")),
    "tables in each other's place": Mistake(
        ("graph.nodes: has the columns of edges", "The tables are swapped."),
        both(put("graph.nodes", "edges.parquet"), put("graph.edges", "nodes.parquet")),
        mended=both(put("graph.nodes", "nodes.parquet"), put("graph.edges", "edges.parquet")),
    ),
    "more partitions than nodes": Mistake(
        ("graph.partitions is 1000, the node table has", "rows", "leave it out"),
        put("graph.partitions", 1000),
        mended=left_out("graph.partitions"),
    ),
    # ids and ends
    "ids of another name": Mistake(
        ("has no column 'id' (graph.id)", "`graph: {id: account_id}`"),
        spoil=renamed("nodes", "id", "account_id"),
        mended=put("graph.id", "account_id"),
    ),
    "ends of another name": Mistake(
        ("no column 'src' (graph.src)", "Set graph.src to one of them"),
        spoil=renamed("edges", "src", "payer"),
        mended=put("graph.src", "payer"),
    ),
    "ids of two types": Mistake(
        ("edges.parquet: column 'src' holds int64 ids", "the same id type"), spoil=column("edges", "src", NUMBERS)
    ),
    "ids as floats": Mistake(("nodes.parquet: column 'id' is double, not an id", "astype('Int64')"), spoil=_FLOATS),
    "an id twice": Mistake(("'id': id appears more than once", "Keep one row per id"), spoil=row_twice("nodes")),
    "an end that is no node": Mistake(
        ("dst is not an id", "row 0: 'u99'", "Add the node"), spoil=column("edges", "dst", ["u99", *IDS[2:], IDS[0]])
    ),
    "an id written otherwise": Mistake(
        ("'U0' differs from it only in case", "Write both alike"),
        spoil=column("edges", "dst", ["U0", *IDS[2:], IDS[0]]),
    ),
    # features
    "a feature that is not there": Mistake(
        ("no column 'agee' (graph.features)", "Did you mean 'age'?"),
        put("graph.features", ["age", "agee"]),
        mended=put("graph.features", ["age"]),
    ),
    "no features named": Mistake(
        ("no column 'x' (graph.features)", "Set graph.features: all"),
        left_out("graph.features"),
        mended=put("graph.features", "all"),
    ),
    "features without brackets": Mistake(
        ("graph.features: 'age' is not allowed: must be a list", "Write [age]."),
        put("graph.features", "age"),
        mended=put("graph.features", ["age"]),
    ),
    "features as one text": Mistake(
        ("graph.features: 'age, country' is not allowed: must be a list", "Write [age, country]."),
        put("graph.features", "age, country"),
        mended=put("graph.features", ["age", "country"]),
    ),
    "numbers as dates": Mistake(
        ("column 'visits' is int64, not dates or times", "Set graph: {columns: {visits: {kind: numerical}}}"),
        both(put("graph.features", ["visits"]), put("graph.columns.visits.kind", "timestamp")),
        column("nodes", "visits", NUMBERS),
        mended=put("graph.columns.visits.kind", "numerical"),
    ),
    "one column for both ends": Mistake(
        ("graph.dst: 'src' is the column of graph.src too", "Name another column"),
        put("graph.dst", "src"),
        renamed("edges", "dst", "payee"),
        mended=put("graph.dst", "payee"),
    ),
    "the label as a feature": Mistake(
        ("graph.features: 'label' is the column of graph.label", "a label would be its own input"),
        put("graph.features", ["age", "label"]),
        mended=put("graph.features", ["age"]),
    ),
    "a pattern of nothing": Mistake(
        ("graph.features: no column matches 'amt_*'", "take it out"),
        put("graph.features", ["age", "amt_*"]),
        mended=put("graph.features", ["age"]),
    ),
    "exclude takes all": Mistake(
        ("graph.features: no column matches *, less those of graph.exclude (*)", "Its columns are: "),
        both(put("graph.features", "all"), put("graph.exclude", ["*"])),
        mended=put("graph.exclude", ["country"]),
    ),
    "names as numbers": Mistake(
        ("column 'country': feature is not a number", "{country: {kind: categorical}}"),
        both(put("graph.features", ["country"]), put("graph.columns.country.kind", "numerical")),
        mended=put("graph.columns.country.kind", "categorical"),
    ),
    "dates of another country": Mistake(
        ("column 'day': feature is not an ISO date or time", "2024-01-31T23:59:59"),
        both(put("graph.features", ["day"]), put("graph.columns.day.kind", "timestamp")),
        column("nodes", "day", ["31/01/2024"] * ROWS),
    ),
    "several values without a separator": Mistake(
        ("column 'tags' is string, not lists of values", "'|' stands between its values"),
        both(put("graph.features", ["tags"]), put("graph.columns.tags.kind", "multicategorical")),
        column("nodes", "tags", ["a|b", "b|c"] * (ROWS // 2)),
        mended=put("graph.columns.tags.separator", "|"),
    ),
    "lists of two lengths": Mistake(
        ("column 'emb': feature list is null or not 2 long", "row 19", "lists of one length"),
        put("graph.features", ["emb"]),
        column("nodes", "emb", [[1.0, 2.0]] * 19 + [[1.0]]),
    ),
    "a kind of a column that is no feature": Mistake(
        ("graph.columns.country: 'country' is not among the columns of graph.features", "Name the column"),
        put("graph.columns.country.kind", "categorical"),
        mended=put("graph.features", ["age", "country"]),
    ),
    # weights and times
    "a negative weight": Mistake(
        ("'weight': weight is negative", "zero or more"), spoil=column("edges", "weight", [-1.0] * ROWS)
    ),
    "a weight with a comma": Mistake(
        ("column 'weight' is string, not a weight", "such as 1234.5"), spoil=column("edges", "weight", ["1,5"] * ROWS)
    ),
    "weights as text": Mistake(
        ("column 'share' is string, not a weight", "Or read none"),
        put("graph.weight", "share"),
        column("edges", "share", ["much", "little"] * (ROWS // 2)),
        mended=put("graph.weight", None),
    ),
    "sampling by weights without any": Mistake(
        ("neighbors.sampling.kind: weighted sampling needs edge weights", "or sample uniform"),
        put("neighbors.sampling", {"kind": "weighted", "fanout": [5, 5]}),
        without("edges", "weight"),
        mended=put("neighbors.sampling.kind", "uniform"),
    ),
    "a split by a time that is not there": Mistake(
        ("edges.parquet: has no column 'timestamp' (graph.timestamp)", "Set graph.timestamp"),
        both(_LINKS, put("task.split", {"kind": "time"})),
        mended=put("task.split", {"kind": "random", "valid": 0.3, "test": 0.2}),
    ),
    # labels and splits
    "labels of another name": Mistake(
        ("graph.label: the node table has no label column", "age, country, is_fraud, split"),
        spoil=renamed("nodes", "label", "is_fraud"),
        mended=put("graph.label", "is_fraud"),
    ),
    "labels that are all null": Mistake(
        ("column 'label' is empty in every row", "Write the labels"),
        spoil=column("nodes", "label", pa.nulls(ROWS, pa.int64())),
    ),
    "one class": Mistake(
        ("the train split: every train row has class 1", "two classes or more"),
        spoil=column("nodes", "label", [1] * ROWS),
    ),
    "one class in train": Mistake(
        ("the train split: every train row has class 0", "task.split: {kind: random}"),
        spoil=column("nodes", "label", [int(name != "train") for name in SPLIT]),
        mended=put("task.split", {"kind": "random", "valid": 0.3}),
    ),
    "numbers as labels of classes": Mistake(
        ("column 'label' holds floats, numbers to predict", "set train.metric: mae"),
        put("train.metric", "accuracy"),
        spoil=column("nodes", "label", HALVES),
        mended=put("train.metric", "mae"),
    ),
    "a number of classes for numbers": Mistake(
        ("column 'label': label is no class number", "leave graph.num_classes out"),
        put("graph.num_classes", 2),
        column("nodes", "label", HALVES),
        mended=both(left_out("graph.num_classes"), put("train.metric", "mae")),
    ),
    "a class below zero": Mistake(
        ("label out of range", "graph.classes: distinct"),
        spoil=column("nodes", "label", [-7, 1, 1, -7] * 5),
        mended=put("graph.classes", "distinct"),
    ),
    "classes numbered from one": Mistake(
        ("column 'label': label out of range: allowed is -1 (unlabelled) to 1", "or set graph.classes: distinct"),
        put("graph.classes", ["no", "yes"]),
        column("nodes", "label", [1, 2, 2, 1] * (ROWS // 4)),
        mended=put("graph.classes", "distinct"),
    ),
    "a split without a label": Mistake(
        ("column 'split': has a split but no label in 1 row(s)", "leave its split null"),
        spoil=column("nodes", "label", [None, 1, 1, 0] + [0, 1, 1, 0] * (ROWS // 4 - 1)),
        mended=put("task.split", {"kind": "random", "valid": 0.3}),
    ),
    "a split by dates of another form": Mistake(
        ("column 'day' is text, not a time", "such as 2024-01-31"),
        put("task.split", {"kind": "time", "column": "day"}),
        column("nodes", "day", [f"{1 + number:02}.01.2024" for number in NUMBERS]),
    ),
    "more bad rows than are set aside": Mistake(
        ("4 of 20 rows (20 %) would be set aside", "column 'dst': dst is not an id", "graph.max_bad_rows: 0.2"),
        put("graph.on_bad_rows", "quarantine"),
        column("edges", "dst", ["u99", *IDS[2:5]] * 4 + IDS[:4]),
        mended=put("graph.max_bad_rows", 0.2),
    ),
    "classes numbered with gaps": Mistake(
        ("column 'label': the largest class is 1,000,000, of 20 labelled rows", "graph.classes: distinct"),
        spoil=column("nodes", "label", [0, 1_000_000, 1_000_000, 0] * (ROWS // 4)),
        mended=put("graph.classes", "distinct"),
    ),
    "classes of other names": Mistake(
        ("column 'label': label is none of ja, nein", "List every class in graph.classes"),
        put("graph.classes", ["ja", "nein"]),
        column("nodes", "label", ["yes", "no", "no", "yes"] * 5),
        mended=put("graph.classes", ["no", "yes"]),
    ),
    "another word for a split": Mistake(
        ("split is none of train, valid, test", "'training'", "task.split: {kind: random}"),
        spoil=column("nodes", "split", ["training", "valid"] * 10),
        mended=put("task.split", {"kind": "random", "valid": 0.3}),
    ),
    "numbers of splits": Mistake(
        ("column 'split' is int64, not a split", "task.split: {kind: random}"),
        spoil=column("nodes", "split", [0, 1] * 10),
        mended=put("task.split", {"kind": "random", "valid": 0.3}),
    ),
    "edges too few to hold out": Mistake(
        ("no edge is in split 'valid'", "see task.split"),
        _LINKS,
        mended=put("task.split", {"kind": "random", "valid": 0.3, "test": 0.2}),
    ),
}
