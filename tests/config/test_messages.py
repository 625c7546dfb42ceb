"""A refused config says where, what was found, what is allowed, and what to do."""

from __future__ import annotations

import re

import pytest

from gnnflow.config import Config, LocalCluster, config_from_dict, load_config
from gnnflow.config.base import tagged_members
from gnnflow.graph.errors import ConfigError

MINIMAL = "name: tiny\ngraph: {nodes: nodes.parquet, edges: edges.parquet}\n"

MODEL_KINDS = ", ".join(tagged_members(Config.model_fields["model"]))


def refusal(extra: str = "", *, overrides: tuple[str, ...] = (), text: str = MINIMAL) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(text + extra, overrides=overrides, environment={})
    return caught.value


def test_bytes_that_are_not_utf8_are_named() -> None:
    with pytest.raises(
        ConfigError, match=r"workspace: 'w\\udcff' is not allowed: must be UTF-8 text\. Where artifacts"
    ):
        load_config(MINIMAL, workspace="w\udcff", environment={})


@pytest.mark.parametrize(
    ("override", "where", "problem"),
    [
        ("train.lr=-1", "train.lr", "-1 is not allowed: must be greater than 0"),
        ("train.lr=.inf", "train.lr", "inf is not allowed: must be a finite number"),
        ("train.lr=fast", "train.lr", "'fast' is not allowed: must be a number"),
        (
            "train.schedule={kind: cosine, warmup: 100}",
            "train.schedule.warmup",
            "100 is not allowed: must be less than 100, as train.epochs",
        ),
        ("train.schedule={kind: cosine, floor: 2}", "train.schedule.floor", "2 is not allowed: must be at most 1"),
        (
            "train.schedule={kind: step}",
            "train.schedule.kind",
            "'step' is not allowed: must be one of constant, linear",
        ),
        ("train.schedule=cosine", "train.schedule", "'cosine' is not allowed: must be a mapping of keys with a kind"),
        ("train.loss={kind: focl}", "train.loss.kind", "'focl' is not allowed: must be one of standard, focal, huber"),
        ("train.loss=focal", "train.loss", "'focal' is not allowed: must be a mapping of keys with a kind"),
        ("train.loss={kind: focal, delta: 1}", "train.loss.delta", "unknown key"),
        ("train.loss={gamma: 1}", "train.loss.gamma", "unknown key where train.loss.kind is standard"),
        ("train.precision=float16", "train.precision", "'float16' is not allowed: must be 'float32' or 'bfloat16'"),
        ("graph.formats={nodes: {separator: ab}}", "graph.formats.nodes.separator", "'ab' is no separator"),
        ("graph.formats={nodes: {columns: [a]}}", "graph.formats.nodes.header", "required but missing, where columns"),
        ("graph.formats={user: {}}", "graph.formats.user", "'user' is no table: there are nodes, edges"),
        ("train.accumulate=0", "train.accumulate", "0 is not allowed: must be at least 1"),
        ("train.clip_norm=0", "train.clip_norm", "0 is not allowed: must be greater than 0"),
        ("train.epochs=0", "train.epochs", "0 is not allowed: must be at least 1"),
        ("train.epochs=2.5", "train.epochs", "2.5 is not allowed: must be a whole number"),
        ("train.epochs=true", "train.epochs", "true is not allowed: must be a number, not a boolean"),
        ("train.lr=false", "train.lr", "false is not allowed: must be a number, not a boolean"),
        ("train.workers=0", "train.workers", "0 is not allowed: must be at least 1"),
        (
            "train.workers=4",
            "train.workers",
            "4 ranks need as many Dask workers, and cluster.workers is 2",
        ),
        ("train.updater.kind=gossip", "train.updater.kind", "'gossip' is not allowed: must be one of"),
        ("train.updater={kind: all_reduce, servers: 2}", "train.updater.servers", "unknown key"),
        (
            "train.updater={kind: parameter_server, mode: late}",
            "train.updater.mode",
            "'late' is not allowed: must be 'synchronous', 'bounded' or 'asynchronous'",
        ),
        (
            "cluster={kind: local, memory_limit: 2}",
            "cluster.memory_limit",
            "2 is not allowed: must be at least 512MiB",
        ),
        (
            "cluster={kind: local, memory_limit: 511MiB}",
            "cluster.memory_limit",
            "'511MiB' is not allowed: must be at least 512MiB",
        ),
        ("train.cache=-1", "train.cache", "-1 is not allowed: must be a size such as 512MiB or 2GiB"),
        (
            "train.cache=5 bananas",
            "train.cache",
            "'5 bananas' is not allowed: must be a size such as 512MiB or 2GiB",
        ),
        ("train.cache=large", "train.cache", "'large' is not allowed: must be a size such as 512MiB or 2GiB"),
        ("train.baseline=maybe", "train.baseline", "'maybe' is not allowed: must be true or false"),
        (
            "train.strategy=whole",
            "train.strategy",
            "'whole' is not allowed: must be 'mini-batch' or 'cluster-batch' or 'global-batch'",
        ),
        ("train=3", "train", "3 is not allowed: must be a mapping of keys"),
        ("seed=-1", "seed", "-1 is not allowed: must be at least 0"),
        ("seed=4294967296", "seed", "4294967296 is not allowed: must be at most 4294967295"),
        ("name=a/b", "name", "'a/b' is not allowed: must be letters, digits, dots, dashes and underscores"),
        ("workspace=''", "workspace", "'' is not allowed: must be longer than nothing"),
        (
            "workspace=s3://bucket/*",
            "workspace",
            "'s3://bucket/*' holds a wildcard (*, ? or [)",
        ),
        ("workspace='runs[1]'", "workspace", "'runs[1]' holds a wildcard (*, ? or [)"),
        ("workspace='runs?'", "workspace", "'runs?' holds a wildcard (*, ? or [)"),
        ("model.dropout=1", "model.dropout", "1 is not allowed: must be less than 1"),
        ("model.hidden=0", "model.hidden", "0 is not allowed: must be at least 1"),
        ("model.layers=99", "model.layers", "99 is not allowed: must be at most 16"),
        ("model.kind=gcnn", "model.kind", "'gcnn' is not allowed: must be one of gcn, sage, gat, gin, gat_e"),
        ("model.kind=my.layers.Gated", "model.kind", "'my.layers.Gated' is not allowed"),
        ("graph.partitions=0", "graph.partitions", "0 is not allowed: must be at least 1"),
        ("graph.features=[]", "graph.features", "[] is not allowed: must be a list of 1 or more"),
        ("graph.features=x", "graph.features", "'x' is not allowed: must be a list"),
        ("graph.nodes=3", "graph.nodes", "3 is not allowed: must be text or a mapping"),
        ("graph.normalize=standrd", "graph.normalize", "must be 'none', 'row' or 'standard'"),
        ("infer.targets=tst", "infer.targets", "'tst' is not allowed: must be 'all' or a list"),
        ("infer.targets=[]", "infer.targets", "[] is not allowed: must be 'all' or a list of 1 or more"),
        (
            "infer.targets=[tst]",
            "infer.targets[0]",
            "'tst' is not allowed: must be 'train', 'valid' or 'test'",
        ),
        ("flat.layout=both", "flat.layout", "'both' is not allowed: must be 'auto', 'shared' or 'inline'"),
    ],
)
def test_a_wrong_value_shows_path_value_and_what_is_allowed(override, where, problem):
    error = refusal(overrides=(override,))
    assert error.where == where
    assert problem in error.problem


