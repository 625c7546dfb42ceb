import hashlib

import numpy as np
import pyarrow.compute as pc
import pytest
import yaml
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

from gnnflow.cli.commands import build_app
from gnnflow.config import GraphConfig
from gnnflow.datasets import save_tables, typed_payments, write_typed_payments
from gnnflow.datasets.typed_payments import PAYS, SENDS, USES
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.schema import Relation
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.filesystem import read_bytes
from gnnflow.storage.tables import read_table

NODES, EDGES = 10_000, 100_000


@pytest.fixture(scope="module")
def graph():
    return typed_payments(num_nodes=NODES, num_edges=EDGES, seed=0)


def rows(graph, relation, end):
    """Return the row of each edge's end in its node table."""
    kind = Relation.parse(relation).source if end == "src" else Relation.parse(relation).target
    return pc.index_in(graph.edges[relation][end], graph.nodes[kind]["id"].combine_chunks()).to_numpy()


def test_tables_have_the_sizes_asked_for_and_every_end_is_a_node_of_its_type(graph):
    assert sum(table.num_rows for table in graph.nodes.values()) == NODES
    assert sum(table.num_rows for table in graph.edges.values()) == EDGES
    assert all(pc.count_distinct(table["id"]).as_py() == table.num_rows for table in graph.nodes.values())
    assert all(np.isfinite(rows(graph, relation, end)).all() for relation in graph.edges for end in ("src", "dst"))
    assert (rows(graph, SENDS, "src") != rows(graph, SENDS, "dst")).all()


def test_devices_have_no_features_and_transfers_alone_have_weights_and_attributes(graph):
    columns = {kind: table.column_names for kind, table in graph.nodes.items()}
    assert columns == {"account": ["id", "x", "label", "split"], "device": ["id"], "merchant": ["id", "x"]}
    assert graph.edges[PAYS].column_names == ["src", "dst", "illicit"]
    assert graph.edges[USES].column_names == ["src", "dst"]
    for name in ("amount", "hour_sin", "hour_cos", "weight"):
        assert np.isfinite(graph.edges[SENDS][name].to_numpy()).all()
    assert graph.edges[SENDS]["weight"].to_numpy().min() >= 1


def test_every_account_has_a_device_and_a_few_merchants_are_hubs(graph):
    assert len(np.unique(rows(graph, USES, "src"))) == graph.nodes["account"].num_rows
    paid = np.bincount(rows(graph, PAYS, "dst"))
    assert paid.max() > 10 * paid.mean()


def test_four_fifths_of_the_accounts_are_labelled_and_split_60_20_20(graph):
    label, split = graph.nodes["account"]["label"], graph.nodes["account"]["split"]
    assert pc.all(pc.equal(pc.is_valid(label), pc.is_valid(split))).as_py()
    labelled = len(label) - label.null_count
    assert labelled == pytest.approx(0.8 * len(label), rel=0.03)
    shares = {row["values"]: row["counts"] / labelled for row in split.drop_null().value_counts().to_pylist()}
    assert shares == pytest.approx({"train": 0.6, "valid": 0.2, "test": 0.2}, abs=0.03)
    assert pc.mean(label).as_py() == pytest.approx(0.3, abs=0.03)


def test_illicit_payments_are_of_accounts_of_fraud_and_to_few_merchants(graph):
    illicit = graph.edges[PAYS]["illicit"].to_numpy() == 1
    label = graph.nodes["account"]["label"].fill_null(1).to_numpy()
    assert 0.1 < illicit.mean() < 0.2
    assert (label[rows(graph, PAYS, "src")[illicit]] == 1).all()
    fronts = np.unique(rows(graph, PAYS, "dst")[illicit])
    assert len(fronts) < 0.3 * graph.nodes["merchant"].num_rows


def test_fraud_shows_in_shared_devices_and_shared_merchants_together(graph):
    x = to_matrix(graph.nodes["account"]["x"])
    devices, merchants = shared(graph, USES, x), shared(graph, PAYS, x)
    alone, by_device = quality(graph, x), quality(graph, np.hstack([x, devices]))
    by_merchant, by_both = quality(graph, np.hstack([x, merchants])), quality(graph, np.hstack([x, devices, merchants]))
    assert alone < 0.72
    assert alone + 0.05 < min(by_device, by_merchant)
    assert max(by_device, by_merchant) < 0.88
    assert by_both > 0.92


