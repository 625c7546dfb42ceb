"""Every configuration that ships is valid and fits the tables it names."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from gnnflow.config import load_config
from gnnflow.config.experiments import read_experiment
from gnnflow.datasets import payments
from tests.conftest import REPOSITORY

EXPERIMENTS = sorted((REPOSITORY / "configs" / "experiments").glob("*.yaml"))
EXAMPLES = sorted((REPOSITORY / "configs").glob("*.yaml"))
PUBLIC = [path for path in EXAMPLES if "GNNFLOW_DATA" in path.read_text()]


def test_examples_are_found():
    assert {path.stem for path in EXAMPLES} >= {"quickstart", "cora", "citeseer", "amazon_photo", "twitch"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid_and_says_what_it_is(path: Path):
    text = path.read_text()
    config = load_config(text, source=str(path), environment={})
    assert text.startswith("# ")
    assert config.workspace == "runs"
    # `make quickstart`, `gnnflow generate` as the comments have it, and `data` are in the repository's folder
    folders = {Path(uri).relative_to(REPOSITORY).parts[0] for uri in config.graph.node_tables.values()}
    assert len(folders & {"quickstart-data", "payments-typed", "data"}) == 1


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_run_of_an_experiment_is_valid(path: Path):
    experiment = read_experiment(yaml.safe_load(path.read_text()), source=path.name)
    assert {run.config.workspace for run in experiment.runs} == {"runs"}
    assert not experiment.refused


def test_the_quickstart_names_columns_the_generator_writes():
    graph = load_config((REPOSITORY / "configs" / "quickstart.yaml").read_text()).graph
    written = payments(num_nodes=100, num_edges=300)
    assert {graph.id, graph.label, graph.split, *graph.features} <= set(written.nodes.column_names)
    assert {graph.src, graph.dst, graph.weight, *graph.edge_features} <= set(written.edges.column_names)


def test_labels_of_payments_are_columns_the_generator_writes():
    graph = load_config((REPOSITORY / "configs" / "payments_edges.yaml").read_text()).graph
    written = payments(num_nodes=100, num_edges=300)
    assert {graph.id, *graph.features} <= set(written.nodes.column_names)
    assert {graph.label, graph.timestamp} <= set(written.edges.column_names)
    assert {graph.src, graph.dst, graph.weight, *graph.edge_features} <= set(written.edges.column_names)


@pytest.mark.data
@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.stem)
def test_an_example_names_columns_its_tables_have(path: Path, data_dir: Path):
    graph = load_config(path.read_text(), environment={"GNNFLOW_DATA": str(data_dir)}).graph
    for name, uri in graph.node_tables.items():
        nodes = pq.read_schema(uri)
        for feature in graph.features_of(name):
            assert feature in nodes.names or f"{feature}_index" in nodes.names
        is_labelled = graph.target in {None, name}
        assert {graph.id, *([graph.label, graph.split] if is_labelled else [])} <= set(nodes.names)
    for relation, uri in graph.edge_tables.items():
        edges = pq.read_schema(uri)
        assert {graph.src, graph.dst, *graph.edge_features_of(relation)} <= set(edges.names)
