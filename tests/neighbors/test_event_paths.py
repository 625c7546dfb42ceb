"""Nodes that belong to a link and join its ends, beside nodes that many links share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from gnnflow.graph.run_facts import TrainFacts
from gnnflow.neighbors.event_paths import revealing_events, shares_joined, types_between
from gnnflow.neighbors.link_candidates import sample_links
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from tests.hearing import Heard
from tests.small_links import config_of as links_of
from tests.small_links import write_groups
from tests.typed_graphs import typed_tables
from tests.typed_tasks import PAYS, SENDS, USES, config_of, store_of

if TYPE_CHECKING:
    from gnnflow.storage.graph_store import GraphStore

AT = "device__at__merchant"
CUT = {"split": {"kind": "random", "valid": 0.2, "test": 0.2, "earlier_only": True}}


def with_devices(tables: dict[str, pa.Table], device: list[str], *, turned: bool = False) -> dict[str, pa.Table]:
    """The tables where the payment of each row is made on a device. turned: its relations lead the other way."""
    pays = tables[PAYS]
    ends = {USES: (pays["src"], pa.array(device)), AT: (pa.array(device), pays["dst"])}
    if turned:
        ends = {"device__of__account": ends[USES][::-1], "merchant__has__device": ends[AT][::-1]}
    others = {name: table for name, table in tables.items() if name != USES}
    relations = {name: pa.table({"src": src, "dst": dst}) for name, (src, dst) in ends.items()}
    return {**others, "device": pa.table({"id": sorted(set(device))}), **relations}


def payments(device: Any, *, turned: bool = False) -> dict[str, pa.Table]:
    """Tables of payments of which number n is made on device(n)."""
    tables = typed_tables(parallel=False)
    names = [f"device {device(number)}" for number in range(tables[PAYS].num_rows)]
    return with_devices(tables, names, turned=turned)


def shares(store: GraphStore) -> tuple[float, float]:
    return shares_joined(store, sample_links(store), store.schema.types.index("device"), seed=0)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_an_event_of_each_link_joins_all_of_them_and_few_other_pairs(
    tmp_path: Path, turned: bool, reverse: bool
) -> None:
    tables = payments(lambda number: number, turned=turned)
    store = store_of(config_of(tmp_path, tables, graph={"reverse_edges": reverse}))
    of_links, by_chance = shares(store)
    assert of_links == 1.0
    edges = len(set(zip(tables[PAYS]["src"].to_pylist(), tables[PAYS]["dst"].to_pylist(), strict=True)))
    assert by_chance < 4 * edges / (40 * 25)
    assert revealing_events(store, sample_links(store), seed=0) == {"device": (of_links, by_chance)}


def test_events_of_some_links_are_counted(tmp_path: Path) -> None:
    tables = payments(lambda number: number)
    store = store_of(config_of(tmp_path, tables))
    links, ids = sample_links(store), dict[int, Any]()
    for part in range(store.num_partitions):
        for kind in range(store.schema.num_types):
            ids |= {
                len(ids) + place: each
                for place, each in enumerate(store.nodes(part, ["id"], node_type=kind)["id"].to_pylist())
            }
    tested = {(ids[a], ids[b]) for a, b in zip(links.sources.tolist(), links.targets.tolist(), strict=True)}
    pays = zip(tables[PAYS]["src"].to_pylist(), tables[PAYS]["dst"].to_pylist(), strict=True)
    hidden = sorted(tested)[: len(tested) // 3]
    kept = pa.array([pair not in hidden for pair in pays])
    tables[AT] = tables[AT].filter(kept)
    assert shares(store_of(config_of(tmp_path, tables)))[0] == pytest.approx(1 - len(hidden) / len(tested))


def test_nodes_that_many_on_both_sides_share_are_no_events(tmp_path: Path) -> None:
    store = store_of(config_of(tmp_path, payments(lambda number: number % 5)))
    assert shares(store) == (0.0, 0.0)
    assert not revealing_events(store, sample_links(store), seed=0)


@pytest.mark.parametrize(("later", "found"), [(0, 0.0), (1, 0.0), (-1, 1.0)])
def test_an_event_that_is_not_before_its_link_does_not_join_it(tmp_path: Path, later: int, found: float) -> None:
    tables = payments(lambda number: number)
    times = np.arange(tables[PAYS].num_rows) * 10
    tables[SENDS] = tables[SENDS].append_column("timestamp", pa.array(np.zeros(tables[SENDS].num_rows, np.int64)))
    for name, shift in ((PAYS, 0), (USES, later), (AT, -1)):
        tables[name] = tables[name].append_column("timestamp", pa.array(times + shift))
    store = store_of(config_of(tmp_path, tables, task=CUT, graph={"timestamp": "timestamp"}))
    assert shares(store)[0] == found


def test_types_between_have_edges_with_both_ends(tmp_path: Path) -> None:
    def names(store: GraphStore) -> list[str]:
        return [store.schema.types[kind] for kind in types_between(store)]

    assert names(store_of(config_of(tmp_path, payments(lambda number: number)))) == ["device"]
    assert names(store_of(config_of(tmp_path / "own", typed_tables()))) == []
    assert names(store_of(config_of(tmp_path / "self", typed_tables(), target=SENDS))) == ["device", "merchant"]
    write_groups(tmp_path / "plain")
    assert names(store_of(links_of(tmp_path / "plain"))) == []


@pytest.mark.parametrize("device", [lambda number: number, lambda number: number % 5], ids=["events", "shared"])
def test_events_are_said_before_training_and_in_the_report(tmp_path: Path, device: Any) -> None:
    heard, is_event = Heard(), device(99) == 99
    result = pipeline.run(StageContext.of(config_of(tmp_path, payments(device)), progress=heard))
    said = [
        each for each in heard.messages if "a node of type device joins both ends of 100.0% of the test edg" in each
    ]
    assert len(said) == is_event
    assert all("earlier_only: true" in each for each in said)
    facts = result.stages["train"].facts(TrainFacts).link_facts
    assert facts is not None
    assert bool(facts.events) == is_event
    report = Path(result.report.removeprefix("file://")).read_text()
    assert ("Other nodes may reveal which pairs are edges" in report) == is_event
