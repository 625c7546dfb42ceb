"""Pictures of the graph, the stages and the ranks: what a reader of engineering looks at."""

from __future__ import annotations

import dataclasses

import pytest

from gnnflow.report import (
    BlowUp,
    GraphSummary,
    RoundRow,
    StageRow,
)
from gnnflow.report.pictures import (
    blow_up_bars,
    in_degree_histogram,
    pipeline_bars,
    stage_timeline,
)
from tests.report.drawn import texts


def test_in_degrees_count_hubs_and_lonely_nodes(make_inputs):
    graph = GraphSummary(
        1000,
        9000,
        in_degree_histogram=[(0, 1, 12), (1, 2, 900), (64, 128, 80), (128, 256, 8)],
        hub_threshold=100,
        num_hubs=11,
    )
    picture = in_degree_histogram(make_inputs(graph=graph))
    assert "11 nodes have more than 100 in-edges" in picture.caption
    assert "12 nodes have no in-edges" in picture.caption
    assert "hubs beyond 100" in texts(picture)
    assert [swatch.label for swatch in picture.legend] == ["nodes", "hubs: 11"]
    assert picture.table.rows[2] == ("64 to 127", "80", "8.0 %")
    # The bin the threshold falls into is drawn in both colours, the next one as hubs only.
    assert picture.svg.count("fill: var(--accent)") == 2
    assert picture.svg.count("fill: var(--warm)") == 2


def test_without_hubs_nothing_is_drawn_as_one(make_inputs):
    picture = in_degree_histogram(make_inputs())
    assert "No node has more than 10,000 in-edges" in picture.caption
    assert "--warm" not in picture.svg


@pytest.mark.parametrize(
    ("bins", "labels"),
    [
        ([(4, 8, 100), (8, 16, 100)], ["4", "6", "8", "10"]),
        ([(4, 8, 3)], ["4", "6"]),
        ([(1, 2, 300)], ["1"]),
        ([(1, 2, 9), (64, 128, 9)], ["1", "10", "100"]),
    ],
)
def test_in_degrees_of_less_than_a_decade_are_labelled_with_whole_numbers(make_inputs, bins, labels):
    graph = dataclasses.replace(make_inputs().graph, in_degree_histogram=bins, hub_threshold=0, reads_all=True)
    shown = texts(in_degree_histogram(make_inputs(graph=graph)))
    assert [text for text in shown[: shown.index("in-edges of a node (count, log)")] if text] == labels
    assert not [text for text in shown if "$" in text]


def test_without_sampling_no_threshold_is_told(make_inputs):
    graph = dataclasses.replace(make_inputs().graph, hub_threshold=0, reads_all=True, max_in_degree=12_999)
    picture = in_degree_histogram(make_inputs(graph=graph))
    assert picture.caption.startswith("Nothing is sampled: all in-edges of a node are read, 12,999 at most.")
    assert not [text for text in texts(picture) if "hubs" in text]


def test_blow_up_says_bytes_in_and_out(make_inputs):
    picture = blow_up_bars(make_inputs(blow_up=BlowUp(2_000_000, 31_000_000, 15.5, "inline", 310_000.0)))
    assert {"2 MB", "31 MB", "read", "written"} <= set(texts(picture))
    assert "15.5\N{MULTIPLICATION SIGN}" in picture.caption
    assert "310 kB per target, in the inline layout" in picture.caption


def test_timeline_hatches_what_was_reused(make_inputs):
    stages = [
        StageRow("ingest", 3.0, reused=True),
        StageRow("flat", 2.0, rounds=[RoundRow("frontier 1", 0.5, 1.25)]),
    ]
    picture = stage_timeline(make_inputs(stages=stages))
    assert {"ingest", "flat", "frontier 1", "3.0 s reused", "2.0 s", "1.2 s"} <= set(texts(picture))
    assert picture.svg.count("<pattern") == 1
    assert "ingest 3.0 s (reused), flat 2.0 s" in picture.alt
    assert "<pattern" not in stage_timeline(make_inputs(stages=stages[1:])).svg


@pytest.mark.parametrize(("seconds", "unit"), [(50, "seconds"), (500, "minutes"), (50_000, "hours")])
def test_timeline_s_axis_names_its_unit(make_inputs, seconds, unit):
    picture = stage_timeline(make_inputs(stages=[StageRow("train", seconds)]))
    assert f"one stage after another ({unit})" in texts(picture)