@pytest.mark.parametrize(
    ("extra", "where", "fix"),
    [
        ("train: {lrr: 1}", "train.lrr", "Did you mean 'lr'? Keys here: strategy, epochs, lr"),
        ("tran: {lr: 1}", "tran", "Did you mean 'train'? Keys here: name, seed, workspace"),
        (
            "model: {heads: 3}",
            "model.heads",
            (
                "Keys here: kind, hidden, layers, dropout, activation, norm, residual, head, jumping, encoder, across. "
                "Kinds with heads: gat, gat_e, han, hgt, magnn."
            ),
        ),
        ("model: {kind: gat, aggregator: max}", "model.aggregator", "Keys here: kind, hidden"),
        ("model: {kind: gat, head_s: 3}", "model.head_s", "Did you mean 'heads'?"),
        ("model: {Hidden: 3}", "model.Hidden", "Did you mean 'hidden'?"),
        ("zebra: 1", "zebra", "Keys here: name, seed"),
        (
            "neighbors: {sampling: {kind: none, fanout: [1]}}",
            "neighbors.sampling.fanout",
            "Keys here: kind. Kinds with fanout: uniform, weighted, top_k.",
        ),
        ("cluster: {kind: local, wokers: 2}", "cluster.wokers", "Did you mean 'workers'?"),
    ],
)
def test_an_unknown_key_suggests_the_nearest_and_lists_the_rest(extra, where, fix):
    error = refusal(extra)
    assert error.where == where
    other = re.search(r"Kinds with", error.fix)
    assert re.fullmatch(r"unknown key where \S+ is \w+" if other else "unknown key", error.problem)
    assert error.fix.startswith(fix)


