from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gnnflow.graph.run_facts import LinkFacts
from gnnflow.graph.train_labels import UnlearnableLabels
from gnnflow.report import BlowUp, GraphSummary, Parity, PredictionSample, StageRow
from gnnflow.report.headline import engineering_tiles, tiles
from gnnflow.report.hints import find_hints
from gnnflow.report.pictures import pipeline_bars


def titles(inputs) -> list[str]:
    return [hint.title for hint in find_hints(inputs)]


def test_a_healthy_run_gets_no_advice(make_inputs):
    assert find_hints(make_inputs()) == ()


def test_targets_that_only_degrees_tell_apart_are_named_first(make_inputs):
    (hint,) = find_hints(make_inputs(alike=["user: its nodes have no features. Set graph.reverse_edges: true."]))
    assert (hint.kind, hint.title) == ("problem", "Only degrees tell targets apart")
    assert "graph.reverse_edges: true" in hint.text


def curves(*losses: float) -> list[dict[str, float]]:
    return [{"epoch": e, "train_loss": 0.1, "valid_loss": value} for e, value in enumerate(losses, start=1)]


def waiting(**parts: float) -> dict[str, float]:
    return {"seconds": 3.0, "wait_seconds": 1.0, **{f"{part}_seconds": value for part, value in parts.items()}}


@pytest.mark.parametrize(
    ("profile", "advice"),
    [
        (waiting(read=2.0, build=1.0), "raise train.cache"),
        (waiting(read=1.0, build=2.0), "raise train.workers"),
    ],
)
def test_a_trainer_that_waits_is_told_what_the_reader_does(make_inputs, profile, advice):
    idle = {**profile, "wait_seconds": 0.0}
    (hint,) = find_hints(make_inputs(profiles=[idle, profile]))
    assert hint.title == "Training waits for its batches"
    assert "training waits 33 % for batches" in hint.text
    assert advice in hint.text
    assert find_hints(make_inputs(profiles=[idle])) == ()


def test_what_is_advised_and_what_is_said_of_the_picture_agree(make_inputs):
    by_turns = waiting(build=1.0, reader_wait=2.0)
    inputs = make_inputs(profiles=[by_turns])
    assert titles(inputs) == ["Training waits for its batches"]
    caption = pipeline_bars(inputs).caption
    assert "training waits 33 % for batches, and batches wait 67 % for training. Batches are mostly prepared" in caption
    assert "gain little" not in caption
    assert titles(make_inputs(profiles=[by_turns], streamed=True)) == []


def never_rules() -> PredictionSample:
    labels = np.repeat([0, 1, 2], 10)
    return PredictionSample(labels, np.eye(3)[np.where(labels == 1, 0, labels)])


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"parity": Parity(10, 2e-4, 1e-4)}, "Another route gives other scores"),
        ({"curves": [{"epoch": 3, "train_loss": float("nan")}]}, "The loss stopped being a number at epoch 3"),
        ({"large": {"graph.normalize": ["age"]}}, "Large numbers are not scaled"),
        ({"unread": ["amount", "hour"]}, "The model does not read the edge attributes"),
        ({"baseline": {"test.accuracy": 0.83}}, "The edges add little"),
        ({"baseline": {"test.accuracy": 0.9}}, "The model is worse than one without edges"),
        ({"metrics": {"test.accuracy": 1.0}}, "Too good to be true?"),
        ({"metrics": {"train.accuracy": 0.99, "valid.accuracy": 0.8}}, "The model remembers the train split"),
        ({"metrics": {"valid.accuracy": 0.9, "test.accuracy": 0.7}}, "Test falls behind valid"),
        ({"curves": curves(0.9, 0.5, 0.4, 0.6)}, "The valid loss rises after epoch 3"),
        ({"best_epoch": 10}, "The last epoch was the best"),
        ({"predictions": never_rules()}, "One class is never found"),
        ({"link_facts": LinkFacts("test", 90, 30, 89, 0.3, False)}, "Some ranked candidates are edges or repeated"),
        ({"link_facts": LinkFacts("test", 90, 100, 19, 0.0, True)}, "Some ranked candidates are edges or repeated"),
        (
            {"link_facts": LinkFacts("test", 90, 30, 89, 0.0, False, {"order": (1.0, 0.04)})},
            "Other nodes may reveal which pairs are edges",
        ),
        ({"constant": "the model predicts class 0"}, "The model predicts the same for every target"),
        ({"unlearnable": UnlearnableLabels(("2",), (), "class", False)}, "A class cannot be learned"),
        ({"unlearnable": UnlearnableLabels((), ("2",), "label", False)}, "A label cannot be learned"),
        (
            {"blow_up": BlowUp(10, 125, 12.5, "shared", 1.0)},
            "GraphFlat writes 12.5\N{MULTIPLICATION SIGN} what it reads",
        ),
        (
            {"stages": [StageRow("ingest", 10), StageRow("flat", 300), StageRow("train", 50)]},
            "Flat took 83 % of the time",
        ),
    ],
)
def test_advice_follows_from_its_figure(make_inputs, changes, title):
    assert title in titles(make_inputs(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"constant": "the model predicts class 0"},
        {"unlearnable": UnlearnableLabels(("rules",), (), "class", False), "class_names": ("a", "rules", "c")},
    ],
)
def test_a_class_that_cannot_be_found_is_said_once(make_inputs, changes):
    assert "One class is never found" not in titles(make_inputs(predictions=never_rules(), **changes))


