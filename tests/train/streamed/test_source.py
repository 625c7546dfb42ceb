"""Training under a budget of memory: the figures of global-batch, and what happens to the files."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnflow.config import config_from_dict
from gnnflow.executions.streamed import GroupSizes
from gnnflow.graph.errors import ConfigError, TrainingError
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.layers.saved import decode_weights
from gnnflow.progress import Silent
from gnnflow.train.streamed import open_streamed, source
from gnnflow.train.streamed.budget import plan
from gnnflow.train.streamed.files import LocalDisk, Scratch, check_disk
from gnnflow.train.streamed.packed import ROWS_OF_TWO_BYTES
from gnnflow.train.streamed.size import GraphSize
from gnnflow.train.streamed.widths import ON_CARD, ON_CPU
from gnnflow.train.trainer import train
from tests.hearing import Heard
from tests.train.globalbatch.stored import NUM_NODES, config_of, job_for, job_of, write
from tests.train.streamed.cutting import cut_to

SAMPLES = {
    "every edge": None,
    "uniform": {"kind": "uniform", "fanout": [4, 3]},
    "weighted": {"kind": "weighted", "fanout": [4, 4]},
}
MODELS = {
    "gcn": {"kind": "gcn", "hidden": 8, "dropout": 0.0},
    "gat": {"kind": "gat", "hidden": 8, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0},
    "sage-max": {"kind": "sage", "aggregator": "max", "hidden": 8, "dropout": 0.0},
    "deep": {"kind": "sage", "hidden": 8, "layers": 4, "dropout": 0.0, "norm": "layer", "residual": True},
    "jumping": {"kind": "gin", "hidden": 8, "layers": 3, "dropout": 0.0, "head": "jumping", "encoder": "linear"},
}
PLANNED = """
import sys
from pathlib import Path
from gnnflow.progress import Silent
from gnnflow.train.streamed import source
from gnnflow.train.trainer import train
from tests.train.globalbatch.stored import job_for

made, there = source.plan, set()

def plan(*given, **keys):
    there.update(sys.modules)
    return made(*given, **keys)

