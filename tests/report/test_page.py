from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from gnnflow.config.matrix import RunRow
from gnnflow.graph.encodings import CategoricalState, EncodedColumn
from gnnflow.graph.facts import BadRows, RowCounts
from gnnflow.graph.score_facts import ScoreFacts, ScoreGroup
from gnnflow.report import (
    EmbeddingSample,
    GraphSummary,
    PredictionSample,
    RelationRow,
    ReportInputs,
    StageRow,
    TypeRow,
    render_report,
)
from gnnflow.report.comparison import ComparedRun, render_comparison

EVIL = "<img src=x onerror=alert(1)>\"'&{{ 7 * 7 }}"


class Page(HTMLParser):
    """What a reader meets: tags, visible text, and figures with their label, title and words."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.figures: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self._figure = ""
        self._silent = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        values = dict(attrs)
        if tag == "figure":
            self._figure = values["id"].removeprefix("picture-")
            self.figures[self._figure] = ""
        if self._figure and values.get("role") == "img":
            self.labels[self._figure] = values["aria-label"]
        if tag in {"style", "script"}:
            self._silent = tag

    def handle_endtag(self, tag):
        if tag == "figure":
            self._figure = ""
        if tag == self._silent:
            self._silent = ""

    def handle_data(self, data):
        if self._silent:
            return
        self.text += f"{data} "
        if self._figure:
            self.figures[self._figure] += f"{data} "


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def html(make_inputs):
    """The page of a run with nothing missing."""
    return render_report(make_inputs())


def test_page_leads_with_what_decides_and_ends_with_engineering(html):
    text = words(Page(html).text)
    top, rest = text.split("How good, and compared with what", 1)
    assert "Test accuracy is 0.833, better than the same classifier without edges (0.600)." in top
    assert "The model predicts which of 3 classes a node has, from the tables nodes (9 rows), edges (9 rows)." in top
    assert "Of the labelled nodes, 40 were learned from, 30 chose the best epoch, 30 were kept apart and judge" in top
    assert "Test accuracy 0.833 valid 0.900, train 0.950" in top
    assert "Without edges 0.600 +0.233 with edges" in top
    assert "memory://runs/tiny-gcn/0123/predictions" in top
    assert "certificate" not in top
    folded = html[html.index('<details class="part">') :]
    assert "Same scores by another route Yes 64 targets" in rest
    assert "Time 9.8 s 1 of 4 stages reused, saving 1.5 s" in rest
    assert "Same scores by another route" in folded
    assert "Confused classes" not in folded
    order = [
        "Confused classes",
        "Columns that matter",
        "Loss by epoch",
        "In-edges per node",
        "Same scores by another route",
    ]
    assert sorted(order, key=rest.index) == order


def test_the_page_of_two_classes_shows_a_list_and_cases(make_inputs):
    scores = ScoreFacts(
        "test",
        30,
        "accuracy",
        (ScoreGroup(0, 9, 30, 0.8),),
        positives=10,
        steps=((10, 6), (30, 10)),
        gains=((10, 6.0),),
        decided=((16, 4), (4, 6)),
        bins=((20, *[0] * 19), (*[0] * 19, 10)),
    )
    text = words(Page(render_report(make_inputs(scores=scores, embeddings=None))).text)
    assert "The first 10 of 30 test targets by score contain 6 of the 10 of class Rules" in text
    assert "Decisions at the threshold" in text
    assert "Precision and recall at every threshold" in text
    assert "Accuracy by number of in-edges" in text


def test_failed_parity_is_impossible_to_miss(make_inputs):
    parity = make_inputs().parity.__class__(samples=64, max_difference=float("nan"), limit=1e-4)
    text = words(Page(render_report(make_inputs(parity=parity, embeddings=None))).text)
    assert "must not be used" in text
    assert "Same scores by another route No" in text
    assert "Another route gives other scores" in text


def test_every_picture_is_drawn_and_described(html):
    page = Page(html)
    expected = {"baseline", "loss", "metric", "quality", "map", "degrees", "blow-up", "timeline", "pipeline"}
    assert set(page.figures) == expected | {"groups", "columns"}  # of which an older run has no facts
    assert set(page.labels) == expected
    assert all(len(label) > 30 for label in page.labels.values())
    assert page.tags["svg"] == len(expected)


def test_stage_table_shows_times_reuse_and_short_digests(html):
    text = words(Page(html).text)
    assert "ingest 1.5 s reused aaaaaaaaaaaa nodes 100, edges 600" in text
    assert "train 4.0 s done cccccccccccc" in text


def test_anything_in_names_and_labels_stays_text(make_inputs):
    inputs = make_inputs(
        name=EVIL,
        run_uri=EVIL,
        config_yaml=EVIL,
        predictions_uri=EVIL,
        class_names=(EVIL, "$x^2$", "</svg><script>alert(1)</script>"),
        stages=[StageRow(EVIL, 1.0, digest=EVIL, counts={EVIL: 1})],
        versions={EVIL: EVIL},
        tables={EVIL: RowCounts(9, 6, 3, (BadRows(EVIL, EVIL, 3),))},
        metrics={"test.accuracy": 0.5, EVIL: 1.0},
    )
    page = Page(render_report(inputs))
    assert page.tags["img"] == 0
    assert page.tags["script"] == 1
    assert not [entry for entry in page.attributes if entry[1].startswith("on")]
    assert EVIL in page.text
    assert "$x^2$" in page.figures["quality"]
    assert "49" not in page.figures["quality"]


def test_a_class_does_not_turn_round_the_words_behind_it(make_inputs):
    turned = make_inputs(class_names=("\u202etheory", "\u2067rules", "networks"))
    page = render_report(turned)
    assert "rules is predicted as networks" in page
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", page)


def test_page_needs_no_network_and_no_other_file(html):
    page = Page(html)
    addresses = [value for _, name, value in page.attributes if name in {"src", "href", "xlink:href", "action"}]
    assert all(value.startswith(("#", "data:,")) for value in addresses)
    styles = " ".join(value for _, name, value in page.attributes if name in {"style", "clip-path"})
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)", styles))


def test_policy_allows_exactly_the_page_s_own_script(html):
    script = re.search(r"<script>(.*)</script>", html, flags=re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;" in html or f"script-src 'sha256-{digest}'" in html
    assert "default-src 'none'" in html


def test_missing_pieces_are_said_in_words():
    bare = ReportInputs(name="bare", run_uri="", config_yaml="", metrics={}, stages=[], graph=GraphSummary(0, 0))
    html = render_report(bare)
    page = Page(html)
    assert "<svg" not in html
    assert "train.baseline: true" in words(page.figures["baseline"]).lower()
    assert "No epochs were recorded" in page.figures["loss"]
    assert "so predictions cannot be checked" in page.figures["quality"]
    assert "infer.embeddings: true" in words(page.figures["map"])
    assert "no in-degree histogram" in page.figures["degrees"]
    assert "blow-up is not known" in page.figures["blow-up"]
    assert "No stage recorded its time" in page.figures["timeline"]
    assert "computed no score" in page.text


@pytest.mark.slow
def test_same_inputs_give_the_same_bytes_in_every_process(make_inputs):
    code = (
        "import sys, hashlib, importlib.util as u; s = u.spec_from_file_location('c', sys.argv[1]);"
        "m = u.module_from_spec(s); s.loader.exec_module(m); from gnnflow.report import render_report;"
        "print(hashlib.sha256(render_report(m.healthy()).encode()).hexdigest())"
    )
    conftest = __file__.replace("test_page.py", "conftest.py")
    other = subprocess.run(
        [sys.executable, "-c", code, conftest], capture_output=True, text=True, check=True
    ).stdout.strip()
    here = hashlib.sha256(render_report(make_inputs()).encode()).hexdigest()
    assert here == other


@pytest.mark.slow
def test_page_stays_light_for_a_large_run(make_inputs):
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 41, 20_000)
    curves = [{"epoch": e, "train_loss": draw.random(), "valid_accuracy": draw.random()} for e in range(5000)]
    inputs = make_inputs(
        predictions=PredictionSample(labels, draw.random((20_000, 41))),
        class_names=[f"a class with a long name, number {index}" for index in range(41)],
        curves=curves,
        embeddings=None,
        graph=GraphSummary(
            2_000_000, 120_000_000, in_degree_histogram=[(2**i, 2 ** (i + 1), 10**6 >> i) for i in range(18)]
        ),
    )
    assert len(render_report(inputs).encode()) < 500_000


def test_importing_the_room_stays_light():
    code = (
        "import sys, gnnflow.report;"
        "heavy = {'matplotlib', 'sklearn', 'jinja2', 'torch', 'pyarrow', 'dask'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_pictures_leave_matplotlib_as_it_was(make_inputs):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    render_report(make_inputs(embeddings=None))
    assert dict(mpl.rcParams) == before


@pytest.mark.slow
def test_a_user_s_matplotlib_settings_do_not_reach_the_page(make_inputs):
    import matplotlib as mpl

    inputs = make_inputs(embeddings=None)
    plain = render_report(inputs)
    with mpl.rc_context({"font.size": 30, "axes.grid": True, "lines.linewidth": 9}):
        assert render_report(inputs) == plain


@pytest.mark.slow
def test_unlabelled_embeddings_and_regression_shades_are_drawn(make_inputs):
    rows = make_inputs().embeddings.rows
    plain = Page(render_report(make_inputs(embeddings=EmbeddingSample(rows))))
    assert "42 nodes" in plain.figures["map"]
    values = np.linspace(0, 10, 42)
    values[0] = np.nan
    predictions = PredictionSample(values[1:], values[1:] + 1)
    shaded = make_inputs(label_kind="regression", embeddings=EmbeddingSample(rows, values), predictions=predictions)
    assert "no value" in Page(render_report(shaded)).figures["map"]


def shown_by_browser(page: Path) -> str:
    """Return a page as Chromium has it after its scripts have run."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs Chromium")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    profile = f"--user-data-dir={page.parent / 'profile'}"
    dump = [browser, *flags, profile, "--virtual-time-budget=3000", "--dump-dom", page.as_uri()]
    return subprocess.run(dump, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.browser
def test_browser_runs_the_page_s_script_under_its_policy(make_inputs, tmp_path):
    page = tmp_path / "report.html"
    page.write_text(render_report(make_inputs(embeddings=None)), encoding="utf-8")
    assert '<button type="button" data-copy="config">Copy</button>' in shown_by_browser(page)


@pytest.mark.browser
def test_a_narrow_screen_cuts_no_score_and_says_where_to_swipe(make_inputs, tmp_path):
    name = "a_class_with_quite_a_long_name"
    relations = [RelationRow(f"{name}__{number}__{name}", 10**6, 10**5, 10**4) for number in range(3)]
    intervals = {f"test.{each}{side}": 0.5 for each in ("accuracy", "macro_f1") for side in ("_low", "_high")}
    inputs = make_inputs(
        metrics={**make_inputs().metrics, "test.macro_f1": 0.812, "valid.macro_f1": 0.8, **intervals},
        graph=GraphSummary(10**6, 10**7, types=[TypeRow(name, 10**6)], relations=relations, target=name),
        embeddings=None,
    )
    frame = tmp_path / "frame.html"
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", render_report(inputs))
    frame.write_text(_FRAME.replace("PAGE", escape(page)), encoding="utf-8")
    found = json.loads(re.search(r"<pre>(.*?)</pre>", shown_by_browser(frame)).group(1))
    assert found["width"] <= 390
    assert found["cut"] == []  # scores of test that end outside of their box
    assert found["boxes"] > 0
    assert found["swiped"] == found["wide"] > 0


@pytest.mark.browser
def test_a_comparison_fits_a_narrow_screen_and_says_where_to_swipe(tmp_path):
    keys = {"kind": "gat_e", "heads": "4", "reach": "two-hops-of-every-relation"}
    scores = {f"{split}.accuracy": 0.9 for split in ("test", "train", "valid")}
    runs = [ComparedRun(RunRow(f"a {seed}", "a", keys, seed), "/runs/a", scores) for seed in range(2)]
    frame = tmp_path / "frame.html"
    written = render_comparison(runs, name="sweep", metric="valid.accuracy")
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", written)
    frame.write_text(_FRAME.replace("PAGE", escape(page)), encoding="utf-8")
    found = json.loads(re.search(r"<pre>(.*?)</pre>", shown_by_browser(frame)).group(1))
    assert found["width"] <= 390
    assert found["swiped"] == found["wide"] > 0
    alone = tmp_path / "comparison.html"  # with its policy, which the frame leaves out
    alone.write_text(written, encoding="utf-8")
    assert 'class="swipe"' in shown_by_browser(alone)


_FRAME = """<iframe style="width: 390px; height: 800px; border: 0" srcdoc="PAGE"></iframe><pre></pre><script>
document.querySelector("iframe").addEventListener("load", (event) => {
  const page = event.target.contentDocument;
  const boxes = [...page.querySelectorAll(".panel")].filter((box) => box.clientWidth);
  const wide = boxes.filter((box) => box.scrollWidth > box.clientWidth + 1);
  const scores = [...page.querySelectorAll("#scores .panel > table tbody td:nth-child(2)")];
  document.querySelector("pre").textContent = JSON.stringify({
    width: page.documentElement.scrollWidth,
    boxes: scores.length,
    cut: scores.filter((cell) => cell.getBoundingClientRect().right > 390).map((cell) => cell.textContent),
    wide: wide.length,
    swiped: wide.filter((box) => !box.querySelector(".swipe").hidden).length,
  });
});
</script>"""


def test_epochs_are_counted_in_whole_numbers(make_inputs):
    metrics = {**make_inputs().metrics, "train.epochs": 20.0, "train.best_epoch": 12.0}
    text = words(Page(render_report(make_inputs(metrics=metrics, embeddings=None))).text)
    assert "12.000" not in text
    assert "Train best epoch 12 " in text


def test_a_typed_graph_shows_a_row_per_type_and_relation(make_inputs):
    types = [TypeRow("account", 4000, 12, quarantined=3), TypeRow("device", 0), TypeRow("shop", 50, 9, sparse=True)]
    relations = [
        RelationRow("account__pays__shop", 100, 50, 7, attribute_width=2, has_weight=True),
        RelationRow("account__uses__device", 0, 0, 0),
    ]
    graph = GraphSummary(4050, 100, feature_width=12, types=types, relations=relations, target="account")
    text = words(Page(render_report(make_inputs(graph=graph))).text)
    assert "features per account 12" in text
    assert "account, scored 4,000 12 dense 3 device 0 none: a learned row and degrees 0 shop 50 9 sparse 0" in text
    assert "account__pays__shop 100 2 7 2, weights 0 account__uses__device 0 0 0 none 0" in text


def test_a_graph_without_types_shows_neither(html):
    text = words(Page(html).text)
    assert "features per node 32" in text
    assert "Types of nodes" not in text


def test_encoded_columns_say_what_was_done(make_inputs):
    state = CategoricalState(name="country", rows=200, missing=4, values=("de", "fr"), has_rest=True, distinct=9)
    encodings = {"nodes": [EncodedColumn(state, 4, 30)]}
    text = words(Page(render_report(make_inputs(encodings=encodings, tables={"nodes": RowCounts(200, 200, 0)}))).text)
    assert "nodes country categorical 2 of 9 values have a column, and one more is for others 4 2 % 15 %" in text
    assert "Columns that were encoded" not in words(Page(render_report(make_inputs())).text)