def test_the_pipeline_names_the_side_that_waits(make_inputs):
    (profile,) = make_inputs().profiles
    picture = pipeline_bars(make_inputs())
    assert "training waits 4.0 % for batches, and batches wait 40 % for training" in picture.caption
    assert "Computation limits" in picture.caption
    assert {"trainer", "reader"} <= set(texts(picture))
    assert "exchange with other ranks" not in {swatch.label for swatch in picture.legend}
    waits = {**profile, "wait_seconds": 0.15, "reader_wait_seconds": 0.0}
    assert "The preparation of batches limits" in pipeline_bars(make_inputs(profiles=[waits])).caption


def test_a_graph_that_is_one_batch_has_no_reader_that_could_wait(make_inputs):
    profile = {"seconds": 0.25, "forward_seconds": 0.1, "backward_seconds": 0.13}
    picture = pipeline_bars(make_inputs(profiles=[profile], streamed=True))
    assert "reader" not in texts(picture)
    assert "wait" not in picture.caption
    assert "read from files during the computation. Means of the epochs after the first, which also writes" in (
        picture.caption
    )


def test_the_first_epoch_on_a_graph_in_files_has_no_reader_either(make_inputs):
    profile = {"seconds": 0.25, "forward_seconds": 0.1, "read_seconds": 0.1, "reader_wait_seconds": 0.15}
    picture = pipeline_bars(make_inputs(profiles=[profile], streamed=True, curves=[{"epoch": 0, "train_loss": 1.0}]))
    assert "reader" not in texts(picture)
    assert picture.caption.endswith("during the computation. It is the only epoch, which also writes those files.")


def test_batches_that_are_kept_are_not_taken_for_a_graph_in_files(make_inputs):
    picture = pipeline_bars(make_inputs(profiles=[{"seconds": 0.25, "forward_seconds": 0.1}]))
    assert "reader" not in texts(picture)
    assert picture.caption == (
        "An epoch takes 250 ms. Its batches are kept in memory, so none had to be prepared. "
        "Means of the epochs after the first, which also makes the batches."
    )


def test_an_only_epoch_is_no_mean_of_later_ones(make_inputs):
    assert "after the first" not in pipeline_bars(make_inputs(curves=[{"epoch": 0, "train_loss": 1.0}])).caption


def test_of_many_ranks_those_that_wait_longest_are_shown(make_inputs):
    (profile,) = make_inputs().profiles
    ranks = [{**profile, "wait_seconds": 0.001 * rank, "exchange_seconds": 0.02} for rank in range(20)]
    picture = pipeline_bars(make_inputs(profiles=ranks))
    shown = [f"{side} {rank}" for rank in range(12, 20) for side in ("trainer", "reader")]
    assert [text for text in texts(picture) if text[-1].isdigit() and " " in text] == shown
    assert "Of 20 ranks these 8 wait longest." in picture.caption
    assert "exchange with other ranks" in {swatch.label for swatch in picture.legend}


def test_a_run_without_a_profile_says_so(make_inputs):
    assert "no profile" in pipeline_bars(make_inputs(profiles=[])).missing


def test_of_layers_that_ranks_compute_together_the_stages_are_shown(make_inputs):
    (profile,) = make_inputs().profiles
    stages = {"transform": 0.04, "gather_sum": 0.06, "mirrors": 0.05, "reduce": 0.01, "apply": 0.03}
    staged = {**profile, "wait_seconds": 0.0, **{f"{stage}_seconds": value for stage, value in stages.items()}}
    picture = pipeline_bars(make_inputs(profiles=[staged, staged]))
    assert "layers wait 20 % for rows of other ranks" in picture.caption
    assert {"trainer 0", "stages 0", "trainer 1", "stages 1"} <= set(texts(picture))
    assert {"NN-Transform", "Gather and Sum", "waiting for mirrors", "Reduce", "NN-Apply"} <= {
        swatch.label for swatch in picture.legend
    }
    rest = [row for row in picture.table.rows if row[1] == "input, head and loss"]
    assert [row[2] for row in rest] == ["10 ms", "10 ms"]