source.plan = plan
train(job_for(Path(sys.argv[1]), memory="1GiB"), progress=Silent())
print(len(there) > 0, len([name for name in sys.modules if name not in there and "gnnflow" not in name]))
"""
DROPPED = {**MODELS["gat"], "dropout": 0.5, "attention_dropout": 0.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streamed")
    write(folder)
    return folder


@pytest.fixture
def cut(monkeypatch):
    """Cut the graph into five intervals, and its chunks into pieces of a few edges."""
    monkeypatch.setattr(source, "plan", cut_to(0))


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def streamed(folder, **keys):
    return job_for(folder, memory="1GiB", **keys)


@pytest.mark.table(7)
@pytest.mark.parametrize(
    ("model", "sample"), [*((name, "every edge") for name in MODELS), ("gcn", "uniform"), ("gcn", "weighted")]
)
def test_training_equals_global_batch(folder, cut, model, sample):
    keys = {"model": MODELS[model], "sampling": SAMPLES[sample]}
    found, expected = (train(job(folder, **keys), progress=Silent()) for job in (streamed, job_for))
    expected_weights = decode_weights(expected.weights)
    for name, value in decode_weights(found.weights).items():
        torch.testing.assert_close(value, expected_weights[name], rtol=1e-4, atol=1e-4, msg=name)
    assert found.best_epoch == expected.best_epoch
    assert found.metrics["test.accuracy"] == expected.metrics["test.accuracy"]
    np.testing.assert_allclose(
        [row["train_loss"] for row in found.history], [row["train_loss"] for row in expected.history], rtol=1e-4
    )


@pytest.mark.slow
@pytest.mark.table(2)
@pytest.mark.parametrize("columns", [["amount"], ["amount", "hour"]])
def test_attributes_of_edges_are_read_as_they_were_filed(folder, cut, columns):
    document = config_of(folder, memory="1GiB").model_dump(mode="json")
    document["graph"]["edge_features"], document["model"] = columns, {"kind": "gat_e", "hidden": 8, "dropout": 0.0}
    config = config_from_dict(document)
    del document["train"]["memory"]
    found, expected = (job_of(each) for each in (config, config_from_dict(document)))
    losses = [[row["train_loss"] for row in train(job, progress=Silent()).history] for job in (found, expected)]
    np.testing.assert_allclose(*losses, rtol=1e-4)


def test_the_same_seed_gives_the_same_bytes(folder, cut):
    first, second = (train(streamed(folder, model=DROPPED), progress=Silent()).weights for _ in range(2))
    assert first == second


@pytest.mark.table(6)
@pytest.mark.parametrize("model", [*MODELS, "ggcn"])
def test_what_stays_together_changes_no_byte(folder, monkeypatch, model):
    found = []
    for together in (GroupSizes(), GroupSizes(2, 3), GroupSizes(5, 5)):
        monkeypatch.setattr(source, "plan", cut_to(0, together=together))
        chosen = {**MODELS.get(model, {"kind": model, "hidden": 8}), "dropout": 0.4}
        found.append(train(streamed(folder, model=chosen, epochs=3), progress=Silent()).weights)
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_a_killed_training_goes_on_to_the_same_bytes(folder, cut, tmp_path):
    class KilledError(Exception):
        pass

    class KilledAt(LocalDisk):
        """Ends the process in the midst of an epoch."""

        writes = 0

        def write(self, file, held, at):
            type(self).writes += 1
            if self.writes > 1500:
                raise KilledError
            super().write(file, held, at)

    keys = {"model": DROPPED, "epochs": 6, "checkpoint_steps": 1}
    undisturbed = train(streamed(folder, **keys), progress=Silent())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(source, "Scratch", lambda folder: Scratch(folder, KilledAt()))
        with pytest.raises(KilledError):
            train(streamed(folder, uri=str(tmp_path / "kept"), **keys), progress=Silent())
    heard = Heard()
    again = train(streamed(folder, uri=str(tmp_path / "kept"), **keys), progress=heard)
    assert any("goes on from epoch" in text for text in heard.messages)
    assert again.weights == undisturbed.weights


@pytest.mark.parametrize("after", [0, 40, 400])
def test_a_full_disk_is_one_error_and_leaves_no_file(folder, cut, tmp_path, after):
    class Full(LocalDisk):
        writes = 0

        def write(self, file, held, at):
            type(self).writes += 1
            if self.writes > after:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().write(file, held, at)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(source, "Scratch", lambda folder: Scratch(folder, Full()))
        with pytest.raises(TrainingError) as caught:
            train(streamed(folder, scratch=str(tmp_path)), progress=Silent())
    assert str(caught.value) == (
        f"train.scratch: No space left on device in {tmp_path}, where the files of train.memory lie. "
        "Free space there, or set train.scratch to a folder of a larger local disk."
    )
    assert not list(tmp_path.iterdir())


def test_files_have_no_name_and_are_closed(folder, cut, tmp_path):
    opened = open_files()
    with open_streamed(streamed(folder, scratch=str(tmp_path))) as found:
        (step,) = found.steps(0, since=0)
        model = build_model(config_of(folder).model, job_for(folder).model.inputs).train()
        step.logits(model).sum().backward()
        assert open_files() > opened
        assert not list(tmp_path.iterdir())
    assert open_files() == opened


def test_a_folder_that_is_not_there_is_told(folder, tmp_path):
    with pytest.raises(TrainingError, match=r"train\.scratch: No such file or directory"):
        open_streamed(streamed(folder, scratch=str(tmp_path / "absent")))


def test_a_disk_without_the_space_is_refused_before_anything_is_written(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "plan", cut_to(1 << 60))
    with pytest.raises(TrainingError, match=r"writes \d+MiB to .*, which has \d+MiB free"):
        open_streamed(streamed(folder, scratch=str(tmp_path)))


def test_the_baseline_is_the_same_nodes_without_edges(folder, cut):
    job = streamed(folder, baseline=True)
    with open_streamed(job, edges=False) as found:
        assert sum(piece.num_edges for piece in found.graph.pieces(0)) == 0
        assert sum(found.graph.sizes) == NUM_NODES
    assert "baseline.test.accuracy" in train(job, progress=Silent()).metrics


def test_a_step_computes_the_rows_that_reach_a_target_and_an_evaluation_all(folder, cut):
    with open_streamed(streamed(folder, model=MODELS["gcn"])) as found:
        (step,) = found.steps(0, since=0)
        pruned = found.training
        assert sum(pruned.active(2)) == len(step.targets) < 0.75 * NUM_NODES
        assert sum(pruned.active(2)) <= sum(pruned.active(1)) <= sum(pruned.active(0)) <= NUM_NODES
        of_layer = [sum(piece.num_edges for piece in pruned.pieces(layer)) for layer in (0, 1)]
        every = sum(piece.num_edges for piece in found.graph.pieces(1))
        assert of_layer[1] < of_layer[0] <= every
        assert found.graph.active(2) == found.graph.sizes
        model = build_model(config_of(folder).model, job_for(folder).model.inputs)
        outputs = found.outputs(model, "test")
        assert (np.diff(outputs.targets) > 0).all()


@pytest.mark.slow
def test_libraries_are_there_before_the_budget_is_planned(folder):
    done = subprocess.run([sys.executable, "-c", PLANNED, str(folder)], capture_output=True, text=True, check=True)
    planned, late = done.stdout.split()
    assert planned == "True"
    assert int(late) < 50  # modules; SymPy alone has 500


def test_a_budget_that_is_too_small_is_refused_with_the_number(folder):
    with pytest.raises(TrainingError, match=r"train\.memory: 33MiB is not enough: \d+MiB are needed") as caught:
        open_streamed(job_for(folder, memory="33MiB"))
    advised = re.search(r"Set it to (\d+MiB) or more", str(caught.value))
    assert advised is not None
    with open_streamed(job_for(folder, memory=advised[1])) as found:
        assert found.plan.num_bytes <= int(advised[1][:-3]) << 20
    below = int(advised[1][:-3]) - 1
    with pytest.raises(TrainingError, match=rf"{below}MiB is not enough: {advised[1]} are needed"):
        open_streamed(job_for(folder, memory=f"{below}MiB"))


FINE = GraphSize((2_000_000,), (40_000_000,), 1000, (64,), 0, (20_000, 400_000))


@pytest.mark.parametrize(
    ("size", "place"),
    [
        (GraphSize((60,), (400,), 15, (5,), 0, (20, 140)), ON_CPU),
        (FINE, ON_CPU),
        (FINE, ON_CARD),
        (replace(FINE, largest=(100_000, 2_000_000)), ON_CPU),
        (replace(FINE, num_targets=2_000_000), ON_CPU),
        (replace(FINE, ranks=4, all_targets=4000), ON_CPU),
        (replace(FINE, ranks=4, all_targets=4000), ON_CARD),
        (replace(FINE, leaves=3), ON_CPU),
        (replace(FINE, leaves=3), ON_CARD),
        (replace(FINE, labelled=20_000_000, label_bytes=400), ON_CPU),
    ],
)
def test_the_number_that_is_asked_for_is_the_least_that_is_enough(folder, size, place):
    model = build_model(
        job_for(folder, model={"kind": "gat", "hidden": 64, "heads": 2}).model.config, ModelInputs(64, 8)
    )
    asked = []
    for budget in (1 << 20, 34 << 20):
        with pytest.raises(TrainingError, match="MiB are needed") as caught:
            plan(model, size, budget=budget, place=place)
        asked.append(int(re.search(r"Set it to (\d+)MiB or more", str(caught.value))[1]))
    (least,) = set(asked)
    assert plan(model, size, budget=least << 20, place=place).num_bytes <= least << 20
    with pytest.raises(TrainingError, match=rf"{least - 1}MiB is not enough: {least}MiB are needed"):
        plan(model, size, budget=(least - 1) << 20, place=place)


def test_fewer_bytes_are_more_intervals(folder):
    job = job_for(folder)
    model = job.model.build()
    size = GraphSize((2_000_000,), (40_000_000,), 1000, (64,), 0, (100_000, 2_000_000))
    plans = [plan(model, size, budget=mib << 20) for mib in (4000, 1000, 600)]
    assert [each.intervals for each in plans] == sorted({each.intervals for each in plans})
    assert all(each.num_bytes <= mib << 20 for each, mib in zip(plans, (4000, 1000, 600), strict=True))
    with pytest.raises(TrainingError, match="reading a partition of 100,000 nodes and 2,000,000 in-edges"):
        plan(model, size, budget=200 << 20)


def test_what_the_fewest_intervals_leave_of_a_budget_lets_several_stay_together(folder):
    job = job_for(folder, model={"kind": "gat", "hidden": 64, "heads": 2})
    model = job.model.build()
    size = GraphSize((2_000_000,), (40_000_000,), 1000, (64,), 0, (20_000, 400_000))
    for mib in (2000, 1000, 600):
        made = plan(model, size, budget=mib << 20)
        single = plan(model, size, budget=mib << 20, place=replace(ON_CPU, groups=False))
        assert made.num_bytes <= mib << 20
        assert {each.targets for (each,) in single.together} == {each.sources for (each,) in single.together} == {1}
        passes = [
            sum(-(-of.intervals // each.targets) - (-of.intervals // each.sources) for (each,) in of.together)
            for of in (made, single)
        ]
        assert passes[0] < passes[1] / 2
        assert single.intervals <= made.intervals <= 4 * single.intervals + 2
    on_card = plan(model, size, budget=2000 << 20, place=ON_CARD)
    assert {(each.targets, each.sources) for (each,) in on_card.together} == {(1, 1)}


def test_many_edges_are_cut_so_that_their_ends_have_two_bytes(folder):
    model = build_model(job_for(folder, model={"kind": "gcn", "hidden": 64}).model.config, ModelInputs(64, 8))
    few, many = (
        GraphSize((600_000,), (edges,), 1000, (64,), 0, (10_000, edges // 60)) for edges in (3_000_000, 90_000_000)
    )
    least, cut = (plan(model, size, budget=600 << 20) for size in (few, many))
    assert -(-600_000 // least.intervals) > ROWS_OF_TWO_BYTES >= -(-600_000 // cut.intervals)


def test_a_rank_of_several_needs_memory_for_what_goes_round(folder):
    job = job_for(folder, model={"kind": "gat", "hidden": 64, "heads": 2})
    model = job.model.build()
    alone = GraphSize((500_000,), (10_000_000,), 1000, (64,), 0, (100_000, 2_000_000))
    of_four = replace(alone, ranks=4, all_targets=4000)
    one, ring = (plan(model, size, budget=600 << 20) for size in (alone, of_four))
    assert ring.intervals > one.intervals
    assert ring.num_bytes <= 600 << 20
    # a rank has as much as one process, but for where the edges of its chunks begin, which are more, and but for
    # edges per layer, where one process computes the rows alone that reach a target
    offsets, edges = 8 * 500_000, 3 * 4 * 10_000_000
    assert ring.disk_bytes - one.disk_bytes == offsets * (4 * ring.intervals - 2 * one.intervals) - edges
    assert not plan(model, of_four, budget=600 << 20, copies=True).copies  # all states stay: nothing is read again
    finer = replace(of_four, largest=(10_000, 200_000))
    ring, copied = (plan(model, finer, budget=250 << 20, copies=copies) for copies in (False, True))
    of_others, rest = divmod(copied.disk_bytes - ring.disk_bytes, 3 * 500_000 * 4)
    assert of_others >= 64 + 2  # GAT's values and half logits
    assert rest == 0
    assert copied.copies
    with pytest.raises(TrainingError, match=r"train\.workers: edges with leaves cannot be divided among 4 ranks"):
        plan(model, replace(of_four, leaves=3), budget=8 << 30)


def test_ranks_of_one_disk_need_the_space_together(folder, tmp_path):
    free = shutil.disk_usage(tmp_path).free
    made = free * 2 // 3
    check_disk(made, str(tmp_path))
    with pytest.raises(TrainingError, match=r"training on 2 ranks under train\.memory writes \d+MiB to"):
        check_disk(made, str(tmp_path), ranks=2)


def test_ranks_may_each_have_a_card(folder):
    document = config_of(folder).model_dump(mode="json")
    document["train"] |= {"memory": "1GiB", "device": "cuda", "workers": 2}
    document["cluster"] = {"kind": "local", "workers": 2}
    assert config_from_dict(document).train.workers == 2


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"updater": {"kind": "parameter_server"}}, "parameter_server is not allowed where train.strategy is"),
        ({"workers": 5, "elastic": True}, "5 ranks share 4 partitions under global-batch, and each needs one"),
        ({"device": "auto"}, "auto is not allowed where train.memory is set"),
        ({"precision": "bfloat16"}, "bfloat16 is not allowed where train.memory is set"),
        ({"memory": None, "scratch": "/tmp"}, "is not allowed without train.memory"),
        ({"memory": 0}, "train.memory"),
    ],
)
def test_what_does_not_go_with_a_budget_is_refused(folder, keys, said):
    document = config_of(folder).model_dump(mode="json")
    document["train"] |= {"memory": "1GiB", **keys}
    document["cluster"] = {"kind": "local", "workers": 2}
    with pytest.raises(ConfigError, match=said):
        config_from_dict(document)


def test_pairs_are_not_trained_on_under_a_budget(folder):
    document = config_of(folder).model_dump(mode="json")
    document["train"] |= {"memory": "1GiB", "metric": "mrr"}
    document["task"] = {"kind": "link"}
    with pytest.raises(ConfigError, match=r"task\.kind: link is not allowed where train\.memory is set"):
        config_from_dict(document)
