"""Pairs scored from a run's embeddings: what of a table is read, which run is meant, and what is never written over."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.config import Config
from gnnflow.graph.errors import RegistryError, ScoringError, StorageError, TableError
from gnnflow.stages import publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.pairs import score_pairs
from gnnflow.stages.pipeline import run as run_pipeline
from gnnflow.stages.report import report_of
from gnnflow.storage.manifest import read_manifest
from gnnflow.storage.run_folder import read_run
from gnnflow.storage.workspace import MANIFEST
from tests.small_graphs import graph_config, write_graph
from tests.small_links import TASK, config_of, run_groups, write_groups


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Any, Path]:
    return run_groups(tmp_path_factory.mktemp("links"))


def test_a_run_is_found_however_it_is_named(
    done: tuple[Config, Any, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, result, _ = done
    pq.write_table(pa.table({"src": ["n1"], "dst": ["n2"]}), tmp_path / "pairs.parquet")
    folder = Path(result.uri)
    named = [(folder, "."), (folder.parent, folder.name), (tmp_path, f"{folder}/"), (tmp_path, f"file://{folder}/")]
    for here, run in [*named, (tmp_path, config.name)]:
        monkeypatch.chdir(here)
        out = tmp_path / "scored.parquet"
        score_pairs(run, str(tmp_path / "pairs.parquet"), out=str(out), workspace=config.workspace)
        assert pq.read_table(out).num_rows == 1
        out.unlink()
        assert Path(report_of(run, workspace=config.workspace).removeprefix("file://")) == folder / "report.html"
        assert read_run(run if run != config.name else result.uri) == read_run(result.uri)


@pytest.mark.parametrize(
    ("id_", "says"),
    [
        ("nobody", r"id 'nobody' has no embedding in this run \(1 such ids\)\. Leave"),
        ("n1 ", r"id 'n1 ' has no.*\. The id 'n1' exists, and 'n1 ' differs from it only in spaces\. Write both alike"),
    ],
)
def test_an_id_without_embedding_is_named(done: tuple[Config, Any, Path], tmp_path: Path, id_: str, says: str) -> None:
    pq.write_table(pa.table({"src": ["n1", id_], "dst": ["n2", "n3"]}), tmp_path / "pairs.parquet")
    with pytest.raises(TableError, match=says):
        score_pairs(
            done[1].uri, str(tmp_path / "pairs.parquet"), out=str(tmp_path / "scored.parquet"), workspace=str(tmp_path)
        )


@pytest.mark.table(4)
@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("{table}/pairs.parquet", "is the table of pairs itself"),
        ("file://{table}/pairs.parquet", "is the table of pairs itself"),
        ("{table}/of/../link.parquet", "is the table of pairs itself"),
        ("{run}/predictions/part-00000.parquet", "lies in the run"),
        ("file://{run}/metrics.json", "lies in the run"),
        ("{table}/run/metrics.json", "lies in the run"),
        ("{infer}/predictions/more.parquet", "lies in the run"),
        ("local://{infer}/manifest.json", "lies in the run"),
        ("{table}/scored.csv", "scores are written as Parquet"),
    ],
)
def test_scores_replace_nothing_of_the_run_or_its_pairs(
    out: str, says: str, done: tuple[Config, Any, Path], tmp_path: Path
) -> None:
    config, result, _ = done
    pairs = tmp_path / "pairs.parquet"
    pq.write_table(pa.table({"src": ["n1"], "dst": ["n2"]}), pairs)
    out = out.format(table=tmp_path, run=result.uri, infer=StageContext.of(config).artifact("infer").uri)
    (tmp_path / "link.parquet").symlink_to(pairs)
    (tmp_path / "run").symlink_to(result.uri)
    place = Path(out.rpartition("://")[2])
    before = place.read_bytes() if place.exists() else None
    with pytest.raises(StorageError, match=says):
        score_pairs(result.uri, str(pairs), out=out, workspace=str(tmp_path))
    assert before == (place.read_bytes() if place.exists() else None)


@pytest.mark.parametrize(
    ("ids", "says"),
    [([1.0, 2.0], "is double, not an id"), ([True, False], "is bool, not an id"), ([7, 8], "id '7' has no embedding")],
)
def test_ids_of_another_type_are_named(
    ids: list[Any], says: str, done: tuple[Config, Any, Path], tmp_path: Path
) -> None:
    pq.write_table(pa.table({"src": ids, "dst": ids}), tmp_path / "pairs.parquet")
    with pytest.raises(TableError, match=says):
        score_pairs(
            done[1].uri, str(tmp_path / "pairs.parquet"), out=str(tmp_path / "scored.parquet"), workspace=str(tmp_path)
        )


def test_text_is_no_integer_id(tmp_path: Path) -> None:
    write_graph(tmp_path)
    config = graph_config(tmp_path, task=TASK, train={"epochs": 1, "metric": "mrr", "batch_size": 64})
    result = run_pipeline(StageContext.of(config))
    pairs, out = tmp_path / "pairs.parquet", tmp_path / "scored.parquet"
    pq.write_table(pa.table({"src": ["1", "04"], "dst": ["7", "10"]}), pairs)
    with pytest.raises(TableError, match="ids are string, but int64 in the run"):
        score_pairs(result.uri, str(pairs), out=str(out), workspace=str(tmp_path))
    pq.write_table(pa.table({"src": pa.array([1, 4]).dictionary_encode(), "dst": pa.array([7, 10], pa.uint8())}), pairs)
    score_pairs(result.uri, str(pairs), out=str(out), workspace=str(tmp_path))
    assert pq.read_table(out)["dst"].to_pylist() == [7, 10]


def test_a_table_without_ends_is_named(done: tuple[Config, Any, Path], tmp_path: Path) -> None:
    pq.write_table(pa.table({"src": ["n1"], "to": ["n2"]}), tmp_path / "pairs.parquet")
    with pytest.raises(TableError, match=r"no column 'dst' \(graph.dst of the run\)"):
        score_pairs(
            done[1].uri, str(tmp_path / "pairs.parquet"), out=str(tmp_path / "scored.parquet"), workspace=str(tmp_path)
        )


@pytest.mark.parametrize(
    "kinds", [(pa.large_string(), pa.string_view()), (pa.dictionary(pa.int32(), pa.string()), pa.large_string())]
)
def test_files_of_pairs_may_write_ids_in_two_ways(
    kinds: tuple[pa.DataType, pa.DataType], done: tuple[Config, Any, Path], tmp_path: Path
) -> None:
    (tmp_path / "pairs").mkdir()
    for number, kind in enumerate((pa.string(), *kinds)):
        ids = pa.array([f"n{number}"]).cast(kind)
        pq.write_table(pa.table({"src": ids, "dst": ids}), tmp_path / "pairs" / f"{number}.parquet")
    score_pairs(done[1].uri, str(tmp_path / "pairs"), out=str(tmp_path / "scored.parquet"), workspace=str(tmp_path))
    assert pq.read_table(tmp_path / "scored.parquet")["src"].to_pylist() == ["n0", "n1", "n2"]


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"src": ["n1"], "dst": ["n2"], "note": ["x"]}, r"1.parquet: has columns .*'note'\], the first file has"),
        ({"src": ["n1"]}, r"1.parquet: has columns \['src'\], the first file has \['src', 'dst'\]"),
        ({"src": [1], "dst": ["n2"]}, r"1.parquet: column 'src' is int64, in .*0.parquet it is string"),
    ],
    ids=["another column", "a column less", "another type"],
)
def test_files_of_pairs_that_differ_are_named_as_such(
    second: dict[str, Any], says: str, done: tuple[Config, Any, Path], tmp_path: Path
) -> None:
    (tmp_path / "pairs").mkdir()
    for number, columns in enumerate(({"src": ["n0"], "dst": ["n1"]}, second)):
        pq.write_table(pa.table(columns), tmp_path / "pairs" / f"{number}.parquet")
    with pytest.raises(TableError, match=says):
        score_pairs(done[1].uri, str(tmp_path / "pairs"), out=str(tmp_path / "out.parquet"), workspace=str(tmp_path))


def test_pairs_are_scored_from_the_embeddings_of_the_published_model(
    done: tuple[Config, Any, Path], tmp_path: Path
) -> None:
    config, result, folder = done
    publish.run(StageContext.of(config))
    scored = score.run(StageContext.of(config)).predictions
    pairs, out = str(folder / "edges.parquet"), str(tmp_path / "scored.parquet")
    found = []
    for embeddings in (None, scored):
        score_pairs(result.uri, pairs, out=out, workspace=config.workspace, embeddings=embeddings)
        found.append(pq.read_table(out)["score"])
    held = {row["id"]: row["embedding"] for row in pq.read_table(scored).to_pylist()}
    first = pq.read_table(pairs).to_pylist()[0]
    expected = sum(a * b for a, b in zip(held[first["src"]], held[first["dst"]], strict=True))
    assert found[1][0].as_py() == pytest.approx(expected, rel=1e-4)
    assert not found[0].equals(found[1])
    # the folder that a scoring prints, its artifact and the model's name are the same embeddings
    for named in (scored, scored.removesuffix("/predictions"), f"{config.name}@champion"):
        score_pairs(named, pairs, out=out, workspace=config.workspace)
        assert pq.read_table(out)["score"].equals(found[1])


def test_next_months_pairs_are_scored_from_every_edge_of_a_split_by_time(tmp_path: Path) -> None:
    write_groups(tmp_path)
    edges = pq.read_table(tmp_path / "edges.parquet")
    edges = edges.append_column("timestamp", pa.array(range(edges.num_rows)))
    pq.write_table(edges.slice(0, 800), tmp_path / "edges.parquet")
    split = {"kind": "time", "valid": 0.1, "test": 0.1}
    config = config_of(tmp_path, task={"split": split}, graph={"timestamp": "timestamp"}, train={"epochs": 1})
    context = StageContext.of(config)
    run_pipeline(context)
    publish.run(context)
    pairs, out = str(tmp_path / "edges.parquet"), str(tmp_path / "out")
    with pytest.raises(RegistryError, match=r"version 1 has no scores. Run `gnnflow score CONFIG` first"):
        score_pairs("small@champion", pairs, out=out, workspace=config.workspace)

    def embeddings(count: int) -> dict[str, list[float]]:
        pq.write_table(edges.slice(0, count), tmp_path / "edges.parquet")
        found = pq.read_table(score.run(StageContext.of(config)).predictions)
        return {row["id"]: row["embedding"] for row in found.to_pylist()}

    # the newest edge, which a split by time holds out, brings its target a message
    newest = edges.slice(edges.num_rows - 1).to_pylist()[0]
    assert embeddings(edges.num_rows)[newest["dst"]] != embeddings(edges.num_rows - 1)[newest["dst"]]
    score_pairs("small@champion", pairs, out=out, workspace=config.workspace)
    assert pq.read_table(f"{out}/scored.parquet").num_rows == edges.num_rows - 1


def test_embeddings_of_other_weights_of_the_same_config_are_refused(
    done: tuple[Config, Any, Path], tmp_path: Path
) -> None:
    config, result, folder = done
    context, other = StageContext.of(config), StageContext.of(config_of(folder, name="other", train={"epochs": 1}))
    run_pipeline(other)
    embeddings = context.artifact("infer").uri
    trained, anew = (Path(each.artifact("train").uri.removeprefix("file://")) for each in (context, other))
    pairs, out = str(folder / "edges.parquet"), str(tmp_path / "scored.parquet")
    arguments = {"out": out, "workspace": config.workspace, "embeddings": embeddings}
    score_pairs(result.uri, pairs, **arguments)
    shutil.copytree(trained, tmp_path / "kept")
    fingerprint = read_manifest(str(trained)).fingerprint
    try:
        shutil.copytree(anew, trained, dirs_exist_ok=True)
        held = json.loads((trained / MANIFEST).read_text()) | {"fingerprint": fingerprint}
        del held["checksum"]
        (trained / MANIFEST).write_text(json.dumps(held))
        with pytest.raises(ScoringError, match=r"--embeddings .*were made by another model than the run's"):
            score_pairs(result.uri, pairs, **arguments)
    finally:
        shutil.copytree(tmp_path / "kept", trained, dirs_exist_ok=True)


def test_embeddings_of_another_model_are_refused(done: tuple[Config, Any, Path], tmp_path: Path) -> None:
    config, result, folder = done
    other = config_of(folder, name="other", train={"epochs": 1})
    run_pipeline(StageContext.of(other))
    embeddings = f"{StageContext.of(other).artifact('infer').uri}/predictions"
    with pytest.raises(ScoringError, match=r"--embeddings .*were made by another model than the run's"):
        score_pairs(
            result.uri,
            str(folder / "edges.parquet"),
            out=str(tmp_path / "scored.parquet"),
            workspace=config.workspace,
            embeddings=embeddings,
        )