def test_a_key_of_another_strategy_says_which_strategy_is_set():
    error = refusal("train: {batch_size: 8}", overrides=("train.strategy=global-batch",))
    assert error.problem == "unknown key where train.strategy is global-batch"
    assert error.fix.endswith("Kinds with batch_size: mini-batch.")


def test_a_section_without_a_kind_or_without_keys_is_of_the_default_one():
    sections = ("cluster.memory_limit=1GiB", "model={hidden: 4}", "train={epochs: 2}", "partition=", "train.loss=")
    config = load_config(MINIMAL, overrides=sections, environment={})
    assert config.cluster == LocalCluster(memory_limit=1 << 30)
    named = ("model.kind=gcn", "model.hidden=4", "train.strategy=mini-batch", "train.epochs=2")
    assert config.model_copy(update={"cluster": LocalCluster()}) == load_config(MINIMAL, overrides=named)


@pytest.mark.parametrize(
    ("extra", "homes"),
    [
        ("epochs: 3", "epochs is a key elsewhere: train.epochs."),
        ("neighbors: {hops: 2}", "hops is a key elsewhere: flat.hops."),
        ("train: {heads: 2}", "heads is a key elsewhere: model.heads (kind: gat, gat_e, han, hgt, magnn)."),
        ("flat: {fanout: [2]}", "neighbors.sampling.fanout (kind: uniform, weighted, top_k)."),
    ],
)
def test_an_unknown_key_says_in_which_section_and_kind_it_is(extra, homes):
    assert homes in refusal(extra).fix


def test_mistakes_that_others_hide_are_in_the_same_answer():
    extra = "model: {layers: 0}\nflat: {hops: 1, layout: both}\ntrain: {workers: 9}\nseed: -1"
    found = str(refusal(extra, overrides=("graph.features=[id]", "graph.split=label")))
    assert found.startswith("7 keys are wrong:")
    keys = ("graph.features", "graph.split", "model.layers", "flat.hops", "flat.layout", "train.workers", "seed")
    assert all(f"\n  {key}: " in found for key in keys)


def test_a_word_that_belongs_into_a_list_is_shown_in_one():
    error = refusal("infer: {targets: test}")
    assert error.problem.startswith("'test' is not allowed: must be 'all' or a list")
    assert error.fix.startswith("Did you mean [test]? all, or a list of splits")


@pytest.mark.parametrize(
    ("extra", "where", "problem", "fix"),
    [
        (
            "neighbors: {sampling: {kind: unifrm, fanout: [2, 2]}}",
            "neighbors.sampling.kind",
            "'unifrm' is not allowed: must be one of none, uniform, weighted, top_k",
            "Did you mean 'uniform'?",
        ),
        (
            "neighbors: {sampling: {fanout: [2, 2]}}",
            "neighbors.sampling.fanout",
            "unknown key where neighbors.sampling.kind is none",
            "Keys here: kind. Kinds with fanout: uniform, weighted, top_k.",
        ),
        (
            "neighbors: {sampling: uniform}",
            "neighbors.sampling",
            "'uniform' is not allowed: must be a mapping of keys with a kind",
            "Kinds: none, uniform, weighted, top_k.",
        ),
        (
            "cluster: {kind: dask}",
            "cluster.kind",
            "'dask' is not allowed: must be one of synchronous, local, address, package.module:Cluster",
            "",
        ),
        (
            "model: {kind: gcnn}",
            "model.kind",
            f"'gcnn' is not allowed: must be one of {MODEL_KINDS}",
            "Did you mean 'gcn'?",
        ),
        (
            "model: {kind: my.layers.Gated}",
            "model.kind",
            f"'my.layers.Gated' is not allowed: must be one of {MODEL_KINDS}",
            "A layer class of your own, written as package.module:Class.",
        ),
        (
            "model: {kind: }",
            "model.kind",
            f"null is not allowed: must be one of {MODEL_KINDS}",
            "A layer class of your own",
        ),
        (
            "model: gat",
            "model",
            "'gat' is not allowed: must be a mapping of keys with a kind",
            f"Kinds: {MODEL_KINDS}.",
        ),
        ("cluster: {kind: address}", "cluster.address", "required but missing", "The scheduler's address"),
        (
            "neighbors: {sampling: {kind: top_k}}",
            "neighbors.sampling.fanout",
            "required but missing",
            "In-edges kept per node",
        ),
    ],
)
def test_a_union_lists_its_kinds(extra, where, problem, fix):
    error = refusal(extra)
    assert (error.where, error.problem) == (where, problem)
    assert error.fix.startswith(fix)