@pytest.mark.parametrize("facts", [("test", 90, 30, 89, 0.04, False), ("test", 90, 30, 89, 0.3, True)])
def test_candidates_of_which_few_are_edges_get_no_advice(make_inputs, facts):
    assert titles(make_inputs(link_facts=LinkFacts(*facts))) == []


def test_labels_that_can_all_be_learned_get_no_advice(make_inputs):
    assert titles(make_inputs(unlearnable=UnlearnableLabels((), (), "class", False))) == []


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"reads_all": True, "max_in_degree": 12_999}, "A node has 12,999 in-edges, and all are read"),
        ({"in_degree_histogram": [(0, 1, 45), (1, 2, 55)]}, "45 % of the nodes have no in-edges"),
        ({"split_counts": {"train": 50, "test": 50}}, "No valid split"),
    ],
)
def test_advice_about_the_graph(make_inputs, changes, title):
    graph = dataclasses.replace(make_inputs().graph, **changes)
    assert titles(make_inputs(graph=graph)) == [title]


@pytest.mark.parametrize(
    "changes", [{"reads_all": True, "max_in_degree": 10_000}, {"num_hubs": 3, "max_in_degree": 12_999}]
)
def test_a_fan_out_is_advised_only_where_there_is_none(make_inputs, changes):
    assert titles(make_inputs(graph=dataclasses.replace(make_inputs().graph, **changes))) == []


@pytest.mark.parametrize(("baseline", "words"), [(1.0, "The features alone predict"), (0.6, "The model predicts")])
def test_a_perfect_score_is_asked_whether_it_was_told_the_label(make_inputs, baseline, words):
    perfect = make_inputs(metrics={"test.accuracy": 0.9995}, baseline={"test.accuracy": baseline})
    (hint,) = [hint for hint in find_hints(perfect) if hint.title == "Too good to be true?"]
    assert words in hint.text
    few = dataclasses.replace(perfect, graph=dataclasses.replace(perfect.graph, split_counts={"test": 9}))
    assert "Too good to be true?" not in titles(few)
    assert "Too good to be true?" not in titles(dataclasses.replace(perfect, metrics={"test.accuracy": 0.99}))


def test_an_inline_blow_up_points_to_the_shared_layout(make_inputs):
    (hint,) = find_hints(make_inputs(blow_up=BlowUp(10, 125, 12.5, "inline", 1.0)))
    assert "flat.layout: shared" in hint.text


def test_lower_errors_count_as_better(make_inputs):
    good = {"metrics": {"test.mae": 0.5, "valid.mae": 0.4}, "baseline": {"test.mae": 0.9}}
    assert titles(make_inputs(label_kind="regression", metric="mae", predictions=None, **good)) == []


def test_the_gravest_comes_first(make_inputs):
    changes = {"parity": Parity(10, 1.0, 1e-4), "best_epoch": 10, "large": {"graph.normalize": ["age"]}}
    assert [hint.kind for hint in find_hints(make_inputs(**changes))] == ["problem", "warning", "idea"]


