"""A damaged workspace is found, by name and with what to do, or gives the same bytes: none silent, no traceback.

So are tables whose bytes are spoilt, or they are read as pyarrow reads them; and configurations whose values are.
GNNFLOW_DAMAGES is how many damages of workspaces a search makes; of tables and of configurations it makes half as many.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.command_line import Shown, run_cli
from tests.robustness import spoilt_tables
from tests.robustness.case import refusal_faults
from tests.robustness.damage import Template, finished, outcome, random_damage
from tests.robustness.inputs import FORMATS
from tests.robustness.mutations import mutated
from tests.robustness.test_combinations import drawn, run, write_graphs

pytestmark = pytest.mark.draws  # a damage may show in a picture alone

CHUNKS = 20
IN_ALL = int(os.environ.get("GNNFLOW_DAMAGES", "200"))  # a search takes 1000 or more


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return finished(tmp_path_factory.mktemp("damages"))


def damaged(template: Template, seed: int, count: int, record: Callable[[str, object], None]) -> None:
    """Do damages one after another, say how they ended, and fail where one was silent or not readable."""
    pick = random.Random(seed)
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    for _ in range(count):
        damage = random_damage(template, pick)
        end, seen = outcome(template, damage, pick)
        ends[end] += 1
        if end in {"silent", "traceback", "unclear"}:
            wrong.append(f"{end}: {damage}: {seen}")
    record("damages", dict(ends))
    fail_where_wrong(wrong, count)


def fail_where_wrong(wrong: list[str], count: int) -> None:
    if wrong:
        pytest.fail("\n".join([f"{len(wrong)} of {count}", *wrong]), pytrace=False)


@pytest.mark.robustness
def test_a_few_damages_are_found_or_harmless(
    template: Template, record_property: Callable[[str, object], None]
) -> None:
    damaged(template, CHUNKS, 12, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CHUNKS))
def test_many_damages_are_found_or_harmless(
    template: Template, seed: int, record_property: Callable[[str, object], None]
) -> None:
    damaged(template, seed, IN_ALL // CHUNKS, record_property)


def spoilt(folder: Path, form: str, seeds: range, record: Callable[[str, object], None]) -> None:
    """Spoil tables of a format one after another, and fail where one was taken for another or refused unreadably."""
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in seeds:
        place = folder / str(seed)
        place.mkdir()
        end, seen = spoilt_tables.outcome(place, form, random.Random(f"{form} {seed}"))
        ends[end] += 1
        wrong += [f"seed {seed}: {end}: {seen}"] if end in {"silent", "unclear"} else []
    record("damages", dict(ends))
    fail_where_wrong(wrong, len(seeds))


@pytest.mark.robustness
@pytest.mark.parametrize("form", FORMATS)
def test_a_few_spoilt_tables_are_refused_or_read_as_pyarrow_reads_them(
    tmp_path: Path, form: str, record_property: Callable[[str, object], None]
) -> None:
    spoilt(tmp_path, form, range(-4, 0), record_property)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_many_spoilt_tables_are_refused_or_read_as_pyarrow_reads_them(
    tmp_path: Path, form: str, record_property: Callable[[str, object], None]
) -> None:
    spoilt(tmp_path, form, range(IN_ALL // 2 // len(FORMATS)), record_property)


def faults_of(shown: Shown, workspace: Path) -> list[str]:
    """Return what is wrong with how a run of a mutated configuration ended."""
    if "Traceback" in shown.err or "bug" in shown.err:
        return [shown.err[-2000:]]
    if shown.code:
        return refusal_faults(shown)
    scores = pa.concat_tables(map(pq.read_table, workspace.glob("runs/*/*/predictions/*.parquet")))
    numbers = [np.array(scores[name].to_pylist()) for name in ("probabilities", "value") if name in scores.column_names]
    return (
        [] if scores.num_rows and all(np.isfinite(each).all() for each in numbers) else ["predictions are not finite"]
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_mutated_configs_run_or_are_refused_readably(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    graphs, ends, wrong = write_graphs(tmp_path / "graphs"), Counter[str](), list[str]()
    for seed in range(IN_ALL // 2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        config = drawn(seed, graphs)
        assert run(config, folder, "explain").code == 0  # which leaves out what is refused as it stands
        config, told = mutated(config, random.Random(f"mutation {seed}"))
        (folder / "config.yaml").write_text(json.dumps({**config, "workspace": str(folder / "runs")}))
        shown = run_cli(["run", str(folder / "config.yaml")])
        ends["found" if shown.code else "harmless"] += 1
        wrong += [f"seed {seed}: {told}: {fault}" for fault in faults_of(shown, folder / "runs")]
    record_property("damages", dict(ends))
    fail_where_wrong(wrong, IN_ALL // 2)