@pytest.mark.parametrize(
    ("extra", "where", "problem"),
    [
        ("flat: {hops: 1}", "flat.hops", "1 is not allowed: must be at least 2, as model.layers"),
        (
            "neighbors: {sampling: {kind: uniform, fanout: [5]}}",
            "neighbors.sampling.fanout",
            "[5] is not allowed: must have 2 numbers, one per hop",
        ),
        (
            "neighbors: {sampling: {kind: uniform, fanout: [5, 5]}}\nmodel: {layers: 3}",
            "neighbors.sampling.fanout",
            "[5, 5] is not allowed: must have 3 numbers, one per hop",
        ),
        (
            "neighbors: {sampling: {kind: weighted, fanout: [5, 0]}}",
            "neighbors.sampling.fanout[1]",
            "0 is not allowed: must be at least 1",
        ),
    ],
)
def test_impossible_combinations_are_refused(extra, where, problem):
    error = refusal(extra)
    assert (error.where, error.problem) == (where, problem)
    assert error.fix


@pytest.mark.parametrize(
    ("override", "where", "problem"),
    [
        ("graph.features=[x, label]", "graph.features", "'label' is the column of graph.label, and task.kind is node"),
        ("graph.features=[x, split]", "graph.features", "'split' is the column of graph.split, and task.kind is node"),
        ("graph.features=[x, x]", "graph.features", "['x', 'x'] names a column twice"),
        ("graph.features=[x, id]", "graph.features", "'id' is the column of graph.id"),
        ("graph.edge_features=[dst]", "graph.edge_features", "'dst' is the column of graph.dst"),
        ("graph.src=dst", "graph.dst", "'dst' is the column of graph.src too"),
        ("graph.label=id", "graph.label", "'id' is the column of graph.id too"),
        ("graph.weight=src", "graph.weight", "'src' is the column of graph.src too"),
        (
            "graph.nodes={user: u}",
            "graph.edges",
            "nodes and edges disagree: one is a path, the other a map of types",
        ),
    ],
)
def test_a_column_means_one_thing(override, where, problem):
    error = refusal(overrides=(override,))
    assert (error.where, error.problem) == (where, problem)


@pytest.mark.parametrize("edge", ["pays", "shop__pays__user", "user____user", "user__pays"])
def test_an_edge_type_joins_two_node_types(edge):
    error = refusal(overrides=("graph.nodes={user: u}", f"graph.edges={{{edge}: e}}"))
    assert error.where == f"graph.edges.{edge}"
    assert error.problem == f"{edge!r} does not join two of the node types user"
    assert "source__relation__target" in error.fix


@pytest.mark.parametrize(
    "override",
    [
        "workspace=s3://me:hunter2@bucket/runs",
        "graph.nodes=https://me:hunter2@example.com/n.parquet",
        "graph.nodes={user: 'ftp://me:hunter2@h/n'}",
        "workspace=s3://me:hunter2/p@ss@bucket",
        "cluster={kind: address, address: 'tls://me:hunter2@host:8786'}",
        "workspace=${PLACE_URL:-s3://me:hunter2@bucket/runs}",
    ],
)
def test_credentials_in_a_url_are_refused_and_never_shown(override):
    error = refusal(overrides=(override,))
    assert "holds a user and password" in error.problem
    assert "environment" in error.fix
    assert "hunter2" not in str(error)