def test_training_is_not_told_about_rounds(make_inputs):
    stages = [StageRow("ingest", 10), StageRow("flat", 50), StageRow("train", 300)]
    (hint,) = [hint for hint in find_hints(make_inputs(stages=stages)) if "Train took" in hint.title]
    assert "rounds" not in hint.text
    assert "train.threads" in hint.text


REMEMBERS = {"metrics": {"train.accuracy": 0.99, "valid.accuracy": 0.8}}
SPLITS = {"train": 5, "valid": 5}
INLINE = {"blow_up": BlowUp(10, 125, 12.5, "inline", 1.0)}


@pytest.mark.parametrize(
    ("changes", "config", "unset", "as_set"),
    [
        (REMEMBERS, {"train": {"patience": 10}}, "train.patience, which is 20", "lower train.patience, which is 10"),
        (REMEMBERS, {"train": {"patience": 0}}, "train.patience, which is 20", "set train.patience to stop"),
        (REMEMBERS, {"train": {"patience": 1}}, "train.patience, which is 20", "set train.metric: loss"),
        (
            {"curves": curves(0.9, 0.5, 0.4, 0.6)},
            {"train": {"patience": 2}},
            "lower train.patience, which is 20",
            "lower train.patience, which is 2",
        ),
        (
            {"curves": [{"epoch": 3, "train_loss": float("nan")}]},
            {"graph": {"normalize": "standard"}},
            "graph.normalize",
            "extreme feature values.",
        ),
        (
            {"baseline": {"test.accuracy": 0.9}},
            {"graph": {"reverse_edges": True}, "model": {"head": "jumping"}},
            "try graph.reverse_edges: true, another model.kind or model.head: jumping.",
            "try another model.kind.",
        ),
        (
            {"predictions": never_rules()},
            {"train": {"class_weight": "balanced"}},
            "Try train.class_weight: balanced",
            "Classes are weighed already",
        ),
        (
            {"graph": GraphSummary(100, 600, split_counts=SPLITS)},
            {"task": {"split": {"kind": "random"}}},
            "Mark some targets in graph.split",
            "Raise task.split.test.",
        ),
        (
            {"graph": GraphSummary(100, 600, in_degree_histogram=[(0, 1, 100)])},
            {"graph": {"reverse_edges": True}},
            "set graph.reverse_edges: true",
            "No edge has their ids",
        ),
        ({"unread": ["amount"]}, {"neighbors": {"kind": "walks"}}, "Try model.kind: gat_e.", "neighbors.kind: direct"),
        (
            INLINE,
            {"neighbors": {"sampling": {"kind": "uniform"}}},
            "set a fan-out (neighbors.sampling)",
            "lower the fan-out (neighbors.sampling)",
        ),
        (
            {"parity": Parity(10, 2e-4, 1e-4)},
            {"infer": {"sampling": "same"}},
            "(infer.sampling: same)",
            "Do not publish them.",
        ),
        (
            {"profiles": [waiting(read=1.0, build=2.0)]},
            {"train": {"prefetch": 2}},
            "A train.prefetch of 0",
            "whose ranks have a reader each.",
        ),
    ],
)
def test_advice_takes_into_account_what_is_set(make_inputs, changes, config, unset, as_set):
    plain, told = (
        " ".join(hint.text for hint in find_hints(make_inputs(config=held, **changes))) for held in ({}, config)
    )
    assert unset in plain
    assert unset not in told
    assert as_set in told


def test_what_is_set_is_read_by_the_names_of_keys(make_inputs):
    inputs = make_inputs(config={"train": {"lr": 0.1}, "seed": 0})
    assert inputs.setting("train.lr") == 0.1
    assert inputs.setting("train.lr.more") is inputs.setting("publish.name") is None


def test_tiles_ask_for_nothing_that_is_set(make_inputs):
    def notes(**changes):
        return [tile.note for made in (tiles, engineering_tiles) for tile in made(make_inputs(**changes))]

    assert "no target was scored again: set infer.parity_samples" in notes(parity=None)
    assert "no target was scored again" in notes(parity=None, config={"infer": {"parity_samples": 256}})
    assert "set train.baseline: true to compare" in notes(baseline=None)
    assert "it has no score to compare" in notes(baseline={"valid.other": 0.5})
