"""The page of a scoring, and the words for what changed since the scoring before."""

from __future__ import annotations

import html
import re
import webbrowser
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.cli.commands import report
from gnnflow.ingest.statistics import Drift
from gnnflow.report.formats import score_text
from gnnflow.stages import publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.score_drift import Change, ScoreDrift
from gnnflow.stages.score_figures import Figures
from gnnflow.stages.score_report import report_at
from gnnflow.storage.run_folder import read_metrics
from tests.small_graphs import write_graph
from tests.small_links import run_groups
from tests.stages.test_score_figures import by_sign, published, relabel


def text_of(page: str) -> str:
    """Return the words of a page, each blank once."""
    body = re.sub(r"<(style|script).*?</\1>", "", Path(page.removeprefix("file://")).read_text(), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def new_ids(folder: Path) -> None:
    """Give the graph in a folder ids that no model has seen."""
    for name, columns in (("nodes", ("id",)), ("edges", ("src", "dst"))):
        table = pq.read_table(folder / f"{name}.parquet")
        for column in columns:
            moved = pa.array(table[column].to_numpy() + 10_000)
            table = table.set_column(table.column_names.index(column), column, moved)
        pq.write_table(table, folder / f"{name}.parquet")


def test_a_metric_that_fell_while_nothing_shifted_is_told_as_another_relation_of_columns_to_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_graph(tmp_path, num_nodes=800, num_edges=2_000)
    relabel(tmp_path, by_sign)
    context = published(tmp_path, workspace=str(tmp_path / "runs"))
    write_graph(tmp_path, num_nodes=800, num_edges=2_000, seed=1)  # the same distributions, and labels turned round
    relabel(tmp_path, lambda x: by_sign(-x))
    new_ids(tmp_path)
    found = score.run(StageContext.of(context.config))
    assert found.drift is not None
    assert found.drift.columns_compared == 6
    assert found.drift.columns_shifted == 0
    words = [*found.lines()][-1]
    assert words.startswith("score.accuracy got worse by more than noise (0.")
    assert "6 columns (with the tables of training): none of them shifted, and the metric got worse" in words
    assert words.endswith("so the relation of columns to label may have changed")
    page, workspace = text_of(found.report), context.config.workspace
    assert words[1:] in page
    own = read_metrics(context.run.uri)
    for value in (found.metrics["score.accuracy"], found.drift.changes[0].before, own["test.accuracy"]):
        assert score_text(value) in page
    assert "x[0]" in page
    assert found.predictions.removeprefix("file://") in page
    source = Path(found.report.removeprefix("file://"))
    linked = {(source.parent / link).resolve() for link in re.findall(r'href="(\.\.[^"]+)"', source.read_text())}
    assert linked == {Path(found.predictions).resolve(), Path(context.run.uri, "report.html").resolve()}
    # a person finds it by the model's name or by the predictions, and it is made again where it is gone
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: not opened.append(url))
    for named in ("small@champion", found.predictions):
        Path(found.report.removeprefix("file://")).unlink()
        report(named, workspace, opens=True)
    assert [each.removeprefix("file://") for each in opened] == [found.report.removeprefix("file://")] * 2
    assert text_of(found.report) == page
    assert report_at(context.run.uri, workspace=workspace).endswith("/report.html")


def test_columns_that_shifted_are_counted_and_the_ones_that_moved_most_are_named(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=400)
    relabel(tmp_path, by_sign)
    context = published(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    x = np.stack(nodes["x"].to_numpy()) + np.array([0, 0, 3, 0, 0], np.float32)
    moved = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 5)
    pq.write_table(nodes.set_column(1, "x", moved).drop_columns(["label", "split"]), tmp_path / "nodes.parquet")
    found = score.run(StageContext.of(context.config))
    assert found.drift is not None
    assert (found.drift.columns_shifted, found.drift.most_moved[0][0]) == (1, "x[2]")
    assert any("column x[2], from the tables of training, shifted: PSI" in each for each in found.lines())
    page = text_of(found.report)
    assert "The tables have no labels, so nobody can say here how good these predictions are." in page
    assert "1 of 6 columns shifted" in page


MAE = Change("score.mae", 2.0, 1.0, True)


@pytest.mark.parametrize(
    ("changes", "columns", "end"),
    [
        ((MAE,), {}, "so columns may have shifted unseen, or the relation of columns to label may have changed"),
        ((MAE,), {"age": Drift(0.9, 0.1)}, "1 column (with the tables of training): 1 of 1 columns shifted"),
        ((replace(MAE, now=0.5),), {"age": Drift(0.1, 0.1)}, "(with the tables of training): none of them shifted"),
        ((replace(MAE, beyond_noise=False),), {"age": Drift(0.1, 0.1)}, "none of them shifted"),
        ((), {}, "was not measured both now and before. Compared were value: none of them shifted"),
    ],
)
def test_only_a_worse_metric_without_a_shift_is_told_as_another_relation(
    changes: tuple[Change, ...], columns: dict[str, Drift], end: str
) -> None:
    drift = ScoreDrift("before", {"value": (0.01, 0.02)}, changes=changes).with_columns(columns)
    assert drift.verdict("score.mae").endswith(end)
    assert ScoreDrift.read(drift.as_document()) == drift


def test_embeddings_of_links_are_said_to_be_judged_by_nothing(tmp_path: Path) -> None:
    config = run_groups(tmp_path)[0]
    publish.run(StageContext.of(config))
    found = score.run(StageContext.of(config))
    assert isinstance(found.figures, Figures)
    assert "embeddings are not judged: scoring holds out no edge of these tables" in "\n".join(found.lines())
    assert "Embeddings are not judged" in text_of(found.report)