def test_a_refused_value_never_shows_credentials():
    error = refusal(overrides=("graph.features=s3://me:hunter2@bucket",))
    assert error.where == "graph.features"
    assert "hunter2" not in str(error)


@pytest.mark.parametrize("url", ["s3://bucket/prefix@2026:01", "http://host:9000/runs@v2", "user@host:runs"])
def test_a_url_without_a_password_is_accepted(url):
    assert load_config(MINIMAL, workspace=url).workspace == url


def test_all_mistakes_are_reported_at_once():
    error = refusal("train: {lr: -1, epoch: 3}\nmodel: {heads: 0}")
    lines = str(error).splitlines()
    assert lines[0] == "3 keys are wrong:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["model.heads", "train.lr", "train.epoch"]


def test_missing_tables_and_name_are_named():
    error = refusal(text="graph: {nodes: n}")
    assert [line.split(":")[0].strip() for line in str(error).splitlines()[1:]] == ["name", "graph.edges"]


@pytest.mark.parametrize(
    ("overrides", "start"),
    [
        ([], "configs/tiny.yaml: train.lr: -1 is not allowed: must be greater than 0. Learning rate; the default is"),
        (["train.lr=-2", "train.lr=-3"], "--set train.lr=-3: -3 is not allowed: must be greater than 0"),
        (["train={lr: -3}"], "--set train={lr: -3}: train.lr: -3 is not allowed"),
        (["train.lr=1", "epochs=3"], "--set epochs=3: unknown key. epochs is a key elsewhere: train.epochs"),
        (["train.lr=1", "trian.epochs=3"], "--set trian.epochs=3: trian: unknown key. Did you mean 'train'?"),
        (["train.lr=1", "model.hidden.x=3"], "--set model.hidden.x=3: model.hidden: {'x': 3} is not allowed"),
        (["train.epochs=2"], "configs/tiny.yaml: train.lr: -1 is not allowed"),
        (["train.lr=1", f"name=a/{'b' * 200}"], f"--set name=a/{'b' * 93}...: 'a/bbb"),
    ],
)
def test_an_error_starts_with_the_file_or_the_option_that_it_came_from(overrides, start):
    with pytest.raises(ConfigError) as caught:
        load_config(f"{MINIMAL}\ntrain: {{lr: -1}}\n", overrides=overrides, source="configs/tiny.yaml")
    assert str(caught.value).startswith(start)


def test_a_key_that_did_nothing_is_refused_with_what_to_use_instead():
    error = refusal("cluster: {kind: local, threads: 4}")
    assert error.where == "cluster.threads"
    assert "had no effect" in error.problem
    assert error.fix.startswith("Delete it; cluster.workers")


@pytest.mark.parametrize(
    ("neighbors", "where", "problem"),
    [
        ("{kind: walk}", "neighbors.kind", "'walk' is not allowed"),
        ("{kind: walks, sampling: {kind: none}}", "neighbors.sampling", "unknown key"),
        ("{kind: metapaths}", "neighbors.paths", "required but missing"),
        ("{kind: metapaths, paths: [[node]]}", "neighbors.paths[0]", "a list of 2 or more"),
        ("{kind: metapaths, paths: [[node, movie]]}", "neighbors.paths", "'movie' is not a node type of the graph"),
        ("{kind: metapaths, paths: [[node, node], [node, node]]}", "neighbors.paths", "listed twice"),
        ("{kind: rings, distance: 0}", "neighbors.distance", "0 is not allowed"),
    ],
)
def test_neighbors_that_cannot_be_are_refused(neighbors, where, problem):
    error = refusal(f"neighbors: {neighbors}")
    assert error.where == where
    assert problem in error.problem


def test_a_metapath_steps_along_relations_of_the_graph():
    tables = "graph: {nodes: {a: a.csv, b: b.csv}, edges: {a__to__b: e.csv}, target: a, features: [x]}"
    paths = "neighbors: {kind: metapaths, paths: [[a, b, a]]}"
    with pytest.raises(ConfigError) as caught:
        load_config(f"name: n\n{tables}\n{paths}")
    assert "steps from a to b, and no relation leads from b to a" in str(caught.value)
    assert "reverse_edges: true" in str(caught.value)
    turned = tables.replace("target: a", "target: a, reverse_edges: true")
    load_config(f"name: n\n{turned}\n{paths}")