def test_degrees_do_not_give_fraud_away(graph):
    accounts = graph.nodes["account"].num_rows
    degrees = [
        np.bincount(rows(graph, relation, end), minlength=accounts)
        for relation, end in ((USES, "src"), (PAYS, "src"), (SENDS, "src"), (SENDS, "dst"))
    ]
    reached = [
        shared(graph, relation, np.ones((accounts, 1)), average=False) for relation in (USES, PAYS)
    ]  # how many share what an account uses
    assert quality(graph, np.hstack([np.log1p(np.stack(degrees, 1)), *map(np.log1p, reached)])) < 0.65


def shared(graph, relation, values, *, average=True):
    """Return the mean over what each account uses of the mean (or the number) of its users' rows."""
    account, used = rows(graph, relation, "src"), rows(graph, relation, "dst")
    groups = summed(values[account], used, used.max() + 1)
    groups = groups / np.maximum(np.bincount(used), 1)[:, None] if average else groups
    count = np.maximum(np.bincount(account, minlength=len(values)), 1)[:, None]
    return summed(groups[used], account, len(values)) / count


def summed(values, at, size):
    return np.stack([np.bincount(at, column, minlength=size) for column in values.T], 1)


def quality(graph, features):
    """Return the area under the curve of a linear classifier on the test accounts."""
    accounts = graph.nodes["account"]
    label, split = accounts["label"].fill_null(-1).to_numpy(), np.array(accounts["split"].to_pylist(), dtype=object)
    train, test = split == "train", split == "test"
    with threadpool_limits(1):  # its threads wait for each other actively, which crawls on a busy machine
        classifier = LogisticRegression(max_iter=500).fit(features[train], label[train])
        return roc_auc_score(label[test], classifier.decision_function(features[test]))


def digests(folder, *, seed):
    section = write_typed_payments(str(folder), num_nodes=500, num_edges=3000, seed=seed)
    uris = [*section["nodes"].values(), *section["edges"].values()]
    return [hashlib.sha256(read_bytes(uri)).hexdigest() for uri in uris]


def test_the_same_seed_writes_the_same_bytes_and_another_seed_other_tables(tmp_path):
    first = digests(tmp_path / "a", seed=7)
    assert first == digests(tmp_path / "b", seed=7)
    other = digests(tmp_path / "c", seed=8)
    ids_alone = 1  # a device is its id and nothing else
    assert sum(one == two for one, two in zip(first, other, strict=True)) == ids_alone


def test_the_smallest_network_has_accounts_of_both_classes_and_all_its_tables():
    graph = typed_payments(num_nodes=100, num_edges=100, seed=3)
    assert set(pc.unique(graph.nodes["account"]["label"].drop_null()).to_pylist()) == {0, 1}
    assert all(table.num_rows for table in (*graph.nodes.values(), *graph.edges.values()))
    with pytest.raises(ConfigError, match="num_nodes: 20 is below the minimum of 100"):
        typed_payments(num_nodes=20)


def test_the_command_prints_a_graph_section_whose_maps_name_the_tables_it_wrote(tmp_path):
    folder = tmp_path / "typed: 1"  # a colon and a space are YAML's own
    command = ["generate", "payments", "--typed", "--out", str(folder), "--nodes", "200", "--edges", "900"]
    outcome = CliRunner().invoke(build_app(), command)
    assert outcome.exit_code == 0, outcome.output
    section = yaml.safe_load(outcome.stdout)["graph"]
    graph = typed_payments(num_nodes=200, num_edges=900)
    assert {kind: read_table(uri) for kind, uri in section["nodes"].items()} == graph.nodes
    assert {relation: read_table(uri) for relation, uri in section["edges"].items()} == graph.edges
    config = GraphConfig(**section)
    assert config.target == "account"
    assert set(config.edges) == set(graph.edges)


def test_written_where_tables_are_saved(tmp_path):
    section = write_typed_payments(str(tmp_path), num_nodes=100, num_edges=100)
    saved = save_tables(typed_payments(num_nodes=100, num_edges=100), str(tmp_path))
    assert saved == [*section["nodes"].values(), *section["edges"].values()]
    assert saved[-1] == str(tmp_path / "edges" / "account__uses__device.parquet")