def test_two_metapaths_of_one_name_are_refused():
    types = "graph: {nodes: {a: a.csv, b: b.csv, c: c.csv, b-c: d.csv}, target: a, features: [x], reverse_edges: true"
    edges = "edges: {a__to__b: e.csv, b__to__c: f.csv, c__to__a: g.csv, a__to__b-c: h.csv}}"
    with pytest.raises(ConfigError, match="two paths give the relation a__a-b-c-a__a"):
        load_config(f"name: n\n{types}, {edges}\nneighbors: {{kind: metapaths, paths: [[a, b, c, a], [a, b-c, a]]}}")


def test_edges_that_are_scored_need_direct_neighbors():
    error = refusal("neighbors: {kind: walks}\ntask: {kind: link}\ntrain: {metric: mrr}")
    assert (error.where, "task.kind is link" in error.problem) == ("neighbors.kind", True)


def test_across_is_refused_where_nothing_is_joined():
    error = refusal("model: {kind: sage, across: mean}")
    assert error.where == "model.across"
    assert "the graph has one" in error.problem
    error = refusal("neighbors: {kind: walks}\nmodel: {kind: sage, across: mean}")
    assert "neighbors.kind walks gives one" in error.problem
    # rings are relations of their own, one per distance
    rings = "neighbors: {kind: rings, distance: 2}"
    assert load_config(f"{MINIMAL}\n{rings}\nmodel: {{kind: sage, across: mean}}").model.across == "mean"


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("train.epochs=${STAGE}", "'${STAGE}' is not allowed: must be a whole number"),
        ("train.lr=${UNSET:-must}", "'${UNSET:-must}' is not allowed: must be a number"),
        ("train.metric=${STAGE}/x", "'${STAGE}/x' is not allowed: must be 'auto'"),
    ],
)
def test_a_message_keeps_its_own_words_where_a_variable_holds_one_of_them(override, problem):
    with pytest.raises(ConfigError) as caught:
        load_config(MINIMAL, overrides=[override], environment={"STAGE": "train"})
    assert caught.value.problem.startswith(problem)
    assert "${STAGE}" not in caught.value.fix
    assert caught.value.where == override.partition("=")[0]


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["train.cache=0"], "unknown key"),
        (["train.folds=2"], "2 is not allowed where task.kind is node"),
        (["task.kind=edge", "train.folds=2"], "2 is not allowed where task.kind is edge with task.messages: true"),
        (["train.memory=2GiB", "train.recompute=true"], "true is not allowed where train.memory is set"),
        (["train.scratch=/tmp"], "is not allowed without train.memory"),
    ],
)
def test_a_key_that_would_change_nothing_is_refused(overrides, problem):
    error = refusal("train: {strategy: global-batch}\n", overrides=tuple(overrides))
    assert error.problem.startswith(problem)
    assert error.where == overrides[-1].partition("=")[0]


@pytest.mark.parametrize(
    ("graph", "neighbors", "said"),
    [
        ({"edges": {"a__to__b": "e"}}, {}, "Set graph.reverse_edges: true."),
        ({"edges": {"b__to__b": "e"}}, {}, "Give graph.edges a table of edges of a."),
        ({"edges": {"b__to__b": "e"}, "reverse_edges": True}, {}, "Give graph.edges a table of edges of a."),
        (
            {"edges": {"b__to__a": "e"}},
            {"kind": "metapaths", "paths": [["a", "b", "a"]]},
            "Set graph.reverse_edges: true, or name types",
        ),
        (
            {"edges": {"b__to__a": "e"}, "reverse_edges": True},
            {"kind": "metapaths", "paths": [["a", "a"]]},
            "from target to source. Name types",
        ),
    ],
)
def test_reverse_edges_are_advised_where_they_are_not_set_and_would_help(graph, neighbors, said):
    content = {"name": "typed", "graph": {"nodes": {"a": "a", "b": "b"}, "target": "a", **graph}}
    with pytest.raises(ConfigError) as caught:
        config_from_dict({**content, **({"neighbors": neighbors} if neighbors else {})})
    assert said in str(caught.value)
